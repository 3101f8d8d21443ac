"""The history of a snapshot: itself, its parent, and so on up to the snapshot that the repository began with."""

from __future__ import annotations

from collections.abc import Iterator

from lake_core.icechunk.asset_manager import SNAPSHOTS, AssetManager
from lake_core.icechunk.errors import DamagedObject, NotInAncestry
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.snapshot import Snapshot


def ancestry(assets: AssetManager, snapshot_id: bytes) -> Iterator[Snapshot]:
    """Yield the snapshots of a history, newest first, each as it stands now.

    Raises:
        MissingObject: A snapshot is gone.
        DamagedObject: A snapshot cannot be read, or is its own ancestor.
    """
    seen: set[bytes] = set()
    current: bytes | None = snapshot_id
    while current is not None:
        if current in seen:
            raise DamagedObject(SNAPSHOTS + encode_id(current), "it is its own ancestor")
        seen.add(current)
        snapshot = assets.read_snapshot(current)
        yield snapshot
        current = snapshot.parent_id


def snapshots_between(assets: AssetManager, older: bytes, newer: bytes) -> list[bytes]:
    """Return the ids of the snapshots that follow one snapshot up to another, oldest first.

    Raises:
        NotInAncestry: The one is not in the history of the other.
        MissingObject, DamagedObject: A snapshot cannot be read.
    """
    between: list[bytes] = []
    for snapshot in ancestry(assets, newer):
        if snapshot.snapshot_id == older:
            return between[::-1]
        between.append(snapshot.snapshot_id)
    raise NotInAncestry(f"the snapshot {encode_id(older)} is not in the history of {encode_id(newer)}: name the older one first")
