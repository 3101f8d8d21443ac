"""Native chunks: bytes in objects of their own. Specification section: Chunk Files.

Spark's executors read and write chunks by these functions: nothing here imports more than numpy.
"""

from __future__ import annotations

from lake_core.errors import NotFound
from lake_core.icechunk.errors import DamagedObject, MissingObject
from lake_core.icechunk.identifier import encode_id, new_object_id
from lake_core.icechunk.manifest import NativeChunk
from lake_core.store import ObjectStore

CHUNKS = "chunks/"


def read_chunk(store: ObjectStore, chunk: NativeChunk, start: int = 0, end: int | None = None) -> bytes:
    """Return the bytes [start, end) of a chunk. Raises MissingObject; DamagedObject where its object is too short."""
    path = CHUNKS + encode_id(chunk.chunk_id)
    end = chunk.length if end is None else min(end, chunk.length)
    try:
        data = store.get(path, chunk.offset + start, chunk.offset + max(start, end))
    except NotFound:
        raise MissingObject(path, "the repository refers to it, and it is not there") from None
    if len(data) < end - start:
        raise DamagedObject(path, f"it has {data.size} bytes, and a chunk in it reaches to byte {chunk.offset + chunk.length}")
    return data


def write_chunk(store: ObjectStore, data: bytes | memoryview) -> NativeChunk:
    """Write a chunk to an object of its own."""
    chunk_id = new_object_id()
    store.put(CHUNKS + encode_id(chunk_id), data, unique=True)
    return NativeChunk(chunk_id, 0, len(data))
