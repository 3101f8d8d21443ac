"""A pool: values of any type, sorted by a key, with branches and commits."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lake_core.pool.branch_commit import BranchWriter, commit_details
from lake_core.pool.branch_merge import BranchMerge
from lake_core.pool.branches import check_start, create_branch, delete_branch
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.compact import Compaction, check_objects_exist, checked_run, runs_to_compact
from lake_core.pool.config import BranchConfig, PoolConfig
from lake_core.pool.config_journal import branch_of, open_journal, read_state
from lake_core.pool.delete import ObjectDeletion, RecordDeletion
from lake_core.pool.errors import InvalidTransaction, InvalidValue
from lake_core.pool.key_range import KeyRange
from lake_core.pool.load import Loader
from lake_core.pool.marker import TXN_RETENTION, Markers
from lake_core.pool.metadata import nanoseconds_of
from lake_core.pool.pins import check_not_vacuumed, pin
from lake_core.pool.read_set import predicate_read, range_read, read_set
from lake_core.pool.replace import Replacement, check_objects, checked
from lake_core.pool.revert import Revert
from lake_core.pool.rows import batches_of_rows
from lake_core.pool.scan import Scan
from lake_core.pool.summary import compact_summary, delete_summary, load_summary
from lake_core.pool.vacuum import VacuumResult, vacuum
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.clock import AwareClock
    from lake_core.journal import State
    from lake_core.pool.commit import Commit
    from lake_core.pool.data_object import DataObject
    from lake_core.store import ObjectStore

RETENTION = timedelta(days=7)
"""For how long, by default, a vacuum keeps objects that no branch needs."""


class Pool:
    """A pool of a lake. `PoolLake.pool` returns one.

    Attributes:
        config: Its name, key and order.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: PoolConfig,
        clock: AwareClock,
        branches: State | None = None,
        *,
        txn_retention: timedelta | None = TXN_RETENTION,
    ) -> None:
        self.config = config
        self._store = store
        self._clock = clock
        self._commits = CommitStore(store, config.id)
        self._branches = open_journal(store, f"{config.id}/branches", clock)
        if branches is not None:
            self._branches.resume(branches)
        self._writer = BranchWriter(self._commits, self._branches, clock, txn_retention)
        self._loader = Loader(store, config, self._writer, clock)

    @property
    def store(self) -> ObjectStore:
        """Return the store of the lake."""
        return self._store

    def __repr__(self) -> str:
        return f"Pool({self.config.name!r} in {self._store!r})"

    def list_branches(self) -> list[BranchConfig]:
        """Return the branches in the order of their names.

        Raises:
            DamagedLake: The journal cannot be read.
        """
        return list(self._state().values())

    def create_branch(self, name: str, *, at: str = "main") -> BranchConfig:
        """Create a branch, and return it.

        Args:
            name: Its name.
            at: Where it begins: a branch, or the id of a commit.

        Raises:
            InvalidBranchName: A branch cannot have such a name. Nothing was written.
            BranchExists: The pool already has a branch of that name.
            NoSuchBranch: The pool has neither a branch nor a commit `at`.
            ObjectsVacuumed: Data objects or commits that the commit needs are gone from the store.
            DamagedLake: The journal cannot be read.
        """
        start = self._state().get(at)
        if isinstance(start, BranchConfig):
            return self._create_branch(name, start.commit)
        check_start(self._commits, self._state(), at)
        with pin(self._commits, at, self._clock):
            tips = {each.commit for each in self._state().values()}
            check_not_vacuumed(self._commits, at, tips)
            return self._create_branch(name, at)

    def delete_branch(self, name: str) -> None:
        """Delete a branch. Its commits stay readable by their ids until they are vacuumed.

        The branch main can be deleted too, and created again.

        Raises:
            NoSuchBranch: The pool has no such branch.
            DamagedLake: The journal cannot be read.
        """
        delete_branch(self._branches, name)

    def tip(self, branch: str = "main") -> str:
        """Return the id of a branch's last commit.

        Raises:
            NoSuchBranch: The pool has no such branch.
            DamagedLake: The journal cannot be read.
        """
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

    def scan(
        self,
        branch: str = "main",
        commit: str | None = None,
        *,
        start: Any = None,
        stop: Any = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Scan:
        """Return the values of a branch, or those as of a commit.

        Args:
            branch: The branch.
            commit: The id of a commit, to read the pool as it was then.
            start: Leave out smaller keys, and those that do not compare with it; see `KeyRange`. An object is taken for
                the key that `load` stores it as.
            stop: Leave out this key and larger ones, and those that do not compare with it.
            where: Leave out records for which this predicate, in Spark SQL over their fields, is not true. A field that
                a record does not have is null, as is a comparison of types that do not fit. Data objects and parts of
                them are not read where the predicate cannot be true for their keys.
            columns: The fields of records to return, in this order. Others are not decoded.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchCommit: The pool has no such commit.
            DamagedLake: A commit is missing or cannot be read.
            InvalidValue: A bound is not a key, or no columns are named.
            InvalidExpression: The predicate is not SQL.
        """
        self._store.note_scan()
        return Scan(
            self._store,
            self.config,
            self.objects(branch, commit),
            KeyRange.of(start, stop),
            where=where,
            columns=columns,
        )

    def load(
        self,
        rows: Any,
        branch: str = "main",
        *,
        author: str = "",
        message: str = "",
        meta: Any = None,
        txn: Txn | None = None,
    ) -> Commit | None:
        """Sort rows, write them as data objects and commit them.

        Return None where there are no rows, or the branch already has the `txn`.

        Args:
            rows: Arrow data, a file of NDJSON, ZNG, ZSON or Parquet (its path, or open), or an iterable of mappings or
                values; see `batches_of_rows`.
            branch: The branch.
            author: Who loads.
            message: Why; by default, a summary of the load.
            meta: Any other value to store with the commit; see `value_of`.
            txn: An application and the version of its write. If the branch already has that version or a later one,
                nothing is written. A load with a txn can therefore be repeated safely.

        Raises:
            InvalidValue: A row or the meta cannot be stored as a value. No commit was made.
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self._loader.load(batches_of_rows(rows), branch, commit_details(author, message, meta, txn))

    def markers(self, branch: str = "main") -> Markers:
        """Return the transaction identifiers of a branch at its last commit, by application id. Leave out expired ones.

        Raises:
            NoSuchBranch: The pool has no such branch.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self._commits.markers(self.tip(branch))

    def has_marker(self, txn: Txn, branch: str = "main") -> bool:
        """Return whether a branch has this version of an application's write, or a later one.

        Raises:
            InvalidTransaction: `txn` is not a pair of an application id and a version.
            NoSuchBranch: The pool has no such branch.
            DamagedLake: The journal or a commit cannot be read.
        """
        check_txn(txn, InvalidTransaction)
        return self._writer.is_recorded(branch, txn)

    def write_objects(
        self, rows: Any, ranges: Sequence[KeyRange] = (KeyRange(),), *, name: str = "the load"
    ) -> list[DataObject]:
        """Sort rows and write them as data objects, which `add_objects` or `replace` commits.

        Args:
            rows: As for `load`.
            ranges: The ranges of keys that the rows may have.
            name: The name of the rows in error messages.

        Raises:
            InvalidValue: A row cannot be stored as a value.
            OutsideRange: A row has a key that is in none of the ranges.
        """
        return self._loader.write(map(checked(self.config, ranges, name), batches_of_rows(rows)))

    def add_objects(
        self,
        objects: Sequence[DataObject],
        branch: str = "main",
        *,
        author: str = "",
        message: str = "",
        meta: Any = None,
        txn: Txn | None = None,
    ) -> Commit | None:
        """Commit data objects whose files are written.

        Return None where there are none, or the branch already has the `txn`.

        Args:
            objects: The data objects, which hold values in the order of the pool.
            branch: The branch.
            author: Who loads.
            message: Why; by default, a summary of the load.
            meta: Any other value to store with the commit; see `value_of`.
            txn: As for `load`.

        Raises:
            InvalidValue: The meta cannot be stored as a value.
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self._loader.add(objects, branch, commit_details(author, message, meta, txn))

    def replace(
        self,
        objects: Sequence[DataObject],
        ranges: Sequence[KeyRange],
        branch: str = "main",
        *,
        author: str = "",
        message: str = "",
        meta: Any = None,
        txn: Txn | None = None,
    ) -> Commit | None:
        """Replace the values of ranges of keys by data objects whose files are written, in one commit.

        Return None where nothing changes, or the branch already has the `txn`.

        Args:
            objects: The data objects, which hold values in the order of the pool.
            ranges: The ranges. One without bounds holds all values, including those without a key.
            branch: The branch.
            author: Who replaces.
            message: Why.
            meta: Any other value to store with the commit; see `value_of`.
            txn: As for `load`.

        Raises:
            OutsideRange: A data object has keys that are in none of the ranges.
            InvalidValue: The meta cannot be stored as a value.
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal, a commit or a data object cannot be read.
        """
        check_objects(objects, self.config.keys[0], ranges, "a data object")
        replacement = Replacement.of(self._loader, ranges, objects)
        details = commit_details(author, message, meta, txn)
        details = replace(details, reads=read_set(range_read(keys) for keys in ranges))
        return self._writer.commit(branch, details, replacement.plan, load_summary)

    def delete(
        self,
        where: str | None = None,
        branch: str = "main",
        *,
        ids: Sequence[str] | None = None,
        author: str = "",
        message: str = "",
        meta: Any = None,
    ) -> Commit | None:
        """Delete records by a predicate, or data objects by their ids, in one commit.

        Return None where there is nothing to delete.

        Data objects that also hold other records are rewritten. Those whose keys rule the predicate out are not read.

        Args:
            where: A predicate in Spark SQL over the fields of all records; a field that a record does not have is null,
                as is a comparison of types that do not fit. Records for which it is true are deleted.
            branch: The branch.
            ids: The ids of data objects, instead of a predicate.
            author: Who deletes.
            message: Why; by default, a summary of the deletion.
            meta: Any other value to store with the commit; see `value_of`.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchObject: The branch has no such data object.
            InvalidExpression: The text is not a predicate over the fields of the records.
            EvaluationFailed: The predicate fails for a record.
            InvalidValue: There are both a predicate and ids, or neither. Or a value is not a record, or the meta cannot
                be stored as a value.
            DeleteConflict: Other writers deleted or rewrote data objects of `ids` in the meantime.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal, a commit or a data object cannot be read.
        """
        if (where is None) == (ids is None):
            raise InvalidValue(
                "either pass a predicate to delete records, or `ids` to delete data objects, but not both or neither"
            )
        details = commit_details(author, message, meta)
        if where is not None:
            details = replace(details, reads=(predicate_read(where),), carries=True)
            return self._writer.commit(branch, details, RecordDeletion(self._loader, where).plan, delete_summary)
        chosen = list(dict.fromkeys(ids or ()))
        check_objects_exist(chosen, [each.id for each in self.objects(branch)])
        return self._writer.commit(branch, details, ObjectDeletion(self._commits, chosen).plan, delete_summary)

    def compact(
        self,
        ids: Sequence[str] | None = None,
        branch: str = "main",
        *,
        cold_age: timedelta = timedelta(0),
        author: str = "",
        message: str = "",
        meta: Any = None,
    ) -> Commit | None:
        """Combine data objects into large ones whose keys do not overlap, in one commit. No value changes.

        Takes memory for a few frames of each data object whose keys overlap with others, and for one of the objects
        that are written.

        Args:
            ids: The ids of at least two data objects. The default is those that overlap their neighbors, and neighbors
                that are small: no larger than a fourth of the pool's threshold.
            branch: The branch.
            cold_age: Without `ids`, leave out data objects that are younger. Where other writers delete or rewrite
                objects in the meantime, their neighbors are left out too.
            author: Who compacts.
            message: Why; by default, a summary of the compaction.
            meta: Any other value to store with the commit; see `value_of`.

        Returns:
            The commit; None where no data objects are worth compacting.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchObject: The branch has no such data object.
            DeleteConflict: Other writers deleted or rewrote data objects of `ids` in the meantime.
            InvalidValue: There are fewer than two ids, or the meta cannot be stored as a value.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal, a commit or a data object cannot be read.
        """
        details = replace(commit_details(author, message, meta), carries=True)
        objects = self.objects(branch)
        if ids is None:
            runs = runs_to_compact(objects, self.config, self._clock(), cold_age)
        else:
            runs = [checked_run(ids, [each.id for each in objects])]
        compaction = Compaction(self._loader, runs, is_optional=ids is None)
        return self._writer.commit(branch, details, compaction.plan, compact_summary)

    def merge(
        self, child: str, into: str = "main", *, author: str = "", message: str = "", meta: Any = None
    ) -> Commit | None:
        """Commit to a branch the changes of another one since their common ancestor. Return None where there are none.

        The other branch does not change. Changes that were merged before are not applied again. Transaction
        identifiers are merged, too.

        Args:
            child: The branch that is merged.
            into: The branch that gets the commit.
            author: Who merges.
            message: Why.
            meta: Any other value to store with the commit; see `value_of`.

        Raises:
            NoSuchBranch: The pool has no such branch.
            DeleteConflict: Both branches have deleted or rewritten the same data objects.
            InvalidValue: The meta cannot be stored as a value.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        tip = self.tip(child)
        details = replace(commit_details(author, message, meta), merged=tip, markers=self._commits.markers(tip))
        return self._writer.commit(
            into, details, BranchMerge(self._commits, tip, child).plan, lambda _: f"merged {child!r} into {into!r}"
        )

    def revert(
        self, commit: str, branch: str = "main", *, author: str = "", message: str = "", meta: Any = None
    ) -> Commit | None:
        """Commit the inverse of a commit: delete the data objects that it added, and add those that it deleted.

        Return None if the commit is already reverted. Transaction identifiers stay, so a reverted load cannot be
        repeated with the same one.

        Args:
            commit: The id of the commit.
            branch: The branch that has the commit.
            author: Who reverts.
            message: Why.
            meta: Any other value to store with the commit; see `value_of`.

        Raises:
            NoSuchBranch: The pool has no such branch.
            NoSuchCommit: The branch has no such commit.
            DeleteConflict: Data objects that the commit added were deleted or rewritten since. Or the commit was
                reverted, and that revert was reverted too.
            ObjectsVacuumed: Data objects that the commit deleted are gone from the store.
            InvalidValue: The meta cannot be stored as a value.
            WriteConflict: Other writers moved the branch first, each time.
            DamagedLake: The journal or a commit cannot be read.
        """
        details = commit_details(author, message, meta)
        with ExitStack() as pins:
            revert = Revert(
                self._commits, commit, lambda parent: pins.enter_context(pin(self._commits, parent, self._clock))
            )
            return self._writer.commit(branch, details, revert.plan, lambda _: f"reverted {commit}")

    def vacuum(self, retention: timedelta = RETENTION, *, dry_run: bool = False) -> VacuumResult:
        """Delete data objects, commits and cached snapshots that are older than a retention and that no branch needs.

        A vacuum keeps the data objects of the tips of branches, those that commits of branches have deleted within the
        retention, which readers may still need, and all commits of branches. It keeps those of a deleted branch for the
        retention after its deletion. It deletes what writers that died have left, and the commits of deleted branches
        that were not merged. Of the cached snapshots, it keeps those that are needed to read the pool quickly.

        In a state of a lake, nothing is deleted. The vacuum only ends the lake's retention of older states, and the
        lake collects garbage.

        Args:
            retention: Keep objects that were written or deleted within this time. **Choose one that is longer than any
                load takes**, and longer than any reader uses one state: the pool does not record which of its objects
                are in use.
            dry_run: Whether only to list the objects that would be deleted.

        Raises:
            InvalidValue: The retention is negative. Nothing was deleted.
            DamagedLake: The journal or a commit cannot be read, so it is unknown which objects are needed. Nothing was
                deleted.
        """
        if retention < timedelta(0):
            raise InvalidValue(f"the retention {retention} is negative; give a timedelta of 0 or more")
        before = self._clock() - retention
        if self._store.versioned:
            if not dry_run:
                self._store.end_retention(before)
            return VacuumResult((), 0, dry_run)
        return vacuum(self._commits, self._branches, before, self._clock, dry_run=dry_run)

    def _create_branch(self, name: str, commit: str) -> BranchConfig:
        branch = BranchConfig(nanoseconds_of(self._clock()), name, commit)
        create_branch(self._branches, branch)
        return branch

    def _state(self) -> State:
        return read_state(self._branches)

    def _resolve(self, branch: str, commit: str | None) -> str:
        if commit is None:
            return self.tip(branch)
        self._commits.check(commit)
        return commit
