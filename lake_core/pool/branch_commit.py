"""Commits on branches.

Each is planned on top of a branch's tip, and planned again whenever another writer has moved the branch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lake_core import runtime
from lake_core.backoff import Backoff
from lake_core.errors import StoreError
from lake_core.journal import Journal, State, Update
from lake_core.journal.errors import AppendTimeout
from lake_core.pool.action import Action
from lake_core.pool.commit import Commit
from lake_core.pool.config import BranchConfig
from lake_core.pool.config_journal import branch_of, read_state
from lake_core.pool.errors import DamagedLake, InvalidTransaction, WriteConflict
from lake_core.pool.ksuid import NIL, new_ksuid
from lake_core.pool.marker import Marker, Markers, is_recorded, live_markers, newest_markers
from lake_core.pool.rows import value_of
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    from lake_core.clock import AwareClock
    from lake_core.pool.commit_store import CommitStore

Plan: TypeAlias = Callable[[str], Sequence[Action]]
"""Returns the actions of a commit, given the id of its parent; none where there is nothing to do."""
Summary: TypeAlias = Callable[[Sequence[Action]], str]
"""Returns the default message of a commit with these actions."""

_LOG = logging.getLogger(__name__)

_SNAPSHOT_EVERY: Final = 32
"""About how many commits are between cached snapshots.

`zed` writes one for each commit that it reads, which takes most of its storage.
"""
_DEADLINE: Final = timedelta(minutes=5)
_AFTER_LOSS: Final = Backoff(0.002, 0.5)


@dataclass(frozen=True, slots=True)
class CommitDetails:
    """The fields of a commit besides its actions.

    Attributes:
        author: Who commits.
        message: Why; by default, a summary of the actions.
        meta: Any value.
        txn: An application and the version of its write. A branch that has this version or a later one does not change.
        merged: The tip of the branch that is merged, if any.
        markers: Markers to record besides those of the branch.
        reads: The records that the actions depend on; see `read_set`.
        carries: Whether the data objects that are added hold only records that were there before.
    """

    author: str = ""
    message: str = ""
    meta: Value = NULL_VALUE
    txn: Txn | None = None
    merged: str = NIL
    markers: Markers = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    carries: bool = False


def commit_details(author: str, message: str, meta: Any, txn: Txn | None = None) -> CommitDetails:
    """Return details with a meta of any type that `value_of` takes. Raises InvalidValue, InvalidTransaction."""
    check_txn(txn, InvalidTransaction)
    return CommitDetails(author, message, value_of(meta), txn)


@dataclass(frozen=True, slots=True)
class BranchWriter:
    """A writer of commits to the branches of a pool.

    Attributes:
        commits: The pool's commits.
        branches: The journal of its branches.
        clock: Returns the time.
        txn_retention: For how long markers count; None for ever.
    """

    commits: CommitStore
    branches: Journal
    clock: AwareClock
    txn_retention: timedelta | None

    def commit(self, branch: str, details: CommitDetails, plan: Plan, summary: Summary) -> Commit | None:
        """Commit the actions of a plan. Return None where it has none, or the branch already has the marker.

        With a marker, a plan without actions is committed too, to record the marker.

        Args:
            branch: The branch.
            details: The other fields of the commit.
            plan: Returns the actions. It is called again after another writer has moved the branch.
            summary: Returns the message, where the details have none.

        Raises:
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        end: float | None = None
        retries = 0
        while True:
            current = self._branch(branch)
            markers = self._live_markers(current.commit)
            if is_recorded(markers, details.txn):
                return None
            actions = plan(current.commit)
            if not actions and details.txn is None:
                return None
            commit = self._commit(current.commit, retries, actions, details, markers, summary)
            if self._put_commit(current, commit, actions):
                return commit
            retries += 1
            # The first plan may have taken long, as a compaction does.
            end = end or runtime.monotonic() + _DEADLINE.total_seconds()
            if runtime.monotonic() >= end:
                raise WriteConflict(
                    f"other writers moved the branch {branch!r} {retries} times during this commit; "
                    "try again, or write with fewer writers at a time"
                )
            _AFTER_LOSS.wait(retries)

    def is_recorded(self, branch: str, txn: Txn | None) -> bool:
        """Return whether a branch has this version of an application's write, or a later one.

        Raises NoSuchBranch, DamagedLake.
        """
        tip = self._branch(branch).commit
        return txn is not None and is_recorded(self._live_markers(tip), txn)

    def _branch(self, name: str) -> BranchConfig:
        return branch_of(read_state(self.branches), name)

    def _live_markers(self, tip: str) -> dict[str, Marker]:
        now = self.clock()
        since = None if self.txn_retention is None else now - self.txn_retention
        return live_markers(self.commits.markers(tip, since), now, self.txn_retention)

    def _commit(
        self,
        parent: str,
        retries: int,
        actions: Sequence[Action],
        details: CommitDetails,
        markers: Markers,
        summary: Summary,
    ) -> Commit:
        now = self.clock()
        markers = newest_markers(markers, details.markers)
        if details.txn is not None:
            app_id, version = details.txn
            markers = {**markers, app_id: Marker(version, now)}
        message = details.message or summary(actions)
        return Commit(
            new_ksuid(now),
            parent,
            retries,
            details.author,
            now,
            message,
            details.meta,
            markers,
            details.merged,
            reads=details.reads,
            carries=details.carries,
            writes=1,
        )

    def _put_commit(self, branch: BranchConfig, commit: Commit, actions: Sequence[Action]) -> bool:
        """Put a commit and move the branch to it.

        Return False, and delete the commit, where another writer has moved the branch.
        """
        self.commits.write(commit, actions)
        try:
            entry = self.branches.append(_MoveBranch(branch, commit.id))
        except (_BranchMoved, AppendTimeout):
            # A vacuum deletes the remains of a commit that no branch names.
            with suppress(StoreError):
                self.commits.remove(commit.id)
            return False
        if entry is not None and entry.number % _SNAPSHOT_EVERY == 0 and not self.commits.store.versioned:
            self._write_snapshot(commit.id)
        return True

    def _write_snapshot(self, tip: str) -> None:
        try:
            self.commits.write_snapshot(tip)
        except (StoreError, DamagedLake) as error:
            _LOG.warning("the commit %s succeeded, but its data objects were not cached: %s", tip, error)


class _BranchMoved(Exception):
    """Another writer moved the branch first."""


@dataclass(frozen=True, slots=True)
class _MoveBranch:
    """The update that moves a branch to a commit.

    Calling it raises _BranchMoved where another writer has moved the branch.
    """

    branch: BranchConfig
    commit: str

    def __call__(self, state: State) -> list[Update]:
        if state.get(self.branch.name) != self.branch:
            raise _BranchMoved
        return [Update(self.branch.name, BranchConfig(self.branch.ts, self.branch.name, self.commit))]
