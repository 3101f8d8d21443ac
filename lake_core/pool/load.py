"""Loads: rows that become sorted data objects and one commit on a branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lake_core.clock import AwareClock
from lake_core.pool.action import AddObject
from lake_core.pool.batches import batched
from lake_core.pool.branch_commit import BranchWriter, CommitDetails
from lake_core.pool.commit import Commit
from lake_core.pool.config import PoolConfig
from lake_core.pool.data_object import DataObject, data_key, seek_index_key
from lake_core.pool.ksuid import new_ksuid
from lake_core.pool.object_writer import write_object
from lake_core.pool.order import sort_values
from lake_core.pool.summary import load_summary
from lake_core.pool.value import Value
from lake_core.store import ObjectStore

_SORTED_BYTES: Final = 64 << 20
"""How many bytes of values are sorted at once, at most: they take many times as much memory."""


@dataclass(frozen=True, slots=True)
class Loader:
    """Writes to a branch of a pool.

    Attributes:
        store: The store of the lake.
        config: The pool.
        branches: Commits to its branches.
        clock: Tells the time.
    """

    store: ObjectStore
    config: PoolConfig
    branches: BranchWriter
    clock: AwareClock

    def load(self, values: Iterable[Value], branch: str, details: CommitDetails) -> Commit | None:
        """Write values and commit them. Return None where there are none, or the branch has the marker already.

        Raises:
            NoSuchBranch: The pool has no such branch. Nothing was written.
            WriteConflict: Other writers came first each time. Data objects that no commit names were left behind.
            DamagedLake: The journal or a commit cannot be read.
        """
        if self.branches.is_recorded(branch, details.txn):
            return None
        objects = self.write(values)
        return self.add(objects, branch, details) if objects else None

    def write(self, values: Iterable[Value]) -> list[DataObject]:
        """Write values as data objects that no commit names yet."""
        return [self._write(batch) for batch in batched(values, min(self.config.threshold, _SORTED_BYTES))]

    def discard(self, objects: Sequence[DataObject]) -> None:
        """Delete data objects that no commit names."""
        self.store.delete([key(self.config.id, each.id) for each in objects for key in (data_key, seek_index_key)])

    def add(self, objects: Sequence[DataObject], branch: str, details: CommitDetails) -> Commit | None:
        """Commit data objects that were written before. Return None where there are none, or the branch has the marker already.

        Raises:
            NoSuchBranch: The pool has no such branch.
            WriteConflict: Other writers came first each time. No commit names the data objects.
            DamagedLake: The journal or a commit cannot be read.
        """
        return self.branches.commit(branch, details, lambda _: list(map(AddObject, objects)), load_summary)

    def _write(self, values: Sequence[Value]) -> DataObject:
        ordered = sort_values(values, self.config.keys, descending=self.config.descending)
        return write_object(self.store, self.config, new_ksuid(self.clock()), ordered)
