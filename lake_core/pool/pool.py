"""A pool: values of any type, sorted by a key, with branches and commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lake_core.clock import AwareClock
from lake_core.journal import State
from lake_core.pool.commit import Commit
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.config import BranchConfig, PoolConfig
from lake_core.pool.config_journal import branch_of, open_journal, read_state
from lake_core.pool.data_object import DataObject
from lake_core.pool.key_range import KeyRange
from lake_core.pool.load import Loader, Loading
from lake_core.pool.replace import Replacement, check_objects, checked
from lake_core.pool.rows import value_of, values_of_rows
from lake_core.pool.scan import Scan
from lake_core.store import ObjectStore


class Pool:
    """A pool of a lake. `PoolLake.pool` returns one.

    Attributes:
        config: Its name, key and order.
    """

    def __init__(self, store: ObjectStore, config: PoolConfig, clock: AwareClock, branches: State | None = None) -> None:
        self.config = config
        self._store = store
        self._commits = CommitStore(store, config.id)
        self._branches = open_journal(store, f"{config.id}/branches", clock)
        if branches is not None:
            self._branches.resume(branches)
        self._loader = Loader(store, config, self._commits, self._branches, clock)

    @property
    def store(self) -> ObjectStore:
        """Return the store of the lake."""
        return self._store

    def __repr__(self) -> str:
        return f"Pool({self.config.name!r} in {self._store!r})"

    def branches(self) -> list[BranchConfig]:
        """Return the branches in the order of their names. Raises DamagedLake."""
        return list(self._state().values())

    def tip(self, branch: str = "main") -> str:
        """Return the id of a branch's last commit. Raises NoSuchBranch, DamagedLake."""
        return branch_of(self._state(), branch).commit

    def log(self, branch: str = "main", commit: str | None = None) -> Iterator[Commit]:
        """Yield the commits of a branch, or those up to a commit, the newest first.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchCommit: The pool has no such commit.
            DamagedLake: A commit is missing or cannot be read.
        """
        return self._commits.log(self._resolve(branch, commit))

    def objects(self, branch: str = "main", commit: str | None = None) -> list[DataObject]:
        """Return the data objects of a branch, or those as of a commit, in the order of their ids.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchCommit: The pool has no such commit.
            DamagedLake: A commit is missing or cannot be read.
        """
        objects = self._commits.objects(self._resolve(branch, commit))
        return [objects[id] for id in sorted(objects)]

    def scan(self, branch: str = "main", commit: str | None = None, *, start: Any = None, stop: Any = None) -> Scan:
        """Return the values of a branch, or those as of a commit.

        Args:
            branch: The branch.
            commit: The id of a commit, to read the pool as it was then.
            start: Leave out smaller keys, and those that do not compare with it; see `KeyRange`.
            stop: Leave out this key and larger ones, and those that do not compare with it.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchCommit: The pool has no such commit.
            DamagedLake: A commit is missing or cannot be read.
            InvalidValue: A bound is no key.
        """
        self._store.note_scan()
        return Scan(self._store, self.config, self.objects(branch, commit), KeyRange.of(start, stop))

    def load(
        self,
        rows: Any,
        branch: str = "main",
        *,
        author: str = "",
        message: str = "",
        meta: Any = None,
        txn: tuple[str, int] | None = None,
    ) -> Commit | None:
        """Sort rows, write them as data objects and commit them. Return None where nothing was to be written.

        Args:
            rows: Arrow data, or an iterable of mappings or values; see `values_of_rows`.
            branch: The branch.
            author: Who loads.
            message: Why; by default, what was loaded.
            meta: Anything else to keep with the commit; see `value_of`.
            txn: An application and the version of its write. Where the branch has that version or a later one already, nothing is
                written, so that a load can be repeated safely.

        Raises:
            InvalidValue: A row or the meta has no form as a value. No commit was made.
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers came first each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        loading = Loading(author, message, value_of(meta), txn)
        return self._loader.load(values_of_rows(rows), branch, loading)

    def has_marker(self, txn: tuple[str, int], branch: str = "main") -> bool:
        """Return whether a branch has this version of an application's write, or a later one. Raises NoSuchBranch, DamagedLake."""
        return self._loader.is_recorded(branch, Loading(txn=txn))

    def write_objects(self, rows: Any, ranges: Sequence[KeyRange] = (KeyRange(),), *, name: str = "the load") -> list[DataObject]:
        """Sort rows and write them as data objects, which `add_objects` or `replace` commits.

        Args:
            rows: As of `load`.
            ranges: The ranges of keys that the rows may have.
            name: What errors call the rows.

        Raises:
            InvalidValue: A row has no form as a value.
            OutsideRange: A row has a key that is in none of the ranges.
        """
        return self._loader.write(map(checked(self.config.keys[0], ranges, name), values_of_rows(rows)))

    def add_objects(
        self,
        objects: Sequence[DataObject],
        branch: str = "main",
        *,
        author: str = "",
        message: str = "",
        meta: Any = None,
        txn: tuple[str, int] | None = None,
    ) -> Commit | None:
        """Commit data objects whose files are in place. Return None where there are none, or the branch has the marker already.

        Args:
            objects: The data objects, which hold values in the order of the pool.
            branch: The branch.
            author: Who loads.
            message: Why; by default, what was loaded.
            meta: Anything else to keep with the commit; see `value_of`.
            txn: As of `load`.

        Raises:
            InvalidValue: The meta has no form as a value.
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers came first each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self._loader.add(objects, branch, Loading(author, message, value_of(meta), txn))

    def replace(
        self,
        objects: Sequence[DataObject],
        ranges: Sequence[KeyRange],
        branch: str = "main",
        *,
        author: str = "",
        message: str = "",
        meta: Any = None,
        txn: tuple[str, int] | None = None,
    ) -> Commit | None:
        """Put data objects whose files are in place for all values of ranges of keys, in one commit.

        Return None where nothing changes, or the branch has the marker already.

        Args:
            objects: The data objects, which hold values in the order of the pool.
            ranges: The ranges. One without bounds holds all values, those without a key, too.
            branch: The branch.
            author: Who replaces.
            message: Why.
            meta: Anything else to keep with the commit; see `value_of`.
            txn: As of `load`.

        Raises:
            OutsideRange: A data object has keys that are in none of the ranges.
            InvalidValue: The meta has no form as a value.
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers came first each time.
            DamagedLake: The journal, a commit or a data object cannot be read.
        """
        check_objects(objects, self.config.keys[0], ranges, "a data object")
        replacement = Replacement(self._loader, ranges, objects)
        return self._loader.commit(branch, Loading(author, message, value_of(meta), txn), replacement.plan)

    def _state(self) -> State:
        return read_state(self._branches)

    def _resolve(self, branch: str, commit: str | None) -> str:
        if commit is None:
            return self.tip(branch)
        self._commits.check(commit)
        return commit
