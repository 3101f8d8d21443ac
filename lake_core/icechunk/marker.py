"""Markers: the (application id, version) pair by which a repeated commit is recognized.

A snapshot's metadata carries those that still count, so that one object shows whether a write has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core.icechunk.ancestry import ancestry

if TYPE_CHECKING:
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.snapshot import Snapshot

METADATA_KEY = "lake_core.txn"


@dataclass(frozen=True, slots=True)
class Marker:
    """The last version that an application recorded."""

    version: int
    last_updated: int
    """Microseconds since the epoch."""
    snapshot: str
    """Id of the snapshot that recorded it."""


def live_markers(snapshot: Snapshot, now: int, retention: int | None) -> dict[str, Marker]:
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
        for earlier in ancestry(assets, snapshot.snapshot_id):
            if not earlier.is_foreign or METADATA_KEY in earlier.metadata:
                return live_markers(earlier, now, retention)
    return live_markers(snapshot, now, retention)


def marker_metadata(markers: Mapping[str, Marker]) -> dict[str, Any]:
    """Return markers as metadata of a snapshot; no metadata where there are none."""
    values = {
        app_id: {"version": marker.version, "last_updated": marker.last_updated, "snapshot": marker.snapshot}
        for app_id, marker in sorted(markers.items())
    }
    return {METADATA_KEY: values} if values else {}
