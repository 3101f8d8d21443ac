"""The parts of data objects that Spark's executors read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lake_core.pool.arrow.columns import Column, read_columns
from lake_core.pool.arrow.shapes import Shape, shapes
from lake_core.pool.key_column import KeyColumn
from lake_core.pool.key_range import KeyRange
from lake_core.pool.merge import partitions
from lake_core.pool.object_reader import ObjectReader
from lake_core.pool.seek_index import Segment, all_segments, whole_segment
from lake_core.pool.value_batch import ValueBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class PoolPart:
    """A segment of a data object, and the range of keys to read."""

    reader: ObjectReader
    path: tuple[str, ...]
    """The pool's key."""
    key_range: KeyRange
    """The range has no bounds if all keys of the segment are in it."""

    def columns(self) -> Iterator[list[Column]]:
        """Yield the values of a few frames at a time. Raises DamagedLake."""
        for columns in self.reader.columns():
            if self.key_range.is_bounded:
                columns = [column for column in map(self._in_range, columns) if len(column.rows)]
            if columns:
                yield columns

    def shapes(self) -> Iterator[Shape]:
        """Yield the types of the values, and how many have each. Raises DamagedLake."""
        if not self.key_range.is_bounded:
            yield from self.reader.shapes()
            return
        for columns in self.columns():
            for column in columns:
                yield Shape(column.type, len(column.rows))

    def _in_range(self, column: Column) -> Column:
        batch = ValueBatch.of_column(column.type, column.values)
        rows = np.flatnonzero(self.key_range.mask(batch, KeyColumn.of(batch, self.path), self.path))
        return Column(column.type, column.values.take(pa.array(rows)), column.rows[rows])


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Values that are sent to the executors."""

    data: bytes
    """The values as ZNG."""

    def columns(self) -> Iterator[list[Column]]:
        """Yield the values."""
        yield list(read_columns(self.data))

    def shapes(self) -> Iterator[Shape]:
        """Yield the types of the values, and how many have each."""
        yield from shapes(self.data)


Part: TypeAlias = PoolPart | EncodedPart


def plan_tasks(
    store: ObjectStore, config: PoolConfig, objects: Sequence[DataObject], key_range: KeyRange, bytes_per_task: int
) -> list[list[PoolPart]]:
    """Divide data objects into tasks of about `bytes_per_task` bytes, in the order of the pool.

    The keys of two tasks do not overlap. Data objects that overlap, and together are too large for one task, are an
    exception: they are read part by part.
    """
    tasks: list[list[PoolPart]] = []
    used = 0
    for group in partitions(objects, config):
        parts = [part for each in group for part in _parts(store, config, each, key_range, bytes_per_task)]
        for unit in [parts] if _size(parts) <= bytes_per_task else [[part] for part in parts]:
            if not tasks or used + _size(unit) > bytes_per_task:
                tasks.append([])
                used = 0
            tasks[-1] += unit
            used += _size(unit)
    return tasks


def _size(parts: Sequence[PoolPart]) -> int:
    return sum(part.reader.segments[0].length for part in parts)


def _parts(
    store: ObjectStore, config: PoolConfig, data_object: DataObject, key_range: KeyRange, most_bytes: int
) -> Iterator[PoolPart]:
    """Yield the parts of a data object to read, divided where its seek index allows it."""
    cut = key_range.is_bounded or data_object.size > most_bytes
    segments = all_segments(store, config.id, data_object) if cut else [whole_segment(data_object)]
    run: list[Segment] = []
    inside = False
    for segment in segments:
        if not key_range.overlaps(segment.min, segment.max):
            continue
        # If the first and the last key are in the range, all keys between them are, too.
        segment_inside = not key_range.is_bounded or (
            key_range.holds(segment.min.under()) and key_range.holds(segment.max.under())
        )
        follows = run and run[-1].offset + run[-1].length == segment.offset
        if run and (
            not follows or inside != segment_inside or sum(each.length for each in run) + segment.length > most_bytes
        ):
            yield _part(store, config, data_object, run, KeyRange() if inside else key_range)
            run = []
        run.append(segment)
        inside = segment_inside
    if run:
        yield _part(store, config, data_object, run, KeyRange() if inside else key_range)


def _part(
    store: ObjectStore, config: PoolConfig, data_object: DataObject, run: Sequence[Segment], key_range: KeyRange
) -> PoolPart:
    first, last = run[0], run[-1]
    smallest, largest = (last, first) if config.descending else (first, last)
    length = last.offset + last.length - first.offset
    joined = Segment(smallest.min, largest.max, first.first, sum(each.count for each in run), first.offset, length)
    return PoolPart(ObjectReader(store, config.id, data_object, (joined,)), config.keys[0], key_range)
