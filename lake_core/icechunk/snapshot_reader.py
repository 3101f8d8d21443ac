"""Histories of version 1, in which each snapshot names its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lake_core.errors import NotFound
from lake_core.icechunk.errors import DamagedObject, InvalidIdentifier
from lake_core.icechunk.folders import SNAPSHOTS
from lake_core.icechunk.identifier import decode_id, encode_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.icechunk.snapshot import Snapshot
    from lake_core.store import ObjectStore


class SnapshotSource(Protocol):
    """The snapshots of a repository, in their current states."""

    store: ObjectStore

    def read_snapshot(self, snapshot_id: bytes) -> Snapshot:
        """Return a snapshot."""

    def read_snapshots(self, snapshot_ids: Sequence[bytes]) -> list[Snapshot]:
        """Return several snapshots."""


_ALONE = 4
"""How many snapshots are read one by one before others are read ahead: short walks need no listing."""
_MOST_AHEAD = 50


def reachable(assets: SnapshotSource, tips: Sequence[bytes], *, read_ahead: int = _MOST_AHEAD) -> Iterator[Snapshot]:
    """Yield the snapshots in the histories of several tips, each once, in its state at some moment of the walk.

    Args:
        assets: The files of the repository.
        tips: The newest snapshots.
        read_ahead: How many snapshots are in memory at most.

    Raises:
        MissingObject: A snapshot is gone.
        DamagedObject: A snapshot cannot be read, or is its own ancestor.
    """
    reader = _SnapshotReader(assets, read_ahead)
    snapshot_ids: set[bytes] = set()
    for tip in tips:
        current: bytes | None = tip
        walked: set[bytes] = set()
        while current is not None and current not in snapshot_ids:
            walked.add(current)
            snapshot = reader.read(current)
            yield snapshot
            current = snapshot.parent_id
            if current in walked:
                raise DamagedObject(SNAPSHOTS + encode_id(snapshot.snapshot_id), "it is its own ancestor")
        snapshot_ids |= walked


class _SnapshotReader:
    """The snapshots of a history, from each one to its parent.

    The parent of a snapshot is known when the snapshot has been read, so a long history would take as many requests in
    a row. A listing shows which snapshots were written at about the same time. These are read concurrently, as long as
    most of them turn out to be needed.
    """

    def __init__(self, assets: SnapshotSource, most: int) -> None:
        self._assets = assets
        self._most = most
        self._single = 0
        self._order: list[bytes] = []
        """All snapshots, the last written first."""
        self._positions: dict[bytes, int] = {}
        self._ahead: dict[bytes, Snapshot] = {}
        self._count = 8

    def read(self, snapshot_id: bytes) -> Snapshot:
        snapshot = self._ahead.pop(snapshot_id, None)
        if snapshot is not None:
            return snapshot
        if self._single < _ALONE:
            self._single += 1
            return self._assets.read_snapshot(snapshot_id)
        if not self._order:
            self._list()
        self._count = (
            min(self._most, 2 * self._count) if len(self._ahead) <= self._count // 2 else max(1, self._count // 4)
        )
        position = self._positions.get(snapshot_id)
        ids = [snapshot_id] if position is None else self._order[position : position + self._count]
        try:
            snapshots = self._assets.read_snapshots(ids)
        except (DamagedObject, NotFound):
            # A snapshot that was only read ahead must not fail the walk.
            return self._assets.read_snapshot(snapshot_id)
        self._ahead = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
        return self._ahead.pop(snapshot_id)

    def _list(self) -> None:
        times = []
        for meta in self._assets.store.list(SNAPSHOTS):
            try:
                times.append((meta.last_modified, decode_id(meta.key.removeprefix(SNAPSHOTS))))
            except InvalidIdentifier:
                continue
        self._order = [snapshot_id for _, snapshot_id in sorted(times, reverse=True)]
        self._positions = {snapshot_id: position for position, snapshot_id in enumerate(self._order)}
