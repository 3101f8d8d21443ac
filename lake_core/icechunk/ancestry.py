"""The history of a snapshot: itself, its parent, and so on up to the snapshot that the repository began with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.icechunk.errors import NotInAncestry
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.repo_info import ListedSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.repo_info import HistoryEntry
    from lake_core.icechunk.snapshot import Snapshot

_MOST_AHEAD = 50


def ancestry(assets: AssetManager, snapshot_id: bytes) -> Iterator[HistoryEntry]:
    """Yield what the history says of a snapshot and its ancestors, newest first. Version 2 reads no snapshot for it.

    Raises:
        MissingObject, SnapshotNotFound: A snapshot is gone.
        DamagedObject: A snapshot, or the list of them, cannot be read, or a snapshot is its own ancestor.
    """
    return assets.layout.ancestry(assets, snapshot_id)


def reachable(assets: AssetManager, tips: Sequence[bytes], *, read_ahead: int = _MOST_AHEAD) -> Iterator[Snapshot]:
    """Yield the snapshots in the histories of several tips, each once.

    Args:
        assets: The files of the repository.
        tips: The newest snapshots.
        read_ahead: How many snapshots are in memory at most.

    Raises the errors of `ancestry`.
    """
    return assets.layout.reachable(assets, tips, read_ahead)


def parent_of(assets: AssetManager, snapshot_id: bytes) -> bytes | None:
    """Return the parent of a snapshot, or None for the first one of the repository. Raises the errors of `ancestry`."""
    return next(ancestry(assets, snapshot_id)).parent_id


def snapshots_between(assets: AssetManager, older: bytes, newer: bytes) -> dict[bytes, tuple[bytes, ...]]:
    """Return the snapshots after one snapshot up to another, oldest first, and the transaction logs that lead to each.

    These are its own, and before it those of expired snapshots.

    Raises:
        NotInAncestry: The earlier snapshot is not in the history of the later one.
        MissingObject, SnapshotNotFound, DamagedObject: A snapshot cannot be read.
    """
    between: list[tuple[bytes, tuple[bytes, ...]]] = []
    for snapshot in ancestry(assets, newer):
        if snapshot.snapshot_id == older:
            return dict(between[::-1])
        pruned = snapshot.pruned_logs if isinstance(snapshot, ListedSnapshot) else ()
        between.append((snapshot.snapshot_id, (*pruned, snapshot.snapshot_id)))
    raise NotInAncestry(
        f"the snapshot {encode_id(older)} is not in the history of {encode_id(newer)}: pass the older snapshot first"
    )
