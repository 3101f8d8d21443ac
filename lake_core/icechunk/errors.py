"""The errors of Icechunk repositories. All derive from LakeError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import LakeError, ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.icechunk.conflict import Conflict


class IcechunkError(LakeError):
    """The base class of all errors of Icechunk repositories."""


class RepositoryNotFound(IcechunkError):
    """There is no repository at the location."""


class RepositoryAlreadyExists(IcechunkError):
    """A repository, or other objects, exist where one was to be created."""


class UnsupportedSpecVersion(IcechunkError):
    """The repository or one of its files follows a version of the specification that cannot do what was asked.

    Versions 1 and 2 are read and written. Upgrade a repository of version 1, or use icechunk for a later version.
    """


class DamagedObject(IcechunkError):
    """An object of the repository is not valid. `path` is its path in the repository, and `why` says what is wrong."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path} is damaged: {why}. Restore it from a copy, or reset the branch to an undamaged snapshot"
        )
        self.path = path
        self.why = why

    def __reduce__(self) -> tuple[type[DamagedObject], tuple[str, str]]:
        return type(self), (self.path, self.why)


class MissingObject(DamagedObject, ObjectMissing):
    """The repository refers to an object that does not exist."""


class RefNotFound(IcechunkError):
    """The repository has no branch or tag of this name."""


class RefAlreadyExists(IcechunkError):
    """A branch or tag of this name exists, or a tag of this name was deleted: names of tags are never used twice."""


class InvalidRefName(IcechunkError):
    """The name cannot be that of a branch or tag, or the branch must not be deleted."""


class SnapshotNotFound(IcechunkError):
    """The repository has no snapshot with this id, or no snapshot as old as the requested time."""


class InvalidIdentifier(IcechunkError):
    """The text is not an object id in Crockford's Base32."""


class NotInAncestry(IcechunkError):
    """The older of two snapshots is not in the history of the newer one."""


class InvalidConfig(IcechunkError):
    """A value of the repository's configuration, or `config.yaml` itself, is not valid."""


class ConfigConflict(IcechunkError):
    """Another process saved the configuration since it was read."""


class RepositoryReadOnly(IcechunkError):
    """The status of the repository is read-only, so that nothing but the status can be changed."""


class UpdateConflict(IcechunkError):
    """Other processes updated the repository first, each time that this one tried."""


class FeatureDisabled(IcechunkError):
    """A feature flag of the repository turns the operation off."""


class UnknownFeatureFlag(IcechunkError, ValueError):
    """There is no feature flag of this name."""


class InvalidMove(IcechunkError, ValueError):
    """A node cannot be moved to the path."""


class WrongSessionMode(IcechunkError):
    """The session is a writable one, which does not move nodes, or one that rearranges, which does nothing else."""


class InvalidAmend(IcechunkError):
    """The commit cannot be replaced: it is the first one, or the repository is in a lake."""


class ReadOnlySession(IcechunkError, ValueError):
    """The session is read-only, because it was opened as such or was committed."""


class NoChangesToCommit(IcechunkError):
    """The session has no changes."""


class ConflictError(IcechunkError):
    """The branch moved since the session was opened.

    Attributes:
        expected_parent: Id of the snapshot that the session is based on.
        actual_parent: Id of the snapshot at the tip of the branch.
    """

    def __init__(self, message: str, *, expected_parent: str, actual_parent: str) -> None:
        super().__init__(message)
        self.expected_parent = expected_parent
        self.actual_parent = actual_parent

    def __reduce__(self) -> tuple[object, ...]:
        return _conflict_error, (str(self), self.expected_parent, self.actual_parent)


class UnconfirmedCommit(IcechunkError):
    """It is unknown whether a commit of the session was published, so the session accepts no other changes yet."""


class InvalidHierarchy(IcechunkError):
    """A commit would make a snapshot with a node that has no parent group, or with two nodes at one path."""


class RebaseFailedError(IcechunkError):
    """A commit that came first conflicts with the session's changes, and the solver does not resolve it.

    The session can still be used.

    Attributes:
        snapshot: Id of the snapshot that the changes conflict with.
        conflicts: All conflicts with it.
    """

    def __init__(self, snapshot: str, conflicts: Sequence[Conflict], why: str = "") -> None:
        listed = "; ".join(str(conflict) for conflict in conflicts[:5]) + (" …" if len(conflicts) > 5 else "")
        super().__init__(
            f"the changes conflict with the commit {snapshot}: {why or listed}. Rebase with a solver that "
            "resolves the conflicts, or write again in a new session"
        )
        self.snapshot = snapshot
        self.conflicts = list(conflicts)
        self._why = why

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.snapshot, self.conflicts, self._why)


class InvalidTransaction(IcechunkError):
    """A txn is not a pair of an application id and a version."""


class InvalidStoreKey(IcechunkError, ValueError):
    """The key is not one of a Zarr v3 hierarchy: a repository stores only `zarr.json` documents and chunks."""


class InvalidArrayMetadata(IcechunkError, ValueError):
    """A `zarr.json` document cannot be stored in a repository."""


class NodeNotFound(IcechunkError):
    """The session has no array or group at the path."""


class InvalidChunkIndex(IcechunkError, ValueError):
    """A chunk's coordinates lie outside of its array."""


class EmptyChunk(IcechunkError, ValueError):
    """A chunk of no bytes was to be written, which no reader could decode."""


class InvalidVirtualReference(IcechunkError, ValueError):
    """A virtual reference has an invalid location, range or checksum, or no virtual chunk container holds it."""


class VirtualChunkNotAuthorized(IcechunkError):
    """The caller did not authorize access to the container of a virtual chunk."""


class VirtualChunkError(IcechunkError):
    """A virtual chunk cannot be fetched: its object is missing, too short, or changed since the reference was made."""


class UnmergeableFork(IcechunkError):
    """Two forks of one session changed the same node or chunk, or a fork is not one of the session's snapshot."""


def _conflict_error(message: str, expected: str, actual: str) -> ConflictError:
    return ConflictError(message, expected_parent=expected, actual_parent=actual)


class UnstorableValues(IcechunkError):
    """A variable has a value that would not be read back from its array as it is."""


class MismatchedVariable(IcechunkError):
    """A variable does not fit the array that it would be written to: its dimensions, lengths or attributes differ."""
