"""Markers: the (application id, version) pair by which a repeated commit is recognized.

A snapshot's metadata carries those that still count, so that one object tells whether a write has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lake_core.icechunk.ancestry import ancestry
from lake_core.icechunk.asset_manager import AssetManager
from lake_core.icechunk.errors import InvalidTransaction
from lake_core.icechunk.snapshot import Snapshot

Txn: TypeAlias = tuple[str, int]
"""(application id, version): a commit that finds this version or a later one recorded does nothing."""

METADATA_KEY = "lake_core.txn"


@dataclass(frozen=True, slots=True)
class Marker:
    """The last version that an application recorded."""

    version: int
    last_updated: int
    """Microseconds since the epoch."""
    snapshot: str
    """Id of the snapshot that recorded it."""


def check_txn(txn: Txn | None) -> None:
    """Raise InvalidTransaction unless `txn` is None or a pair of an application id and a version."""
    if txn is None:
        return
    if not isinstance(txn, tuple) or len(txn) != 2:
        raise InvalidTransaction(f"txn is an (application id, version) pair, not {txn!r}")
    app_id, version = txn
    if not isinstance(app_id, str) or not app_id:
        raise InvalidTransaction(f"the application id of a txn is non-empty text, not {app_id!r}")
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < 2**63:
        raise InvalidTransaction(f"the version of a txn is a whole number from 0 up, not {version!r}")


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
        if isinstance(value, Mapping) and isinstance(value.get("version"), int) and isinstance(value.get("last_updated"), int):
            marker = Marker(value["version"], value["last_updated"], str(value.get("snapshot")))
            if retention is None or marker.last_updated > now - retention:
                markers[str(app_id)] = marker
    return markers


def recorded_markers(assets: AssetManager, snapshot: Snapshot, now: int, retention: int | None) -> dict[str, Marker]:
    """Return the markers that count at a snapshot: those of the newest in its history that no other client has written.

    The arguments are those of `live_markers`. Raises MissingObject and DamagedObject where that history cannot be read.
    """
    if snapshot.is_foreign and METADATA_KEY not in snapshot.metadata:
        for earlier in ancestry(assets, snapshot.snapshot_id):
            if not earlier.is_foreign or METADATA_KEY in earlier.metadata:
                return live_markers(earlier, now, retention)
    return live_markers(snapshot, now, retention)


def marker_metadata(markers: Mapping[str, Marker]) -> dict[str, Any]:
    """Return what a snapshot's metadata holds of markers; nothing where there are none."""
    values = {
        app_id: {"version": marker.version, "last_updated": marker.last_updated, "snapshot": marker.snapshot}
        for app_id, marker in sorted(markers.items())
    }
    return {METADATA_KEY: values} if values else {}
