"""The mutable objects of a repository: one object for each branch and tag in version 1, a single one in version 2."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

from lake_core.icechunk.errors import UnsupportedSpecVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.refs import Ref, RefKind
    from lake_core.icechunk.repo_info import HistoryEntry, RepoInfo
    from lake_core.icechunk.snapshot import Snapshot
    from lake_core.icechunk.snapshot_reader import SnapshotSource
    from lake_core.icechunk.update import UpdateType
    from lake_core.store import ObjectStore


Change: TypeAlias = "Callable[[RepoInfo], tuple[RepoInfo, UpdateType] | None]"


class RepositoryLayout(ABC):
    """The branches, tags, history and configuration of a repository, as one version of the specification stores them.

    Each method reads the current state.
    """

    spec_version: int

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    # Branches and tags

    @abstractmethod
    def list_names(self, kind: RefKind) -> set[str]:
        """Return the names of all branches or tags. Deleted tags are left out."""

    @abstractmethod
    def list_refs(self) -> list[Ref]:
        """Return all tags and branches, tags first, each kind by name. Raises DamagedObject."""

    @abstractmethod
    def lookup(self, kind: RefKind, name: str) -> Ref:
        """Return a branch or tag. Raises RefNotFound, DamagedObject."""

    @abstractmethod
    def create_ref(self, kind: RefKind, name: str, snapshot_id: bytes) -> None:
        """Create a branch or tag. Raises InvalidRefName, RefAlreadyExists."""

    @abstractmethod
    def move_branch(self, branch: Ref, snapshot_id: bytes) -> bool:
        """Move a branch to another snapshot. Return False if it has moved since `branch` was looked up."""

    @abstractmethod
    def delete_branch(self, name: str) -> None:
        """Delete a branch. Raises RefNotFound; InvalidRefName for the main branch."""

    @abstractmethod
    def delete_tag(self, name: str) -> None:
        """Delete a tag, whose name is then never used again. Raises RefNotFound."""

    # Snapshots

    @abstractmethod
    def has_snapshot(self, snapshot_id: bytes) -> bool:
        """Return whether the repository has a snapshot."""

    @abstractmethod
    def publish(self, branch: Ref, snapshot: Snapshot, *, amends: bool = False, rearranges: bool = False) -> bool:
        """Move a branch to a new snapshot whose parent is its tip. Return False if it has moved in the meantime.

        Args:
            branch: The branch, with the tip that it must have.
            snapshot: The new snapshot.
            amends: Whether it takes the place of the tip: its parent is that of the tip.
            rearranges: Whether it only moves nodes.
        """

    @abstractmethod
    def publish_detached(self, snapshot: Snapshot) -> None:
        """Make a new snapshot one of the repository, without a branch that has it."""

    @abstractmethod
    def ancestry(self, assets: SnapshotSource, snapshot_id: bytes) -> Iterator[HistoryEntry]:
        """Yield the history of a snapshot, newest first. Raises MissingObject, DamagedObject, SnapshotNotFound."""

    @abstractmethod
    def reachable(self, assets: SnapshotSource, tips: Sequence[bytes], read_ahead: int) -> Iterator[Snapshot]:
        """Yield the snapshots in the histories of several tips, each once, and at most `read_ahead` read at a time."""

    # Configuration

    @abstractmethod
    def read_config(self) -> tuple[RepositoryConfig | None, str | None]:
        """Return the configuration, None for the default one, and the tag of its state. Raises DamagedObject."""

    @abstractmethod
    def save_config(self, config: RepositoryConfig, etag: str | None) -> str:
        """Store a configuration in place of that with a tag. Return its tag. Raises ConfigConflict, InvalidConfig."""

    # What only version 2 has

    def info(self) -> RepoInfo:
        """Return the current state of a repository of version 2. Raises UnsupportedSpecVersion for version 1."""
        raise UnsupportedSpecVersion(
            f"the repository at {self.store.url()} follows version 1 of the Icechunk specification, which does not "
            "have this: upgrade it to version 2 (lake_core.icechunk.upgrade_icechunk_repository)"
        )

    def update(self, change: Change, *, when_read_only: bool = False) -> RepoInfo | None:
        """Replace the state of a repository of version 2 by what a function makes of it.

        The function is called again if another process was first.

        Args:
            change: Returns the new state, and what was done; None for no change.
            when_read_only: Whether the repository is updated though it is read-only.

        Returns:
            The new state; None if the function returned None.

        Raises:
            UnsupportedSpecVersion: The repository is of version 1.
            RepositoryReadOnly: The repository is read-only.
            UpdateConflict: Other processes were first each time.
            StoreUnavailable: The store did not answer, so it is unknown whether the state was replaced.
        """
        raise AssertionError(self.info())

    def check_writable(self) -> None:  # noqa: B027 - version 1 has no status
        """Raise RepositoryReadOnly if the status of the repository is read-only."""
