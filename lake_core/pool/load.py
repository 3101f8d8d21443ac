"""Loads: rows that become sorted data objects and one commit on a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lake_core.clock import AwareClock
from lake_core.journal import Journal, State, Update
from lake_core.pool.action import Action, AddObject
from lake_core.pool.commit import Commit
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.config import BranchConfig, PoolConfig
from lake_core.pool.config_journal import branch_of, read_state
from lake_core.pool.data_object import DataObject, data_key, seek_index_key
from lake_core.pool.errors import WriteConflict
from lake_core.pool.ksuid import new_ksuid
from lake_core.pool.marker import markers_of, with_markers
from lake_core.pool.object_sorter import write_unsorted
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.pool.value_batch import ValueBatch
from lake_core.store import ObjectStore

_RETRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Loading:
    """What a load keeps with its commit.

    Attributes:
        author: Who loads.
        message: Why; by default, what was loaded.
        meta: Anything else.
        txn: An application and the version of its write. A branch that has this version or a later one is left alone.
    """

    author: str = ""
    message: str = ""
    meta: Value = NULL_VALUE
    txn: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Loader:
    """Writes to a branch of a pool.

    Attributes:
        store: The store of the lake.
        config: The pool.
        commits: Its commits.
        branches: The journal of its branches.
        clock: Tells the time.
    """

    store: ObjectStore
    config: PoolConfig
    commits: CommitStore
    branches: Journal
    clock: AwareClock

    def load(self, batches: Iterable[ValueBatch], branch: str, loading: Loading) -> Commit | None:
        """Write values and commit them. Return None where there are none, or the branch has the marker already.

        Raises:
            NoSuchBranch: The pool has no such branch. Nothing was written.
            WriteConflict: Other writers came first each time. Data objects that no commit names were left behind.
            DamagedLake: The journal or a commit cannot be read.
        """
        if self.is_recorded(branch, loading):
            return None
        objects = self.write(batches)
        return self.add(objects, branch, loading) if objects else None

    def write(self, batches: Iterable[ValueBatch]) -> list[DataObject]:
        """Sort values and write them as data objects that no commit names yet. Takes as much memory as `write_unsorted`."""
        return list(write_unsorted(self.store, self.config, batches, self.new_id))

    def new_id(self) -> str:
        """Return the id of a new data object."""
        return new_ksuid(self.clock())

    def discard(self, objects: Sequence[DataObject]) -> None:
        """Delete data objects that no commit names."""
        self.store.delete([key(self.config.id, each.id) for each in objects for key in (data_key, seek_index_key)])

    def is_recorded(self, branch: str, loading: Loading) -> bool:
        """Return whether a branch has the marker of a load, or a later one of its application. Raises NoSuchBranch, DamagedLake."""
        return _is_recorded(self._markers(self._branch(branch).commit, loading), loading)

    def add(self, objects: Sequence[DataObject], branch: str, loading: Loading) -> Commit | None:
        """Commit data objects that were written before. Return None where the branch has the marker already.

        Raises:
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers came first each time. No commit names the data objects.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self.commit(branch, loading, lambda _: list(map(AddObject, objects)))

    def commit(self, branch: str, loading: Loading, plan: Callable[[str], Sequence[Action]]) -> Commit | None:
        """Commit actions. Return None where there are none, or the branch has the marker already.

        Args:
            branch: The branch.
            loading: What is kept with the commit.
            plan: Returns the actions, given the id of the commit that they follow. It is called again where another writer came first.

        Raises:
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers came first each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        for retries in range(_RETRIES):
            current = self._branch(branch)
            markers = self._markers(current.commit, loading)
            if _is_recorded(markers, loading):
                return None
            actions = plan(current.commit)
            if not actions:
                return None
            commit = self._commit(current.commit, retries, actions, loading, markers)
            self.commits.write(commit, actions)
            try:
                self.branches.append(_MoveBranch(current, commit.id))
                return commit
            except _BranchMoved:
                self.store.delete([self.commits.key(commit.id)])
        raise WriteConflict(f"the branch {branch!r} moved {_RETRIES} times while a load was committed; load again, or with fewer writers")

    def _branch(self, name: str) -> BranchConfig:
        return branch_of(read_state(self.branches), name)

    def _markers(self, tip: str, loading: Loading) -> Mapping[str, int]:
        """Return the markers at a commit, for a load that has one itself."""
        return {} if loading.txn is None else markers_of(self.commits.log(tip))

    def _commit(self, parent: str, retries: int, actions: Sequence[Action], loading: Loading, markers: Mapping[str, int]) -> Commit:
        now = self.clock()
        meta = loading.meta
        if loading.txn is not None:
            meta = with_markers(meta, {**markers, **dict([loading.txn])})
        return Commit(new_ksuid(now), parent, retries, loading.author, now, loading.message or _message(actions), meta)


def _is_recorded(markers: Mapping[str, int], loading: Loading) -> bool:
    if loading.txn is None:
        return False
    application, version = loading.txn
    return application in markers and markers[application] >= version


class _BranchMoved(Exception):
    """Another writer moved the branch first."""


@dataclass(frozen=True, slots=True)
class _MoveBranch:
    """Plans the entry that moves a branch to a commit, unless it stands elsewhere than before."""

    branch: BranchConfig
    commit: str

    def __call__(self, state: State) -> list[Update]:
        if state.get(self.branch.name) != self.branch:
            raise _BranchMoved
        return [Update(self.branch.name, BranchConfig(self.branch.ts, self.branch.name, self.commit))]


def _message(actions: Sequence[Action]) -> str:
    """Return the message that `zed` gives to a load."""
    objects = [action.object for action in actions if isinstance(action, AddObject)]
    lines = [f"  {each.id} {each.count} record{'s' * (each.count != 1)} in {each.size} data bytes\n" for each in objects]
    return f"loaded {len(objects)} data object{'s' * (len(objects) != 1)}\n\n{''.join(lines)}"
