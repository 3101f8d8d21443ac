"""The mutable object of version 2: `repo`, which is replaced as a whole by compare-and-swap.

Specification section: Repo Info File.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.clock import AwareClock, system_clock
from lake_core.errors import NotFound, PreconditionFailed, StoreError, StoreUnavailable
from lake_core.icechunk import ops_log
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.config_file import decode_config_v2, encode_config_v2
from lake_core.icechunk.errors import (
    ConfigConflict,
    RefAlreadyExists,
    RefNotFound,
    RepositoryNotFound,
    RepositoryReadOnly,
    UpdateConflict,
)
from lake_core.icechunk.feature_flags import CREATE_TAG, DELETE_TAG, MOVE_NODE, check_enabled
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.refs import MAIN, Ref, RefKind, check_new_name, no_main_deletion, no_ref
from lake_core.icechunk.repo_info import REPO_KEY, HistoryEntry, ListedSnapshot, RepoInfo
from lake_core.icechunk.repo_info_file import decode_repo_info, encode_repo_info
from lake_core.icechunk.repo_status import RepoAvailability
from lake_core.icechunk.repository_layout import Change, RepositoryLayout
from lake_core.icechunk.snapshot import Snapshot, microseconds
from lake_core.icechunk.update import (
    BranchCreated,
    BranchDeleted,
    BranchReset,
    CommitAmended,
    ConfigChanged,
    NewCommit,
    NewDetachedSnapshot,
    TagCreated,
    TagDeleted,
    UpdateType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.icechunk.snapshot_reader import SnapshotSource
    from lake_core.store import ObjectBytes, ObjectStore

_TRIES = 1_000
"""How many times an update is tried while other processes update the repository."""
_LONGEST_WAIT = 0.2
"""Seconds between two tries, at most."""


class LayoutV2(RepositoryLayout):
    """The branches, tags, history and configuration of a repository of version 2."""

    spec_version = 2

    def __init__(self, store: ObjectStore, *, compression_level: int, clock: AwareClock = system_clock) -> None:
        super().__init__(store)
        self._compression_level = compression_level
        self._clock = clock
        self._decoded: tuple[bytes, RepoInfo] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_decoded": None}

    def info(self) -> RepoInfo:
        """Return the current state. Bytes that are those of the last look are not decoded again."""
        data = self._read()
        if self._decoded is None or self._decoded[0] != data:
            self._decoded = data, decode_repo_info(data)
        return self._decoded[1]

    def _read(self) -> ObjectBytes:
        try:
            return self.store.get(REPO_KEY)
        except NotFound:
            raise RepositoryNotFound(f"the repository at {self.store.url()} has lost its object {REPO_KEY!r}") from None

    def update(self, change: Change, *, when_read_only: bool = False) -> RepoInfo | None:
        """Replace the state."""
        for attempt in range(_TRIES):
            data = self._read()
            before = decode_repo_info(data)
            if not when_read_only:
                self._check_writable(before)
            changed = change(before)
            if changed is None:
                return None
            after = self._replace(data, before, *changed)
            if after is not None:
                return after
            runtime.sleep(runtime.uniform(0, min(_LONGEST_WAIT, 0.002 * 2 ** min(attempt, 10))))
        raise UpdateConflict(
            f"other processes have updated the repository {_TRIES} times before this one could: try again"
        )

    def _replace(self, data: ObjectBytes, before: RepoInfo, state: RepoInfo, kind: UpdateType) -> RepoInfo | None:
        """Replace the state that was read. Return None if another process has replaced it."""
        now = microseconds(self._clock())
        # A state of a lake needs no backup, as the lake keeps those before it.
        backup = None if self.store.versioned else ops_log.backup_name(now)
        entries = ops_log.extended(before, kind, now, backup, self._updates_per_object(state))
        after = replace(state, updates=entries.updates, before_updates=entries.before_updates)
        encoded = encode_repo_info(after, self._compression_level)
        if backup is not None:
            self.store.put(ops_log.OVERWRITTEN + backup, bytes(data), unique=True)
        try:
            self.store.put(REPO_KEY, encoded, if_match=data.etag)
        except (PreconditionFailed, NotFound):
            self._discard([] if backup is None else [backup])
            return None
        except StoreUnavailable:
            current = self._read()
            # Others may have updated `repo` so often that the entry is in a backup now.
            log = ops_log.recorded_updates(decode_repo_info(current), self.store.data_root)
            if not ops_log.holds(log, entries.updates[0], backup):
                if current.etag == data.etag:
                    raise
                self._discard([] if backup is None else [backup])
                return None
        self._discard(entries.unnamed_backups)
        return after

    def _discard(self, backups: Sequence[str]) -> None:
        """Delete backups that nothing names. One that stays is deleted by the next garbage collection."""
        if not backups:
            return
        try:
            self.store.delete([ops_log.OVERWRITTEN + backup for backup in backups])
        except StoreError:
            return

    def _updates_per_object(self, info: RepoInfo) -> int:
        return self._config(info).updates_per_object

    def _config(self, info: RepoInfo) -> RepositoryConfig:
        return RepositoryConfig() if info.config is None else decode_config_v2(info.config, REPO_KEY)

    def check_writable(self) -> None:
        """Raise RepositoryReadOnly if the status is read-only."""
        self._check_writable(self.info())

    def _check_writable(self, info: RepoInfo) -> None:
        if info.status.availability is RepoAvailability.read_only:
            reason = info.status.limited_availability_reason
            raise RepositoryReadOnly(
                f"the repository at {self.store.url()} is read-only{f' ({reason})' if reason else ''}: "
                "set its status to online first (Repository.set_status)"
            )

    # Branches and tags

    def list_names(self, kind: RefKind) -> set[str]:
        """Return the names of all branches or tags."""
        return set(_refs(self.info(), kind))

    def list_refs(self) -> list[Ref]:
        """Return all tags and branches."""
        return refs_of(self.info())

    def lookup(self, kind: RefKind, name: str) -> Ref:
        """Return a branch or tag."""
        return _lookup(self.info(), kind, name)

    def create_ref(self, kind: RefKind, name: str, snapshot_id: bytes) -> None:
        """Create a branch or tag."""
        check_new_name(kind, name)

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            if name in _refs(info, kind):
                raise RefAlreadyExists(f"the repository already has a {kind.value} {name!r}: choose another name")
            info.snapshot(snapshot_id)
            if kind is RefKind.BRANCH:
                return replace(info, branches={**info.branches, name: snapshot_id}), BranchCreated(name)
            check_enabled(info, CREATE_TAG)
            if name in info.deleted_tags:
                raise RefAlreadyExists(
                    f"a tag {name!r} was deleted, and the names of tags cannot be used again: choose another name"
                )
            return replace(info, tags={**info.tags, name: snapshot_id}), TagCreated(name)

        self.update(change)

    def move_branch(self, branch: Ref, snapshot_id: bytes) -> bool:
        """Move a branch to another snapshot."""

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType] | None:
            if info.branches.get(branch.name) != branch.snapshot_id:
                return None
            info.snapshot(snapshot_id)
            moved = replace(info, branches={**info.branches, branch.name: snapshot_id})
            return moved, BranchReset(branch.name, encode_id(branch.snapshot_id))

        return self.update(change) is not None

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""
        if name == MAIN:
            raise no_main_deletion()

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            tip = _lookup(info, RefKind.BRANCH, name).snapshot_id
            branches = {branch: snapshot_id for branch, snapshot_id in info.branches.items() if branch != name}
            return replace(info, branches=branches), BranchDeleted(name, encode_id(tip))

        self.update(change)

    def delete_tag(self, name: str) -> None:
        """Delete a tag."""

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            check_enabled(info, DELETE_TAG)
            snapshot_id = _lookup(info, RefKind.TAG, name).snapshot_id
            return without_tag(info, name), TagDeleted(name, encode_id(snapshot_id))

        self.update(change)

    # Snapshots

    def has_snapshot(self, snapshot_id: bytes) -> bool:
        """Return whether the list has a snapshot."""
        return snapshot_id in self.info().snapshots

    def publish(self, branch: Ref, snapshot: Snapshot, *, amends: bool = False, rearranges: bool = False) -> bool:
        """List a new snapshot, and move a branch to it."""
        new_id = encode_id(snapshot.snapshot_id)

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType] | None:
            if info.branches.get(branch.name) != branch.snapshot_id:
                return None
            if rearranges:
                check_enabled(info, MOVE_NODE)
            tip = info.snapshot(branch.snapshot_id)
            parent, pruned = (tip.parent_id, tip.pruned_logs) if amends else (tip.snapshot_id, ())
            listed = info.with_snapshot(listed_snapshot(snapshot, parent, pruned))
            moved = replace(listed, branches={**info.branches, branch.name: snapshot.snapshot_id})
            if amends:
                return moved, CommitAmended(branch.name, encode_id(tip.snapshot_id), new_id)
            return moved, NewCommit(branch.name, new_id)

        return self.update(change) is not None

    def publish_detached(self, snapshot: Snapshot) -> None:
        """List a new snapshot."""
        parent = snapshot.parent_id

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            if parent is not None:
                info.snapshot(parent)
            listed = info.with_snapshot(listed_snapshot(snapshot, parent))
            return listed, NewDetachedSnapshot(encode_id(snapshot.snapshot_id))

        self.update(change)

    def ancestry(self, assets: SnapshotSource, snapshot_id: bytes) -> Iterator[HistoryEntry]:
        """Yield the entries of a history."""
        return self.info().ancestry(snapshot_id)

    def reachable(self, assets: SnapshotSource, tips: Sequence[bytes], read_ahead: int) -> Iterator[Snapshot]:
        """Yield the snapshots of several histories."""
        entries = list(self.info().reachable(tips))
        for start in range(0, len(entries), read_ahead):
            batch = entries[start : start + read_ahead]
            snapshots = assets.read_snapshots([entry.snapshot_id for entry in batch])
            for snapshot, entry in zip(snapshots, batch, strict=True):
                yield replace(snapshot, parent_id=entry.parent_id)

    # Configuration

    def read_config(self) -> tuple[RepositoryConfig | None, str | None]:
        """Return the configuration, and its bytes as its tag."""
        info = self.info()
        return (None, None) if info.config is None else (self._config(info), info.config.hex())

    def save_config(self, config: RepositoryConfig, etag: str | None) -> str:
        """Store a configuration."""
        data = encode_config_v2(config)

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            if (None if info.config is None else info.config.hex()) not in (etag, data.hex()):
                raise ConfigConflict(
                    "another process saved the configuration since it was read: "
                    "open the repository again, and repeat the change"
                )
            return replace(info, config=data), ConfigChanged()

        self.update(change)
        return data.hex()


def listed_snapshot(snapshot: Snapshot, parent_id: bytes | None, pruned: tuple[bytes, ...] = ()) -> ListedSnapshot:
    """Return the entry of a snapshot in the list."""
    return ListedSnapshot(
        snapshot.snapshot_id, parent_id, snapshot.flushed_at, snapshot.message, snapshot.metadata, pruned
    )


def refs_of(info: RepoInfo) -> list[Ref]:
    """Return all tags and branches, tags first, each kind by name."""
    return [
        Ref(kind, name, snapshot_id, "")
        for kind in (RefKind.TAG, RefKind.BRANCH)
        for name, snapshot_id in sorted(_refs(info, kind).items())
    ]


def without_tag(info: RepoInfo, name: str) -> RepoInfo:
    """Return a state in which a tag is deleted."""
    tags = {tag: snapshot_id for tag, snapshot_id in info.tags.items() if tag != name}
    return replace(info, tags=tags, deleted_tags=info.deleted_tags | {name})


def _refs(info: RepoInfo, kind: RefKind) -> dict[str, bytes]:
    return dict(info.branches if kind is RefKind.BRANCH else info.tags)


def _lookup(info: RepoInfo, kind: RefKind, name: str) -> Ref:
    if kind is RefKind.TAG and name in info.deleted_tags:
        raise RefNotFound(f"the tag {name!r} was deleted: call list_tags() for the existing tags")
    snapshot_id = _refs(info, kind).get(name)
    if snapshot_id is None:
        raise no_ref(kind, name)
    return Ref(kind, name, snapshot_id, "")
