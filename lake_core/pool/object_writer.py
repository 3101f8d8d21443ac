"""Writes data objects with their seek indexes."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from lake_core.pool.config import PoolConfig
from lake_core.pool.data_object import DataObject, data_key, seek_index_key
from lake_core.pool.order import pool_key
from lake_core.pool.seek_index import Segment
from lake_core.pool.value import Value
from lake_core.pool.zng.writer import ZngWriter, encode_values
from lake_core.store import ObjectStore


def encode_object(values: Sequence[Value], config: PoolConfig) -> tuple[bytes, list[Segment]]:
    """Return the bytes of a data object, and the segments that its seek index lists.

    Args:
        values: The values in the order of the pool.
        config: The pool. A segment ends with the value with which its keys take `seek_stride` bytes.
    """
    file = BytesIO()
    writer = ZngWriter(file)
    segments: list[Segment] = []
    path = config.keys[0]
    first = offset = key_bytes = 0
    start: Value | None = None
    for position, value in enumerate(values):
        writer.write(value)
        key = pool_key(value, path)
        start = key if start is None else start
        key_bytes += len(key.body or b"")
        if key_bytes >= config.seek_stride or position == len(values) - 1:
            writer.end_stream()
            smallest, largest = (key, start) if config.descending else (start, key)
            segments.append(Segment(smallest, largest, first, position + 1 - first, offset, writer.position - offset))
            first, offset, key_bytes, start = position + 1, writer.position, 0, None
    return file.getvalue(), segments


def write_object(store: ObjectStore, config: PoolConfig, id: str, values: Sequence[Value]) -> DataObject:
    """Put a data object and its seek index, and return what a commit says of it.

    Args:
        store: The store of the lake.
        config: The pool.
        id: The id of the object.
        values: Its values in the order of the pool; at least one.
    """
    data, segments = encode_object(values, config)
    store.put(seek_index_key(config.id, id), encode_values([segment.to_value() for segment in segments]), unique=True)
    store.put(data_key(config.id, id), data, unique=True)
    smallest, largest = segments[0].min, segments[-1].max
    if config.descending:
        smallest, largest = segments[-1].min, segments[0].max
    return DataObject(id, smallest, largest, len(values), len(data))
