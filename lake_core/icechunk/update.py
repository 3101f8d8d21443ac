"""The operations log of a repository of version 2: one entry for each update of its object `repo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lake_core.icechunk.snapshot import timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from lake_core.icechunk.repo_status import RepoStatus


@dataclass(frozen=True, slots=True)
class UpdateType:
    """What an update did: an instance of one of the classes in this one."""

    number: ClassVar[int]
    """The member of the union `UpdateType` of the specification."""


@dataclass(frozen=True, slots=True)
class RepoInitialized(UpdateType):
    """The repository was created."""

    number = 1


@dataclass(frozen=True, slots=True)
class RepoMigrated(UpdateType):
    """The repository was upgraded."""

    number = 2
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class ConfigChanged(UpdateType):
    """The configuration was saved."""

    number = 3


@dataclass(frozen=True, slots=True)
class MetadataChanged(UpdateType):
    """The metadata of the repository was set."""

    number = 4


@dataclass(frozen=True, slots=True)
class TagCreated(UpdateType):
    """A tag was created."""

    number = 5
    name: str


@dataclass(frozen=True, slots=True)
class TagDeleted(UpdateType):
    """A tag was deleted."""

    number = 6
    name: str
    previous_snap_id: str


@dataclass(frozen=True, slots=True)
class BranchCreated(UpdateType):
    """A branch was created."""

    number = 7
    name: str


@dataclass(frozen=True, slots=True)
class BranchDeleted(UpdateType):
    """A branch was deleted."""

    number = 8
    name: str
    previous_snap_id: str


@dataclass(frozen=True, slots=True)
class BranchReset(UpdateType):
    """A branch was moved to any snapshot."""

    number = 9
    name: str
    previous_snap_id: str


@dataclass(frozen=True, slots=True)
class NewCommit(UpdateType):
    """A session was committed."""

    number = 10
    branch: str
    new_snap_id: str


@dataclass(frozen=True, slots=True)
class CommitAmended(UpdateType):
    """The newest commit of a branch was replaced."""

    number = 11
    branch: str
    previous_snap_id: str
    new_snap_id: str


@dataclass(frozen=True, slots=True)
class NewDetachedSnapshot(UpdateType):
    """A session was flushed to a snapshot that no branch has."""

    number = 12
    new_snap_id: str


@dataclass(frozen=True, slots=True)
class GCRan(UpdateType):
    """Garbage was collected."""

    number = 13


@dataclass(frozen=True, slots=True)
class ExpirationRan(UpdateType):
    """Old snapshots expired."""

    number = 14


@dataclass(frozen=True, slots=True)
class FeatureFlagChanged(UpdateType):
    """A feature flag was set, or reset to its default."""

    number = 15
    id: int
    new_value: bool | None


@dataclass(frozen=True, slots=True)
class RepoStatusChanged(UpdateType):
    """The availability of the repository was set."""

    number = 16
    status: RepoStatus


UPDATE_TYPES: tuple[type[UpdateType], ...] = (
    *(RepoInitialized, RepoMigrated, ConfigChanged, MetadataChanged, TagCreated, TagDeleted, BranchCreated),
    *(BranchDeleted, BranchReset, NewCommit, CommitAmended, NewDetachedSnapshot, GCRan, ExpirationRan),
    *(FeatureFlagChanged, RepoStatusChanged),
)
"""In the order of their numbers, from 1."""


@dataclass(frozen=True, slots=True)
class RecordedUpdate:
    """An entry of the operations log, as the object `repo` holds it."""

    kind: UpdateType
    time: int
    """Microseconds since the epoch. Later entries have later times."""
    backup: str | None = None
    """The name of the copy of `repo` after this update, which the next update makes of it; None for the newest."""


@dataclass(frozen=True, slots=True)
class Update:
    """An entry of the operations log."""

    kind: UpdateType
    updated_at: datetime
    backup_path: str | None
    """The name of the copy of the repository's state after this update; None if there is none (any longer)."""


def update_of(recorded: RecordedUpdate, backup: str | None) -> Update:
    """Return a recorded update as users see it. `backup`: the name of its backup."""
    return Update(recorded.kind, timestamp(recorded.time), backup)


for _kind in UPDATE_TYPES:  # as users of icechunk name them: UpdateType.NewCommit
    setattr(UpdateType, _kind.__name__, _kind)
