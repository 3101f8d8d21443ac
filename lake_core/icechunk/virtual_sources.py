"""Looks at the objects outside of a repository that virtual chunks refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lake_core import runtime
from lake_core.icechunk.errors import VirtualChunkError
from lake_core.icechunk.location import without_secrets
from lake_core.icechunk.manifest import ReferenceKind, VirtualChunk
from lake_core.icechunk.snapshot import ArrayNode

if TYPE_CHECKING:
    from lake_core.icechunk.manifest import ChunkReferences
    from lake_core.icechunk.session import Session

_AT_ONCE = 16
"""Requests, which each read one byte."""


def unreadable_sources(session: Session) -> dict[str, str]:
    """Return the objects that virtual chunks cannot be read from, by URL, and why: missing, changed or too short.

    Of each object, the last byte is read of the chunk that ends last.

    Raises:
        VirtualChunkNotAuthorized: The caller did not authorize a container.
        StoreUnavailable, AccessDenied: A bucket did not answer, or refused.
    """
    last: dict[tuple[str, str | None, int], VirtualChunk] = {}
    for path in list(session.node_paths()):
        node = session.node(path)
        for chunk in _last_chunks(session.references(node)) if isinstance(node, ArrayNode) else ():
            key = chunk.location, chunk.etag, chunk.last_modified
            if key not in last or chunk.offset + chunk.length > last[key].offset + last[key].length:
                last[key] = chunk

    def reason(chunk: VirtualChunk) -> tuple[str, str] | None:
        try:
            session.fetch(chunk, chunk.length - 1)
        except VirtualChunkError as error:
            return without_secrets(session.virtual_chunks.absolute(chunk.location)), str(error)
        return None

    with runtime.thread_pool(_AT_ONCE) as pool:
        return dict(sorted(told for told in pool.map(reason, last.values()) if told is not None))


def _last_chunks(references: ChunkReferences) -> list[VirtualChunk]:
    """Return the virtual chunk that ends last, of each object and checksum."""
    virtual = np.flatnonzero(references.kind == ReferenceKind.VIRTUAL)
    by_end = virtual[np.argsort(references.offset[virtual] + references.length[virtual], kind="stable")[::-1]]
    objects = np.stack(
        [
            column[by_end].astype(np.int64)
            for column in (
                references.data_start,
                references.data_length,
                references.etag_start,
                references.etag_length,
                references.last_modified,
            )
        ]
    )
    _, first = np.unique(objects, axis=1, return_index=True)
    chunks = (references[number] for number in by_end[first].tolist())
    return [chunk for chunk in chunks if isinstance(chunk, VirtualChunk)]
