"""Loads: rows that become sorted data objects and one commit on a branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.pool.action import AddObject
from lake_core.pool.ksuid import new_ksuid
from lake_core.pool.object_sorter import write_unsorted
from lake_core.pool.summary import load_summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.clock import AwareClock
    from lake_core.pool.branch_commit import BranchWriter, CommitDetails
    from lake_core.pool.commit import Commit
    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.value_batch import ValueBatch
    from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Loader:
    """A writer of rows to the branches of a pool.

    Attributes:
        store: The store of the lake.
        config: The pool.
        branches: Makes commits on its branches.
        clock: Returns the time.
    """

    store: ObjectStore
    config: PoolConfig
    branches: BranchWriter
    clock: AwareClock

    def load(self, batches: Iterable[ValueBatch], branch: str, details: CommitDetails) -> Commit | None:
        """Write values and commit them. Return None where there are none, or the branch already has the `txn`.

        Raises:
            NoSuchBranch: The pool has no such branch. Nothing was written.
            WriteConflict: Other writers moved the branch first, each time. Data objects that no commit names were left
                behind.
            DamagedLake: The journal or a commit cannot be read.
        """
        if self.branches.is_recorded(branch, details.txn):
            return None
        objects = self.write(batches)
        return self.add(objects, branch, details) if objects else None

    def write(self, batches: Iterable[ValueBatch]) -> list[DataObject]:
        """Sort values and write them as data objects, without a commit. Takes as much memory as `write_unsorted`."""
        return list(write_unsorted(self.store, self.config, batches, self.new_id))

    def new_id(self) -> str:
        """Return the id of a new data object."""
        return new_ksuid(self.clock())

    def add(self, objects: Sequence[DataObject], branch: str, details: CommitDetails) -> Commit | None:
        """Commit data objects that were written before.

        Return None where there are none, or the branch already has the `txn`.

        Raises:
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers moved the branch first, each time. No commit names the data objects.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self.branches.commit(branch, details, lambda _: list(map(AddObject, objects)), load_summary)
