"""Data objects made value by value: what the bytes of those that are made in batches are compared with."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cmp_to_key
from io import BytesIO

from lake_core.pool.config import PoolConfig
from lake_core.pool.order import compare_in_pool, pool_key
from lake_core.pool.seek_index import Segment
from lake_core.pool.value import Value
from lake_core.pool.zng.writer import ZngWriter


def sort_values(values: Iterable[Value], paths: Sequence[Sequence[str]], *, descending: bool = False) -> list[Value]:
    """Return values in the order of a pool."""
    return sorted(values, key=cmp_to_key(lambda one, other: compare_in_pool(one, other, paths, descending=descending)))


def merge_values(sources: Sequence[Iterable[Value]], config: PoolConfig) -> Iterator[Value]:
    """Yield the values of sorted sources in the order of a pool."""
    key = cmp_to_key(lambda one, other: compare_in_pool(one, other, config.keys, descending=config.descending))
    return heapq.merge(*sources, key=key)


def encode_object(values: Sequence[Value], config: PoolConfig) -> tuple[bytes, list[Segment]]:
    """Return the bytes of a data object of sorted values, and the segments that its seek index lists."""
    file = BytesIO()
    writer = ZngWriter(file)
    segments: list[Segment] = []
    first = offset = key_bytes = 0
    start: Value | None = None
    for position, value in enumerate(values):
        writer.write(value)
        key = pool_key(value, config.keys[0])
        start = key if start is None else start
        key_bytes += len(key.body or b"")
        if key_bytes >= config.seek_stride or position == len(values) - 1:
            writer.end_stream()
            smallest, largest = (key, start) if config.descending else (start, key)
            segments.append(Segment(smallest, largest, first, position + 1 - first, offset, writer.position - offset))
            first, offset, key_bytes, start = position + 1, writer.position, 0, None
    return file.getvalue(), segments
