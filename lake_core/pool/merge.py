"""Merges data objects whose keys overlap, in the order of the pool."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cmp_to_key

from lake_core.pool.config import PoolConfig
from lake_core.pool.data_object import DataObject
from lake_core.pool.order import compare_by_keys, compare_values, pool_key
from lake_core.pool.value import Value


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


def merge(sources: Sequence[Iterator[Value]], config: PoolConfig) -> Iterator[Value]:
    """Yield the values of sorted sources in the order of the pool."""
    if len(sources) == 1:
        return sources[0]
    rows = [(_Row(value, config) for value in source) for source in sources]
    return (row.value for row in heapq.merge(*rows))


class _Row:
    """A value with the keys that it is sorted by."""

    __slots__ = ("descending", "keys", "value")

    def __init__(self, value: Value, config: PoolConfig) -> None:
        self.value = value
        self.keys = [pool_key(value, path) for path in config.keys]
        self.descending = config.descending

    def __lt__(self, other: _Row) -> bool:
        return compare_by_keys(self.value, self.keys, other.value, other.keys, descending=self.descending) < 0
