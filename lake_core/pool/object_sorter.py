"""Sorts values into data objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lake_core.pool.batch_list import BatchList, large_batches
from lake_core.pool.key_column import KeyColumn
from lake_core.pool.object_writer import write_object
from lake_core.pool.sorted_batch import keys_of, sort_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.value_batch import ValueBatch
    from lake_core.store import ObjectStore

_SORTED_BYTES: Final = 256 << 20


def write_unsorted(
    store: ObjectStore,
    config: PoolConfig,
    batches: Iterable[ValueBatch],
    new_id: Callable[[], str],
    *,
    most_bytes: int = _SORTED_BYTES,
) -> Iterator[DataObject]:
    """Sort values, put them as data objects with their seek indexes, and yield the description of each data object.

    An object ends at the value with which its bodies reach the threshold of the pool. Takes about twice as much memory
    as its values have bytes, at most.

    Args:
        store: The store of the lake.
        config: The pool.
        batches: The values.
        new_id: Returns the id of each object.
        most_bytes: Sort this many bytes at once, at most, where the threshold is larger.

    Raises:
        InvalidZng: A key is damaged.
    """
    for part in _parts(large_batches(batches), min(config.threshold, most_bytes)):
        keys = KeyColumn.concat([keys_of(batch, config) for batch in part])
        batch = BatchList.of(part)
        yield write_object(store, config, sort_batch(batch, keys, config), new_id())


def _parts(batches: Iterable[ValueBatch], most_bytes: int) -> Iterator[list[ValueBatch]]:
    """Yield values in parts. Each ends at the value with which its bodies reach `most_bytes`."""
    part: list[ValueBatch] = []
    size = 0
    for batch in batches:
        totals = np.cumsum(batch.body_sizes())
        start = written = 0
        while start < len(batch):
            stop = min(int(np.searchsorted(totals, written + most_bytes - size)) + 1, len(batch))
            part.append(batch.slice(start, stop))
            size += int(totals[stop - 1]) - written
            start, written = stop, int(totals[stop - 1])
            if size >= most_bytes:
                yield part
                part, size = [], 0
    if part:
        yield part
