"""Merges data objects whose keys overlap, in the order of the pool."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TYPE_CHECKING

from lake_core.pool import types
from lake_core.pool.key_column import KeyColumn
from lake_core.pool.object_reader import ObjectReader
from lake_core.pool.order import compare_by_keys, compare_values, pool_key
from lake_core.pool.sorted_batch import SortedBatch, sort_batch
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.pool.value_batch import ValueBatch, batches_of_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.types import Type
    from lake_core.store import ObjectStore


def partitions(objects: Iterable[DataObject], config: PoolConfig) -> list[list[DataObject]]:
    """Return groups of data objects in the order of the pool. Only keys of objects in one group overlap."""
    by_key = cmp_to_key(compare_values)
    groups: list[list[DataObject]] = []
    largest: Value | None = None
    for each in sorted(objects, key=lambda each: (by_key(each.min), by_key(each.max), each.id)):
        if largest is None or compare_values(each.min, largest) > 0:
            groups.append([])
            largest = each.max
        elif compare_values(each.max, largest) > 0:
            largest = each.max
        groups[-1].append(each)
    return groups[::-1] if config.descending else groups


@dataclass(frozen=True, slots=True)
class Source:
    """Sorted values that are merged with others.

    Attributes:
        first: A lower bound of their keys. They are not read before the merge reaches it.
        read: Returns the values.
    """

    first: Value
    read: Callable[[], Iterator[SortedBatch]]


def merge(sources: Iterable[Source], config: PoolConfig) -> Iterator[SortedBatch]:
    """Yield the values of sorted sources in the order of a pool, equal ones in the order of the sources.

    Takes memory for one batch of each source that is open, and for a copy of the values that come next. Values are
    merged in batches until a key does not compare as a column, or a source is not sorted, as some of `zed` 1.6 are.
    From there on, they are merged one by one.
    """
    merging = _Merge(sources, config)
    while (bound := merging.first_to_end()) is not None:
        if merging.is_columnar:
            yield from merging.next_values(bound)
        else:
            yield from merging.one_by_one()
            return


def merge_objects(store: ObjectStore, config: PoolConfig, objects: Iterable[DataObject]) -> Iterator[SortedBatch]:
    """Yield the values of data objects in the order of the pool, in bounded memory; see `merge`. Raises DamagedLake."""
    for group in partitions(objects, config):
        yield from merge([source_of(ObjectReader.whole(store, config.id, each), config) for each in group], config)


def source_of(reader: ObjectReader, config: PoolConfig) -> Source:
    """Return the values of a data object as a source."""
    first = reader.object.max if config.descending else reader.object.min
    return Source(first, lambda: (SortedBatch.of(config, batch) for batch in reader.batches()))


class _Row:
    """A value with the keys that it is sorted by."""

    __slots__ = ("descending", "keys", "value")

    def __init__(self, value: Value, keys: Sequence[Value], descending: bool) -> None:
        self.value = value
        self.keys = keys
        self.descending = descending

    @classmethod
    def of(cls, value: Value, config: PoolConfig) -> _Row:
        return cls(value, [pool_key(value, path) for path in config.keys], config.descending)

    def __lt__(self, other: _Row) -> bool:
        return self._compare(other) < 0

    def __eq__(self, other: object) -> bool:
        # With this, `heapq.merge` yields equal rows in the order of their sources.
        return isinstance(other, _Row) and not self._compare(other)

    __hash__ = None  # type: ignore[assignment]

    def _compare(self, other: _Row) -> int:
        return compare_by_keys(self.value, self.keys, other.value, other.keys, descending=self.descending)


@dataclass(slots=True, eq=False)
class _Head:
    """The next values of a source."""

    position: int
    batch: SortedBatch
    last: _Row
    following: Iterator[SortedBatch]


class _Merge:
    """The state of a merge.

    Attributes:
        is_columnar: Whether all values so far can be merged in batches.
    """

    def __init__(self, sources: Iterable[Source], config: PoolConfig) -> None:
        self.is_columnar = True
        self._config = config
        self._waiting = deque(sorted(enumerate(sources), key=lambda pair: self._position(pair[1].first)))
        self._heads: list[_Head] = []
        self._family: Type = types.NULL

    def first_to_end(self) -> _Head | None:
        """Return the source whose batch ends first, after opening those that begin before it, or None at the end."""
        bound = min(self._heads, key=lambda head: head.last, default=None)
        while self._waiting and (
            bound is None or not self._position(bound.last.keys[0]) < self._position(self._waiting[0][1].first)
        ):
            position, source = self._waiting.popleft()
            head = self._read(position, source.read(), None)
            if head is not None:
                bound = head if bound is None else min(bound, head, key=lambda head: (head.last, head.position))
        return bound

    def next_values(self, bound: _Head) -> Iterator[SortedBatch]:
        """Yield all values up to the last one of the source whose batch ends first."""
        last = len(bound.batch) - 1
        bound_keys = None if bound.batch.keys is None else bound.batch.keys.slice(last, last + 1)
        parts = []
        for head in list(self._heads):
            # Equal values of later sources come after those in the next batch of this one.
            count = head.batch.count_before(bound.last.value, bound_keys, equal=head.position <= bound.position)
            if count:
                parts.append(head.batch.slice(0, count))
                self._skip(head, count)
        if len(parts) == 1:
            yield parts[0]
        else:
            keys = KeyColumn.concat([part.keys for part in parts])
            yield from sort_batch(ValueBatch.concat([part.batch for part in parts]), keys, self._config)

    def one_by_one(self) -> Iterator[SortedBatch]:
        """Yield all values that are left, merged value by value."""
        sources = [(head.position, _values(head.batch, head.following)) for head in self._heads]
        sources += [(position, _values(None, source.read())) for position, source in self._waiting]
        rows = [_rows(values, self._config) for _, values in sorted(sources, key=lambda pair: pair[0])]
        for batch in batches_of_values(row.value for row in heapq.merge(*rows)):
            yield SortedBatch.of(self._config, batch)

    def _position(self, key: Value) -> _Row:
        """Return an object by which a key sorts in the order of the pool."""
        return _Row(NULL_VALUE, [key], self._config.descending)

    def _skip(self, head: _Head, count: int) -> None:
        if count < len(head.batch):
            head.batch = head.batch.slice(count, len(head.batch))
        else:
            self._heads.remove(head)
            self._read(head.position, head.following, head.last)

    def _read(self, position: int, following: Iterator[SortedBatch], previous: _Row | None) -> _Head | None:
        """Read the next batch of a source, which comes after a value."""
        batch = next((batch for batch in following if len(batch)), None)
        if batch is None:
            return None
        last = _Row.of(batch.batch.value(len(batch) - 1), self._config)
        head = _Head(position, batch, last, following)
        self._heads.append(head)
        self._heads.sort(key=lambda head: head.position)
        keys = batch.keys
        if keys is not None and self._family == types.NULL:
            self._family = keys.family
        compares = keys is not None and keys.family in (types.NULL, self._family)
        follows = previous is None or not _Row.of(batch.batch.value(0), self._config) < previous
        if not (compares and follows and batch.is_sorted()):
            self.is_columnar = False
        return head


def _values(first: SortedBatch | None, following: Iterator[SortedBatch]) -> Iterator[Value]:
    if first is not None:
        yield from first.batch.values()
    for batch in following:
        yield from batch.batch.values()


def _rows(values: Iterator[Value], config: PoolConfig) -> Iterator[_Row]:
    return (_Row.of(value, config) for value in values)
