"""Markers: the (application id, version) pair by which a repeated commit is recognized.

A snapshot's metadata carries those that still count, so that one object shows whether a write has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core.icechunk.ancestry import reachable
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT

if TYPE_CHECKING:
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.repo_info import HistoryEntry
    from lake_core.icechunk.snapshot import Snapshot

RESERVED = "lake_core."
"""What the metadata keys begin with that are not the user's."""
METADATA_KEY = f"{RESERVED}txn"
_WRITES_KEY = f"{RESERVED}writes"


@dataclass(frozen=True, slots=True)
class Marker:
    """The last version that an application recorded."""

    version: int
    last_updated: int
    """Microseconds since the epoch."""
    snapshot: str
    """Id of the snapshot that recorded it."""


def version_of(marker: Marker | None) -> int | None:
    """Return the version of a marker. Two branches may have recorded it at different times."""
    return None if marker is None else marker.version


def live_markers(snapshot: HistoryEntry, now: int, retention: int | None) -> dict[str, Marker]:
    """Return the markers of a snapshot that still count, by application id.

    Args:
        snapshot: The snapshot.
        now: Microseconds since the epoch.
        retention: For how many microseconds a marker counts; None for ever.
    """
    recorded = snapshot.metadata.get(METADATA_KEY)
    if not isinstance(recorded, Mapping):
        return {}
    markers = {}
    for app_id, value in recorded.items():
        if (
            isinstance(value, Mapping)
            and isinstance(value.get("version"), int)
            and isinstance(value.get("last_updated"), int)
        ):
            marker = Marker(value["version"], value["last_updated"], str(value.get("snapshot")))
            if retention is None or marker.last_updated > now - retention:
                markers[str(app_id)] = marker
    return markers


def recorded_markers(assets: AssetManager, snapshot: Snapshot, now: int, retention: int | None) -> dict[str, Marker]:
    """Return the markers that count at a snapshot.

    They are those of the newest snapshot in its history that another client has not written. The arguments are those of
    `live_markers`. Raises MissingObject and DamagedObject where that history cannot be read.
    """
    if snapshot.is_foreign and METADATA_KEY not in snapshot.metadata:
        for earlier in reachable(assets, [snapshot.snapshot_id]):
            if not earlier.is_foreign or METADATA_KEY in earlier.metadata:
                return live_markers(earlier, now, retention)
    return live_markers(snapshot, now, retention)


def writes_between(assets: AssetManager, base: Snapshot | None, after: Snapshot) -> int | None:
    """Return how many writes lead from one snapshot to another. None if that is unknown, or the one is no ancestor."""
    total = 0
    for snapshot in reachable(assets, [after.snapshot_id]):
        if snapshot.snapshot_id == (INITIAL_SNAPSHOT if base is None else base.snapshot_id):
            return total
        writes = snapshot.metadata.get(_WRITES_KEY)
        if not isinstance(writes, int) or snapshot.is_foreign:
            return None
        total += writes
    return None


def marker_metadata(markers: Mapping[str, Marker], writes: int | None) -> dict[str, Any]:
    """Return markers, and how many writes became a snapshot, as its metadata; none where there are no markers."""
    values = {
        app_id: {"version": marker.version, "last_updated": marker.last_updated, "snapshot": marker.snapshot}
        for app_id, marker in sorted(markers.items())
    }
    counted = {} if writes is None else {_WRITES_KEY: writes}
    return {METADATA_KEY: values, **counted} if values else {}
