"""Processes that die at any store operation: a pool is as it was or as it was to become, and the next write works."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from lake_core.pool import Pool, PoolLake, branch_commit
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore, ManualClock, StoreDied
from lake_core.testing.fault_store import FaultMode

VERBS: dict[str, Callable[[Pool], object]] = {
    "load": lambda pool: pool.load([{"k": 9}], txn=("app", 1)),
    "delete": lambda pool: pool.delete("k = 2"),
    "compact": lambda pool: pool.compact(),
    "merge": lambda pool: pool.merge("dev"),
    "revert": lambda pool: pool.revert(next(iter(pool.log())).id),
    "create_branch": lambda pool: pool.create_branch("new"),
    "delete_branch": lambda pool: pool.delete_branch("dev"),
    "vacuum": lambda pool: pool.vacuum(dt.timedelta(0)),
}


def build() -> MemoryStore:
    """Return a lake with two branches, and with data objects that a vacuum deletes."""
    store = MemoryStore()
    pool = PoolLake.create(store).create_pool("events", key="k", order="asc")
    pool.load([{"k": 1}, {"k": 2}])
    pool.create_branch("dev")
    pool.load([{"k": 3}], "dev")
    pool.delete("k = 1", "dev")
    pool.load([{"k": 4}])
    pool.write_objects([{"k": 5}])
    return store


@pytest.fixture(autouse=True)
def snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache a snapshot after each commit."""
    monkeypatch.setattr(branch_commit, "_SNAPSHOT_EVERY", 1)


def contents(store: ObjectStore) -> dict[str, list[int]]:
    """Return the keys of each branch."""
    pool = PoolLake.open(store).pool("events")
    return {
        branch.name: [record["k"] for record in pool.scan(branch.name).records()] for branch in pool.list_branches()
    }


def copied(store: ObjectStore) -> MemoryStore:
    copy = MemoryStore()
    for meta in store.list():
        copy.put(meta.key, store.get(meta.key))
    return copy


@pytest.fixture(scope="module")
def original() -> MemoryStore:
    return build()


def run(store: ObjectStore, verb: str) -> None:
    # Ahead of the store's clock, so that a vacuum finds what was just written to be old.
    clock = ManualClock(dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    VERBS[verb](PoolLake.open(store, clock=clock).pool("events"))


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.exhaustive), "after"])
@pytest.mark.parametrize("verb", VERBS)
def test_death_at_any_operation_leaves_the_state_before_or_after(
    original: MemoryStore, verb: str, mode: FaultMode
) -> None:
    before = contents(original)
    whole = FaultStore(copied(original), 0)
    run(whole, verb)
    after = contents(whole.inner)
    writes = -1
    for at in range(1, whole.operations + 1):
        store = FaultStore(copied(original), at, mode)
        with pytest.raises(StoreDied):
            run(store, verb)
        if store.writes == writes:
            continue  # the operation read: the store is as the death before left it
        writes = store.writes
        state = contents(store.inner)
        assert state in (before, after), f"{mode} operation {at}"
        if state == before and verb != "vacuum":
            run(store.inner, verb)
            assert contents(store.inner) == after, f"again after {mode} operation {at}"
        assert PoolLake.open(store.inner).pool("events").load([{"k": 7}]) is not None
        run(store.inner, "vacuum")
        assert contents(store.inner)["main"].count(7) == 1


def test_a_load_that_died_and_is_tried_again_happens_once(original: MemoryStore) -> None:
    whole = FaultStore(copied(original), 0)
    run(whole, "load")
    for at in range(1, whole.operations + 1):
        store = FaultStore(copied(original), at, "after")
        with pytest.raises(StoreDied):
            run(store, "load")
        run(store.inner, "load")
        assert contents(store.inner)["main"].count(9) == 1
