"""Writes data objects with their seek indexes."""

from __future__ import annotations

from contextlib import closing
from mmap import ACCESS_READ, mmap
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import numpy as np

from lake_core.pool.data_object import DataObject, data_key, seek_index_key
from lake_core.pool.order import compare_values
from lake_core.pool.seek_index import Segment
from lake_core.pool.zng.writer import ZngWriter, encode_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lake_core.pool.config import PoolConfig
    from lake_core.pool.sorted_batch import SortedBatch
    from lake_core.pool.value import Value
    from lake_core.store import ObjectStore

_IN_MEMORY: Final = 16 << 20
_SMALLEST_FRAME: Final = 4096
"""How many bytes a frame has at least that is written to know the size of an object."""
_FEWEST_FRAMES: Final = 8
"""How many such frames fill an object at least, whatever the threshold."""


class ObjectEncoder:
    """An encoder of sorted values as a data object, which also finds the segments that its seek index lists.

    A segment ends at the value with which its keys reach `seek_stride` bytes. The bytes of a large object are in a
    temporary file.

    Attributes:
        segments: The segments so far.
        count: How many values were written.
    """

    def __init__(self, config: PoolConfig) -> None:
        self._file = cast("BinaryIO", SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - closed by `close`
        self.segments: list[Segment] = []
        self.count = 0
        self._config = config
        self._writer = ZngWriter(self._file)
        self._key_bytes = 0
        self._first_key: Value | None = None
        self._last_key: Value | None = None
        self._first = self._offset = 0

    def room(self, values: SortedBatch) -> int:
        """Return how many of the next values belong to this object.

        An object is full once its size in the store reaches the threshold of the pool, and the next value has another
        key. To know that size, values that may fill the object are written as a frame. Returns 0 for a full object.
        """
        threshold = self._config.threshold
        # Smaller frames would compress badly.
        least = min(_SMALLEST_FRAME, max(threshold // _FEWEST_FRAMES, 1))
        if self._writer.pending >= max(threshold - self._writer.position, least):
            self._writer.flush()
        left = threshold - self._writer.position
        if left > 0:
            missing = max(left, least) - self._writer.pending
            return min(int(np.searchsorted(np.cumsum(values.batch.body_sizes()), missing)) + 1, len(values))
        if self._last_key is None or compare_values(self._last_key, values.key(0)):
            return 0
        others = np.flatnonzero(~values.repeats()[1:])
        return 1 + int(others[0]) if len(others) else len(values)

    def write(self, values: SortedBatch) -> None:
        """Write values, or keep them until a frame is full. Raises InvalidZng."""
        totals = np.cumsum(values.key_sizes())
        first, written = 0, 0
        while first < len(values):
            missing = written + self._config.seek_stride - self._key_bytes
            last = int(np.searchsorted(totals, missing))
            self._write_within(values.slice(first, min(last + 1, len(values))))
            self._key_bytes += int(totals[min(last, len(values) - 1)]) - written
            if last < len(values):
                self._end_segment()
            first, written = last + 1, int(totals[min(last, len(values) - 1)])

    def finish(self) -> memoryview:
        """Return the bytes of the object after its last value. Those of a large object are not in memory."""
        if self._first < self.count:
            self._end_segment()
        if self._writer.position <= _IN_MEMORY:
            self._file.seek(0)
            return memoryview(self._file.read())
        self._file.flush()
        return memoryview(mmap(self._file.fileno(), 0, access=ACCESS_READ))

    def close(self) -> None:
        """Close the temporary file."""
        self._file.close()

    def _write_within(self, values: SortedBatch) -> None:
        """Write values of one segment."""
        if self._first_key is None:
            self._first_key = values.key(0)
        self._last_key = values.key(len(values) - 1)
        values.batch.write_to(self._writer)
        self.count += len(values)

    def _end_segment(self) -> None:
        assert self._first_key is not None
        assert self._last_key is not None
        self._writer.end_stream()
        keys = (self._last_key, self._first_key) if self._config.descending else (self._first_key, self._last_key)
        end = self._writer.position
        self.segments.append(Segment(*keys, self._first, self.count - self._first, self._offset, end - self._offset))
        self._first, self._offset, self._key_bytes, self._first_key = self.count, end, 0, None


def write_object(store: ObjectStore, config: PoolConfig, batches: Iterable[SortedBatch], id: str) -> DataObject:
    """Put sorted values as one data object with its seek index, and return its description.

    Takes memory for a few frames.

    Args:
        store: The store of the lake.
        config: The pool.
        batches: The values, in the order of the pool from the first batch to the last; at least one.
        id: The id of the object.

    Raises:
        InvalidZng: A key is damaged.
    """
    encoder = ObjectEncoder(config)
    for batch in batches:
        encoder.write(batch)
    return _put(store, config, id, encoder)


def write_objects(
    store: ObjectStore, config: PoolConfig, batches: Iterable[SortedBatch], new_id: Callable[[], str]
) -> Iterator[DataObject]:
    """Put sorted values as data objects with their seek indexes, and yield the description of each.

    An object ends where its size in the store reaches the threshold of the pool, by which compactions tell small ones.
    Takes memory for a few frames.

    Args:
        store: The store of the lake.
        config: The pool.
        batches: The values, in the order of the pool from the first batch to the last.
        new_id: Returns the id of each object.

    Raises:
        InvalidZng: A key is damaged.
    """
    encoder = ObjectEncoder(config)
    for batch in batches:
        start = 0
        while start < len(batch):
            rest = batch.slice(start, len(batch))
            room = encoder.room(rest)
            if room:
                encoder.write(rest.slice(0, room))
                start += room
            else:
                yield _put(store, config, new_id(), encoder)
                encoder = ObjectEncoder(config)
    if encoder.count:
        yield _put(store, config, new_id(), encoder)


def _put(store: ObjectStore, config: PoolConfig, id: str, encoder: ObjectEncoder) -> DataObject:
    with closing(encoder):
        data, segments = encoder.finish(), encoder.segments
    store.put(seek_index_key(config.id, id), encode_values([segment.to_value() for segment in segments]), unique=True)
    store.put(data_key(config.id, id), data, unique=True)
    smallest, largest = segments[0].min, segments[-1].max
    if config.descending:
        smallest, largest = segments[-1].min, segments[0].max
    return DataObject(id, smallest, largest, encoder.count, len(data))
