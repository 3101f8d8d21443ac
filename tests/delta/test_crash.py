"""A store that dies before or after each of its operations: the table stays readable, and the next attempt finishes."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.snapshot import load_snapshot
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied
from tests.delta.tables import SCHEMA, ids, rows

Write = Callable[[ObjectStore], object]


def _create(store: ObjectStore) -> object:
    return DeltaTable.create(store, SCHEMA, partition_by=["p"], exist_ok=True, properties={"delta.checkpointInterval": "2"})


def _append(store: ObjectStore) -> object:
    return DeltaTable.open(store).append(rows(100, 104), txn=("crash", 1))


def _overwrite(store: ObjectStore) -> object:
    return DeltaTable.open(store).overwrite(rows(100, 104), txn=("crash", 1))


def _overwrite_partition(store: ObjectStore) -> object:
    return DeltaTable.open(store).overwrite(rows(100, 101, parts=1), where="p = 'p0'", txn=("crash", 1))


def _checkpoint(store: ObjectStore) -> object:
    return DeltaTable.open(store).checkpoint()


BEFORE = list(range(6))
AFTER = {
    _append: [*BEFORE, 100, 101, 102, 103],
    _overwrite: [100, 101, 102, 103],
    _overwrite_partition: [1, 2, 4, 5, 100],
    _checkpoint: BEFORE,
}


def _table(commits: int) -> MemoryStore:
    store = MemoryStore()
    _create(store)
    table = DeltaTable.open(store)
    for number in range(commits):
        table.append(rows(number * 6 // commits, (number + 1) * 6 // commits))
    return store


def _operations(write: Write, commits: int) -> int:
    probe = FaultStore(_table(commits), at=10**9)
    write(probe)
    return probe.operations


# With two commits before, the write's own commit is version 3; with three it is version 4, which is checkpointed.
@pytest.mark.parametrize("commits", [2, 3])
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("write", AFTER)
def test_a_death_at_any_operation(write: Write, mode: str, commits: int) -> None:
    died = 0
    for at in range(1, _operations(write, commits) + 1):
        store = _table(commits)
        fault = FaultStore(store, at, mode)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a checkpoint that fails after its commit is a warning
            try:
                write(fault)
            except StoreDied:
                died += 1
        assert fault.fired
        seen = ids(DeltaTable.open(store).to_arrow())
        assert seen in (BEFORE, AFTER[write]), f"operation {at}"
        write(store)
        assert ids(DeltaTable.open(store).to_arrow()) == AFTER[write], f"operation {at}"
        # The log is whole: every version can be rebuilt from version 0 on, without any checkpoint.
        for meta in list(store.list("_delta_log/")):
            if not meta.key.endswith(".json"):
                store.delete([meta.key])
        assert ids(DeltaTable.open(store).to_arrow()) == AFTER[write]
        assert DeltaTable.open(store).append(rows(200, 201)).rows == 1
    assert died >= 3


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_death_while_a_table_is_created(mode: str) -> None:
    probe = FaultStore(MemoryStore(), at=10**9)
    _create(probe)
    for at in range(1, probe.operations + 1):
        store = MemoryStore()
        with pytest.raises(StoreDied):
            _create(FaultStore(store, at, mode))  # type: ignore[arg-type]
        _create(store)
        assert load_snapshot(store).version == 0
        assert DeltaTable.open(store).append(rows(0, 2)).rows == 2
