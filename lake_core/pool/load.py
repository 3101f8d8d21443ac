"""Loads: rows that become sorted data objects and one commit on a branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lake_core.clock import AwareClock
from lake_core.journal import Journal, State, Update
from lake_core.pool.action import AddObject
from lake_core.pool.commit import Commit
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.config import BranchConfig, PoolConfig
from lake_core.pool.config_journal import branch_of, read_state
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import WriteConflict
from lake_core.pool.key_column import KeyColumn
from lake_core.pool.ksuid import new_ksuid
from lake_core.pool.marker import markers_of, with_markers
from lake_core.pool.object_writer import write_object
from lake_core.pool.sorted_batch import keys_of, sort_batch
from lake_core.pool.value import NULL_VALUE, Value
from lake_core.pool.value_batch import ValueBatch
from lake_core.store import ObjectStore

_SORTED_BYTES: Final = 256 << 20
"""How many bytes of values are sorted at once, at most. A load takes about three times as much memory."""
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
        tip = self._branch(branch).commit
        markers = self._markers(tip, loading)
        if _is_recorded(markers, loading):
            return None
        objects = [self._write(part) for part in self._parts(batches)]
        if not objects:
            return None
        for retries in range(_RETRIES):
            current = self._branch(branch)
            if current.commit != tip:
                tip, markers = current.commit, self._markers(current.commit, loading)
                if _is_recorded(markers, loading):
                    return None
            commit = self._commit(tip, retries, objects, loading, markers)
            self.commits.write(commit, [AddObject(each) for each in objects])
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

    def _parts(self, batches: Iterable[ValueBatch]) -> Iterator[list[ValueBatch]]:
        """Yield values in parts that are sorted each. A part ends with the value with which its bodies take the threshold of the pool."""
        most = min(self.config.threshold, _SORTED_BYTES)
        part: list[ValueBatch] = []
        size = 0
        for batch in batches:
            totals = np.cumsum(batch.body_sizes())
            start = written = 0
            while start < len(batch):
                stop = min(int(np.searchsorted(totals, written + most - size)) + 1, len(batch))
                part.append(batch.slice(start, stop))
                size += int(totals[stop - 1]) - written
                start, written = stop, int(totals[stop - 1])
                if size >= most:
                    yield part
                    part, size = [], 0
        if part:
            yield part

    def _write(self, part: list[ValueBatch]) -> DataObject:
        """Write values as a data object. Empties the list, so that the values are in memory once."""
        keys = KeyColumn.concat([keys_of(batch, self.config) for batch in part])
        batch = ValueBatch.concat(part)
        part.clear()
        return write_object(self.store, self.config, sort_batch(batch, keys, self.config), new_ksuid(self.clock()))

    def _commit(self, parent: str, retries: int, objects: Sequence[DataObject], loading: Loading, markers: Mapping[str, int]) -> Commit:
        now = self.clock()
        meta = loading.meta
        if loading.txn is not None:
            meta = with_markers(meta, {**markers, **dict([loading.txn])})
        return Commit(new_ksuid(now), parent, retries, loading.author, now, loading.message or _message(objects), meta)


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


def _message(objects: Sequence[DataObject]) -> str:
    """Return the message that `zed` gives to a load."""
    lines = [f"  {each.id} {each.count} record{'s' * (each.count != 1)} in {each.size} data bytes\n" for each in objects]
    return f"loaded {len(objects)} data object{'s' * (len(objects) != 1)}\n\n{''.join(lines)}"
