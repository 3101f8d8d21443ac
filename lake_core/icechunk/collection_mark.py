"""The mark of the last garbage collection, by which the next one skips objects that were checked before.

The mark is derived: it can be deleted at any time. It only makes a collection skip objects, never delete them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.errors import NotFound, StoreError
from lake_core.icechunk.identifier import OBJECT_ID_LENGTH
from lake_core.icechunk.snapshot import microseconds

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

MARK_KEY = "last_collection.json"
"""The key is outside of the folders that the specification names, so other readers and writers ignore it."""

_SLACK = 60 * 10**6
"""By how many microseconds an object may look older than it is: its time can be the start of a slow put."""


@dataclass(frozen=True, slots=True)
class CollectionMark:
    """The state after a collection: the snapshots reach every object older than `before`."""

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
    if (
        not isinstance(before, int)
        or not isinstance(seconds, int | float)
        or not seconds >= 0
        or len(ids) % OBJECT_ID_LENGTH
    ):
        return None
    # The collection did not check objects that were written after it began, even if its own time limit was later.
    begin = microseconds(data.last_modified) - int(min(seconds, 10**9) * 10**6) - _SLACK
    snapshots = frozenset(ids[start : start + OBJECT_ID_LENGTH] for start in range(0, len(ids), OBJECT_ID_LENGTH))
    return CollectionMark(min(before, begin), snapshots)


def write_mark(store: ObjectStore, mark: CollectionMark, seconds: float) -> None:
    """Write the mark of a collection that took so many seconds. A failure only makes the next collection slower."""
    document = {
        "before": mark.before,
        "seconds": seconds,
        "snapshots": base64.b64encode(b"".join(sorted(mark.snapshots))).decode(),
    }
    try:
        store.put(MARK_KEY, json.dumps(document).encode())
    except StoreError:
        return
