"""Sessions: a snapshot, and the changes on top of it until they are committed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from lake_core.icechunk.amending import amended_log
from lake_core.icechunk.ancestry import ancestry
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.change_set import ChangeSet
from lake_core.icechunk.commit import Commit, CommitResult, change_log
from lake_core.icechunk.diff import Diff, describe, merged
from lake_core.icechunk.errors import (
    ConflictError,
    IcechunkError,
    InvalidTransaction,
    NoChangesToCommit,
    UnmergeableFork,
    WrongSessionMode,
)
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.rebase import rebase
from lake_core.icechunk.refs import RefKind
from lake_core.icechunk.session_state import SessionState
from lake_core.icechunk.store import IcechunkStore
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.icechunk.conflict_solver import ConflictSolver


class Session(SessionState):
    """The state of a repository at one snapshot; a writable session also holds changes, until they are committed."""

    def __getstate__(self) -> dict[str, Any]:
        if not self.read_only and not isinstance(self, ForkSession):
            raise ValueError(
                "a writable session cannot be pickled: "
                "send session.fork() to each worker, and merge the forks when they come back"
            )
        return self.__dict__.copy()

    @property
    def store(self) -> IcechunkStore:
        """Return the session as a Zarr store."""
        return IcechunkStore(self)

    def status(self) -> Diff:
        """Return the changes of the session."""
        nodes = {path: self.node(path) for path in self.node_paths()}
        return describe(
            change_log(self.change_set, self.snapshot),
            self.snapshot.nodes,
            {path: node for path, node in nodes.items() if node},
        )

    # Commit

    def commit(
        self,
        message: str,
        metadata: Mapping[str, Any] | None = None,
        rebase_with: ConflictSolver | None = None,
        rebase_tries: int = 1_000,
        *,
        txn: Txn | None = None,
        allow_empty: bool = False,
    ) -> CommitResult:
        """Publish the changes as a new snapshot at the tip of the branch. The session is read-only from then on.

        Args:
            message: The purpose of the commit.
            metadata: Values that JSON can hold, kept with the snapshot.
            rebase_with: Rebases the changes onto commits that came first.
            rebase_tries: How many times to rebase.
            txn: An application id and a version. If the branch has that version or a later one already, nothing is
                committed: the result is the id of the snapshot that recorded it, and its `skipped` is true.
            allow_empty: Whether to commit a session without changes.

        Returns:
            The id of the snapshot.

        Raises:
            NoChangesToCommit: The session has no changes, and neither `txn` nor `allow_empty` was given.
            InvalidHierarchy: The snapshot would have a node without a parent group, or two nodes at one path. Nothing
                is written.
            ConflictError: The branch has moved, and no solver was given, or it moved again at each try. The session can
                still be used.
            RebaseFailedError, NotInAncestry: As `rebase` raises them.
            StoreUnavailable: The store did not answer, so it may be unknown whether the branch moved. The session takes
                no changes until it is committed again, which returns the snapshot if the branch has it, or its changes
                are discarded.
        """
        self.check_not_read_only()
        check_txn(txn, InvalidTransaction)
        self._check_merged()
        if not self.has_uncommitted_changes and txn is None and not allow_empty:
            raise NoChangesToCommit("the session has no changes: write something first, or do not commit")
        assert self._branch is not None
        commit = self._commit(message, metadata, txn)
        rebases = 0
        while True:
            layout = self.assets.layout
            tip = layout.lookup(RefKind.BRANCH, self._branch)
            published = self._published(tip.snapshot_id)
            if published is not None:
                return self._finish(published, CommitResult(encode_id(published)))
            recorded = commit.recorded(tip.snapshot_id)
            if recorded is not None:
                return self._finish(tip.snapshot_id, recorded)
            if tip.snapshot_id == self._base_id:
                if rebases and layout.spec_version > 1:
                    attempts = {"__icechunk": {"rebase_attempts": rebases}}
                    commit = replace(commit, metadata={**commit.metadata, **attempts})
                snapshot = commit.write(self.change_set, self.snapshot)
                self._unconfirmed.add(snapshot.snapshot_id)
                if layout.publish(tip, snapshot, rearranges=self._rearranges):
                    return self._finish(snapshot.snapshot_id, CommitResult(encode_id(snapshot.snapshot_id)))
            elif rebase_with is None or rebases == rebase_tries:
                raise self._conflict(tip.snapshot_id)
            else:
                self.rebase(rebase_with)
                rebases += 1

    def amend(
        self, message: str, metadata: Mapping[str, Any] | None = None, *, allow_empty: bool = False
    ) -> CommitResult:
        """Publish the changes in a snapshot that replaces the newest one of the branch.

        The new snapshot has the parent of the replaced one, and the changes of both. The replaced snapshot stays until
        it is collected as garbage.

        Args:
            message: The purpose of both changes.
            metadata: Values that JSON can hold, kept with the snapshot. Those of the replaced one are not.
            allow_empty: Whether to amend without changes, for another message.

        Returns:
            The id of the snapshot.

        Raises:
            UnsupportedSpecVersion: The repository is of version 1.
            NoChangesToCommit: The session has no changes, and `allow_empty` was not given.
            InvalidAmend: The newest commit is the first snapshot of the repository, or the repository is in a lake.
            WrongSessionMode: The newest commit moved nodes, and this session does not.
            ConflictError: The branch has moved. Nothing was replaced, and the session can still be used.
        """
        self.check_not_read_only()
        self._check_merged()
        log = amended_log(self.assets, self._base_id)
        if not self.has_uncommitted_changes and not allow_empty:
            raise NoChangesToCommit("the session has no changes: write something first, or amend with allow_empty=True")
        if log.moved_nodes and not self._rearranges:
            raise WrongSessionMode(
                f"the commit {self.snapshot_id} moved nodes, so only moves can be added to it: commit the changes"
            )
        assert self._branch is not None
        layout = self.assets.layout
        tip = layout.lookup(RefKind.BRANCH, self._branch)
        published = self._published(tip.snapshot_id)
        if published is not None:
            return self._finish(published, CommitResult(encode_id(published)))
        if tip.snapshot_id == self._base_id:
            log = merged([log, change_log(self.change_set, self.snapshot)])
            snapshot = self._commit(message, metadata).write(self.change_set, self.snapshot, log=log, writes=None)
            self._unconfirmed.add(snapshot.snapshot_id)
            if layout.publish(tip, snapshot, amends=True, rearranges=self._rearranges):
                return self._finish(snapshot.snapshot_id, CommitResult(encode_id(snapshot.snapshot_id)))
            self._unconfirmed.discard(snapshot.snapshot_id)
        raise self._conflict(layout.lookup(RefKind.BRANCH, self._branch).snapshot_id)

    def flush(self, message: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Write the changes as a new snapshot that no branch has. The session reads that snapshot from then on.

        Returns:
            The id of the snapshot. `Repository.reset_branch` moves a branch to it. A snapshot that no branch or tag
            reaches is garbage.

        Raises:
            NoChangesToCommit: The session has no changes.
            InvalidHierarchy: As `commit` raises it.
        """
        self.check_writable()
        self._check_merged()
        if not self.has_uncommitted_changes:
            raise NoChangesToCommit("the session has no changes: write something first, or do not flush")
        snapshot = self._commit(message, metadata).write(self.change_set, self.snapshot)
        self.assets.layout.publish_detached(snapshot)
        self._branch = None
        return self._finish(snapshot.snapshot_id, CommitResult(encode_id(snapshot.snapshot_id)))

    def _commit(self, message: str, metadata: Mapping[str, Any] | None, txn: Txn | None = None) -> Commit:
        merged = {**self._default_metadata, **(metadata or {})}
        return Commit(self.assets, self._config, self._clock, message, merged, txn, self._txn_retention)

    def _check_merged(self) -> None:
        if self._forked:
            raise UnmergeableFork("the session was forked: merge the forks into it before the commit (session.merge)")

    def _published(self, tip: bytes) -> bytes | None:
        """Return the snapshot of this session in the history of its branch, or None.

        An earlier try may have moved the branch although the answer was lost, and other sessions may have committed
        since.
        """
        if not self._unconfirmed or tip == self._base_id:
            return None
        for snapshot in ancestry(self.assets, tip):
            if snapshot.snapshot_id in self._unconfirmed:
                return snapshot.snapshot_id
            if snapshot.snapshot_id == self._base_id:
                break
        # The branch has moved since, so a request that is still in progress fails.
        self._unconfirmed.clear()
        return None

    def recorded(self, txn: Txn) -> CommitResult | None:
        """Return the commit that recorded a txn before the session was opened, or a later version of it, or None."""
        check_txn(txn, InvalidTransaction)
        return self._commit("", None, txn).recorded(self._base_id)

    def _finish(self, snapshot_id: bytes, result: CommitResult) -> CommitResult:
        self._base_id = snapshot_id
        self.change_set = ChangeSet()
        self._unconfirmed.clear()
        self._read_only = True
        return result

    def _conflict(self, tip: bytes) -> ConflictError:
        return ConflictError(
            f"the branch {self._branch} has moved from {self.snapshot_id} to {encode_id(tip)}: commit with "
            "rebase_with=…, or write again in a new session",
            expected_parent=self.snapshot_id,
            actual_parent=encode_id(tip),
        )

    def rebase(self, solver: ConflictSolver) -> None:
        """Rebase the changes onto the tip of the branch, commit by commit, oldest first.

        Raises:
            RebaseFailedError: The solver does not resolve a conflict. The session is then based on the last commit
                before that.
            NotInAncestry: The branch was reset, or its history expired, so that it does not hold the session's snapshot
                any longer.
            MissingObject, DamagedObject: A snapshot or a transaction log cannot be read.
        """
        self.check_writable()
        assert self._branch is not None
        tip = self.assets.layout.lookup(RefKind.BRANCH, self._branch)
        if tip.snapshot_id != self._base_id:
            for snapshot_id, changes in rebase(self.assets, self.change_set, self._base_id, tip.snapshot_id, solver):
                self._base_id, self.change_set = snapshot_id, changes

    # Forks

    def fork(self) -> ForkSession:
        """Return a session that a worker writes to, and that is merged into this one before the commit.

        It can be pickled.

        Raises:
            ReadOnlySession: The session is read-only: pickle the session itself.
            IcechunkError: The session has changes of its own: commit them first.
        """
        self.check_editable()
        if self.has_uncommitted_changes:
            raise IcechunkError(
                "the session has uncommitted changes, which its forks would not see: "
                "commit them, and fork a new session"
            )
        self._forked = True
        fork = ForkSession.__new__(ForkSession)
        fork.__dict__.update(self.__dict__)
        fork.change_set = deepcopy(self.change_set)
        fork._unconfirmed = set()
        return fork

    def merge(self, *others: ForkSession) -> None:
        """Merge the writes of forks.

        Raises:
            UnmergeableFork: A fork is one of another snapshot, or two forks wrote the same chunk or node. No fork was
                merged.
        """
        self.check_writable()
        for other in others:
            if not isinstance(other, ForkSession):
                raise TypeError(
                    "only forks of a session can be merged into it (session.fork()), "
                    f"not an object of type {type(other).__name__}"
                )
            if other._base_id != self._base_id:
                raise UnmergeableFork(
                    f"the fork is based on the snapshot {other.snapshot_id}, but the session on {self.snapshot_id}"
                )
        merged = deepcopy(self.change_set)
        for other in others:
            merged.merge(other.change_set)
        self.change_set = merged
        self._forked = False

    commit_async = asynchronous(commit)
    amend_async = asynchronous(amend)
    flush_async = asynchronous(flush)
    rebase_async = asynchronous(rebase)
    merge_async = asynchronous(merge)


class ForkSession(Session):
    """A part of a session that another process writes. Only the session that it was forked from can be committed."""

    def commit(self, *args: Any, **options: Any) -> NoReturn:
        """Raise TypeError: a fork is merged into its session, and that is committed."""
        raise TypeError(
            "a fork cannot be committed: merge it into the session that it was forked from, and commit that"
        )

    def amend(self, *args: Any, **options: Any) -> NoReturn:
        """Raise TypeError: a fork is merged into its session, and that is committed."""
        raise TypeError("a fork cannot be amended: merge it into the session that it was forked from, and amend that")

    def flush(self, message: str, metadata: Mapping[str, Any] | None = None) -> NoReturn:
        """Raise TypeError: a fork is merged into its session, and that is flushed."""
        raise TypeError("a fork cannot be flushed: merge it into the session that it was forked from, and flush that")

    def rebase(self, solver: ConflictSolver) -> NoReturn:
        """Raise TypeError: a fork is merged into its session, and that is rebased."""
        raise TypeError("a fork cannot be rebased: merge it into the session that it was forked from, and rebase that")
