"""The state of a repository of version 2 besides its snapshots: branches, tags, history, configuration and status."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from lake_core.icechunk.errors import DamagedObject, SnapshotNotFound
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.snapshot import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from lake_core.icechunk.repo_status import RepoStatus
    from lake_core.icechunk.snapshot import Snapshot
    from lake_core.icechunk.update import RecordedUpdate

REPO_KEY = "repo"
"""The key of the object that holds this state."""


@dataclass(frozen=True, slots=True)
class ListedSnapshot:
    """A snapshot in the list of a repository of version 2, which alone knows its parent."""

    snapshot_id: bytes
    parent_id: bytes | None
    flushed_at: int
    """Microseconds since the epoch."""
    message: str
    metadata: Mapping[str, Any]
    pruned_logs: tuple[bytes, ...] = ()
    """The transaction logs of expired snapshots between the parent and this one, oldest first."""

    @property
    def written_at(self) -> datetime:
        """Return when it was written."""
        return timestamp(self.flushed_at)


HistoryEntry: TypeAlias = "Snapshot | ListedSnapshot"
"""A snapshot in a history: version 1 knows it by the snapshot itself, version 2 by the list."""


@dataclass(frozen=True, slots=True)
class RepoInfo:
    """One state of the object `repo`."""

    branches: Mapping[str, bytes]
    """The snapshot of each branch."""
    tags: Mapping[str, bytes]
    deleted_tags: frozenset[str]
    snapshots: Mapping[bytes, ListedSnapshot]
    """By id. Not all are reached by branches or tags."""
    status: RepoStatus
    updates: Sequence[RecordedUpdate]
    """The operations log, newest first, as far as this object holds it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    before_updates: str | None = None
    """The name of the backup in which the operations log goes on."""
    config: bytes | None = None
    """A FlexBuffer; None for the default configuration."""
    enabled_flags: tuple[int, ...] | None = None
    disabled_flags: tuple[int, ...] | None = None
    extra: bytes | None = None
    """What a later version stores. It is written back."""

    def snapshot(self, snapshot_id: bytes) -> ListedSnapshot:
        """Return the entry of a snapshot. Raises SnapshotNotFound."""
        entry = self.snapshots.get(snapshot_id)
        if entry is None:
            raise SnapshotNotFound(
                f"the repository has no snapshot {encode_id(snapshot_id)}: call ancestry() for those of a branch"
            )
        return entry

    def ancestry(self, snapshot_id: bytes) -> Iterator[ListedSnapshot]:
        """Yield the history of a snapshot, newest first. Raises SnapshotNotFound; DamagedObject for a loop."""
        walked: set[bytes] = set()
        current: bytes | None = snapshot_id
        while current is not None:
            if current in walked:
                raise DamagedObject(REPO_KEY, f"the snapshot {encode_id(current)} is its own ancestor")
            walked.add(current)
            entry = self.snapshot(current)
            yield entry
            current = entry.parent_id

    def reachable(self, tips: Sequence[bytes]) -> Iterator[ListedSnapshot]:
        """Yield the snapshots in the histories of several tips, each once."""
        ids: set[bytes] = set()
        for tip in tips:
            walked: list[bytes] = []
            for entry in self.ancestry(tip):
                if entry.snapshot_id in ids:
                    break
                walked.append(entry.snapshot_id)
                yield entry
            ids.update(walked)

    def with_snapshot(self, entry: ListedSnapshot) -> RepoInfo:
        """Return the state with another snapshot."""
        return replace(self, snapshots={**self.snapshots, entry.snapshot_id: entry})
