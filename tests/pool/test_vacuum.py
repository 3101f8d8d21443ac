"""Vacuums of pools: what goes, and what stays."""

from __future__ import annotations

import datetime as dt

import pytest

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import InvalidValue, NoSuchCommit, ObjectsVacuumed
from lake_core.store import MemoryStore, ObjectStore
from lake_core.testing import FaultStore, ManualClock, StoreDied

NOW = dt.timedelta(0)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that is ahead of the store's, so that what was just written counts as old."""
    return ManualClock(dt.datetime.now(dt.UTC) + dt.timedelta(days=1))


@pytest.fixture
def pool(clock: ManualClock) -> Pool:
    pool = PoolLake.create(MemoryStore(), clock=clock).create_pool("events", key="k", order="asc")
    for key in (1, 2, 3):
        pool.load([{"k": key}])
    return pool


def keys(pool: Pool, branch: str = "main", commit: str | None = None) -> list[int]:
    return [record["k"] for record in pool.scan(branch, commit).records()]


def copied(store: ObjectStore) -> MemoryStore:
    copy = MemoryStore()
    for meta in store.list():
        copy.put(meta.key, store.get(meta.key))
    return copy


def files(pool: Pool, folder: str) -> int:
    return len(list(pool.store.list(f"{pool.config.id}/{folder}/")))


def test_objects_that_no_tip_has_go_after_the_retention(pool: Pool, clock: ManualClock) -> None:
    pool.compact()
    assert pool.vacuum().keys == ()
    clock.pass_days(8)
    result = pool.vacuum()
    assert (len(result.keys), result.bytes > 0, files(pool, "data")) == (6, True, 2)
    assert keys(pool) == [1, 2, 3]
    assert pool.vacuum().keys == ()


def test_a_dry_run_deletes_nothing(pool: Pool, clock: ManualClock) -> None:
    pool.compact()
    clock.pass_days(8)
    before = files(pool, "data")
    result = pool.vacuum(dry_run=True)
    assert (len(result.keys), result.dry_run, files(pool, "data")) == (6, True, before)


def test_what_another_branch_has_stays(pool: Pool, clock: ManualClock) -> None:
    pool.create_branch("dev")
    pool.delete("true")
    clock.pass_days(8)
    pool.vacuum()
    assert keys(pool, "dev") == [1, 2, 3]


def test_an_earlier_state_is_read_within_the_retention(pool: Pool, clock: ManualClock) -> None:
    clock.pass_days(30)
    before = pool.tip()
    pool.delete("k = 2")
    clock.pass_days(6)
    pool.vacuum()
    assert keys(pool, commit=before) == [1, 2, 3]


def test_objects_of_dead_loads_go_after_the_retention_too(pool: Pool, clock: ManualClock) -> None:
    pool.write_objects([{"k": 9}])
    assert pool.vacuum().keys == ()
    clock.pass_days(8)
    assert len(pool.vacuum().keys) == 2


def test_commits_of_deleted_branches_go_and_those_of_others_stay(pool: Pool, clock: ManualClock) -> None:
    pool.create_branch("dev")
    pool.load([{"k": 4}], "dev")
    pool.delete_branch("dev")
    clock.pass_days(8)
    assert len(pool.vacuum().keys) == 3
    assert len(list(pool.log())) == files(pool, "commits") == 3


def test_a_deleted_branch_is_read_by_its_commit_within_the_retention(clock: ManualClock) -> None:
    pool = PoolLake.create(MemoryStore(clock=clock), clock=clock).create_pool("events", key="k", order="asc")
    pool.create_branch("dev")
    pool.load([{"k": 4}], "dev")
    tip = pool.tip("dev")
    clock.pass_days(30)
    pool.delete_branch("dev")
    pool.vacuum()
    assert keys(pool, commit=tip) == [4]
    clock.pass_days(8)
    pool.vacuum()
    with pytest.raises(NoSuchCommit):
        pool.scan(commit=tip)


def test_a_branch_does_not_begin_at_a_commit_that_was_vacuumed(pool: Pool, clock: ManualClock) -> None:
    before = pool.tip()
    pool.delete("k = 2")
    clock.pass_days(8)
    pool.vacuum()
    with pytest.raises(ObjectsVacuumed, match="a branch cannot begin at"):
        pool.create_branch("before", at=before)
    assert [branch.name for branch in pool.list_branches()] == ["main"]


@pytest.mark.parametrize("verb", ["revert", "create_branch"])
def test_a_vacuum_that_died_is_taken_for_one_that_goes_on(pool: Pool, clock: ManualClock, verb: str) -> None:
    before = pool.tip()
    deletion = pool.delete("k = 2")
    assert deletion is not None
    clock.pass_days(8)
    # Its last operation removes the list of what it deletes, and the one before it deletes.
    whole = FaultStore(copied(pool.store), 0)
    PoolLake.open(whole, clock=clock).pool("events").vacuum()
    store = FaultStore(copied(pool.store), whole.operations - 1, "before")
    with pytest.raises(StoreDied):
        PoolLake.open(store, clock=clock).pool("events").vacuum()
    left = PoolLake.open(store.inner, clock=clock).pool("events")
    with pytest.raises(ObjectsVacuumed):
        left.revert(deletion.id) if verb == "revert" else left.create_branch("before", at=before)
    left.vacuum()
    assert keys(left) == [1, 3]
    clock.pass_days(8)
    left.vacuum()
    assert files(left, "deletions") == files(left, "pins") == 0


def test_cached_snapshots_are_pruned(clock: ManualClock) -> None:
    pool = PoolLake.create(MemoryStore(), clock=clock).create_pool("events", key="k", order="asc")
    for key in range(100):
        pool.load([{"k": key}])
    assert files(pool, "commits") == 103
    clock.pass_days(8)
    assert len(pool.vacuum().keys) == 2
    assert len(pool.objects()) == 100


def test_objects_stay_that_are_young_by_the_clock_of_their_writer(pool: Pool, clock: ManualClock) -> None:
    ahead = ManualClock(clock.now + dt.timedelta(days=30))
    PoolLake.open(pool.store, clock=ahead).pool("events").write_objects([{"k": 1}])
    assert pool.vacuum(NOW).keys == ()


def test_a_negative_retention_is_refused(pool: Pool) -> None:
    with pytest.raises(InvalidValue):
        pool.vacuum(dt.timedelta(days=-1))
