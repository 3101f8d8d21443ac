"""Writes the cached snapshots of a journal, and deletes old ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed
from lake_core.journal.errors import CorruptSnapshot

if TYPE_CHECKING:
    from lake_core.journal.reader import Reader
    from lake_core.journal.state import State
    from lake_core.store import ObjectMeta

_LOG = logging.getLogger(__name__)

KEPT_SNAPSHOTS = 3
"""How many of the newest snapshots stay: more than one, because the newest may be incomplete."""


def write_snapshot(reader: Reader, state: State) -> ObjectMeta | None:
    """Cache a state, and delete snapshots that are older than the newest few.

    Returns None if it was not written. Raises StoreError.
    """
    key = reader.prefix + reader.naming.snapshot(state.number)
    data = reader.codec.encode_snapshot(state)
    if len(data) > reader.max_snapshot_bytes:
        _LOG.warning(
            "no snapshot is written for entry %d: it would have %d bytes, but at most %d are read",
            state.number,
            len(data),
            reader.max_snapshot_bytes,
        )
        return None
    if reader.naming.fixed_snapshot is not None:
        return _replace_fixed(reader, key, state, data)
    written = reader.store.put(key, data)
    if old := [key for _, key in reader.snapshots()[KEPT_SNAPSHOTS:]]:
        reader.store.delete(old)
    return written


def _replace_fixed(reader: Reader, key: str, state: State, data: bytes) -> ObjectMeta | None:
    """Replace the snapshot, but never with an older one."""
    etag = None
    try:
        body = reader.store.get(key, 0, reader.max_snapshot_bytes)
        etag = body.etag
        if reader.codec.decode_snapshot(body).number >= state.number:
            return None
    except (NotFound, CorruptSnapshot):
        pass
    try:
        return reader.store.put(key, data, if_absent=etag is None, if_match=etag)
    except (AlreadyExists, PreconditionFailed):
        return None
