"""What the last garbage collection looked at, so that the next one need not look again.

The mark is derived: it can be deleted at any time, and it decides only what a collection leaves alone, never what it deletes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from lake_core.errors import NotFound, StoreError
from lake_core.icechunk.identifier import OBJECT_ID_LENGTH
from lake_core.icechunk.snapshot import microseconds
from lake_core.store import ObjectStore

MARK_KEY = "last_collection.json"
"""Outside of the folders that the specification names: other readers and writers take no notice of it."""

_SLACK = 60 * 10**6
"""Microseconds by which an object may look older than it is: its time can be that of the beginning of a slow put."""


@dataclass(frozen=True, slots=True)
class CollectionMark:
    """What a collection left: every object older than `before` is reached by the snapshots."""

    before: int
    """Microseconds since the epoch, by the store's clock."""
    snapshots: frozenset[bytes]


def read_mark(store: ObjectStore) -> CollectionMark | None:
    """Return the mark of the last collection, or None if there is none that can be read."""
    try:
        data = store.get(MARK_KEY)
    except NotFound:
        return None
    try:
        document = json.loads(data)
        ids = base64.b64decode(document["snapshots"], validate=True)
        before, seconds = document["before"], document["seconds"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(before, int) or not isinstance(seconds, int | float) or not seconds >= 0 or len(ids) % OBJECT_ID_LENGTH:
        return None
    # Objects that were written after the collection had begun are not accounted for, whatever time it was given.
    begin = microseconds(data.last_modified) - int(min(seconds, 10**9) * 10**6) - _SLACK
    snapshots = frozenset(ids[start : start + OBJECT_ID_LENGTH] for start in range(0, len(ids), OBJECT_ID_LENGTH))
    return CollectionMark(min(before, begin), snapshots)


def write_mark(store: ObjectStore, mark: CollectionMark, seconds: float) -> None:
    """Write the mark of a collection that took so many seconds. A failure costs the next collection time, and nothing else."""
    document = {"before": mark.before, "seconds": seconds, "snapshots": base64.b64encode(b"".join(sorted(mark.snapshots))).decode()}
    try:
        store.put(MARK_KEY, json.dumps(document).encode())
    except StoreError:
        return
