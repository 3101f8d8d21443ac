"""The bytes of chunks: native ones in objects of their own, inline ones in references.

Specification section: Chunk Files.

Spark's executors read and write chunks by these functions, so this module imports no other package than numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.icechunk.errors import DamagedObject, MissingObject
from lake_core.icechunk.folders import CHUNKS
from lake_core.icechunk.identifier import encode_id, new_object_id
from lake_core.icechunk.manifest import ChunkReference, InlineChunk, NativeChunk

if TYPE_CHECKING:
    from lake_core.icechunk.virtual import VirtualChunks
    from lake_core.store import ObjectStore


def read_chunk(
    store: ObjectStore, virtual_chunks: VirtualChunks, chunk: ChunkReference, start: int = 0, end: int | None = None
) -> bytes:
    """Return the bytes [start, end) of a chunk. A range past the end is cut.

    Args:
        store: The store of the repository.
        virtual_chunks: Reads chunks outside of the repository.
        chunk: Where the chunk is.
        start: The first byte.
        end: The byte after the last; by default, all are read.

    Raises:
        MissingObject: The object of a native chunk is gone.
        DamagedObject: The object of a native chunk is too short.
        VirtualChunkError, VirtualChunkNotAuthorized, InvalidVirtualReference: A virtual chunk cannot be read.
    """
    if isinstance(chunk, InlineChunk):
        return chunk.data[start:end]
    if isinstance(chunk, NativeChunk):
        return _read_native(store, chunk, start, end)
    return virtual_chunks.fetch(chunk, start, end)


def write_chunk(store: ObjectStore, data: bytes | memoryview, inline_threshold: int) -> InlineChunk | NativeChunk:
    """Write a chunk to an object of its own, unless it has at most `inline_threshold` bytes. Return its reference."""
    if len(data) <= inline_threshold:
        return InlineChunk(bytes(data))
    chunk_id = new_object_id()
    store.put(CHUNKS + encode_id(chunk_id), data, unique=True)
    return NativeChunk(chunk_id, 0, len(data))


def _read_native(store: ObjectStore, chunk: NativeChunk, start: int, end: int | None) -> bytes:
    path = CHUNKS + encode_id(chunk.chunk_id)
    end = chunk.length if end is None else min(end, chunk.length)
    try:
        data = store.get(path, chunk.offset + start, chunk.offset + max(start, end))
    except NotFound:
        raise MissingObject(path, "the repository refers to it, but it does not exist") from None
    if len(data) < end - start:
        raise DamagedObject(
            path, f"it has {data.size} bytes, but a chunk in it ends at byte {chunk.offset + chunk.length}"
        )
    return data
