"""How many requests wait for one another, in a process that opened nothing before: what a distant bucket costs."""

from __future__ import annotations

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.store import FolderStore, MemoryStore
from tests.lake.lakes import SCHEMA, rows
from tests.store.round_trips import RoundTripStore

TABLES = ("t/a", "t/b", "t/c")


@pytest.fixture
def store() -> RoundTripStore:
    """A lake with three tables, and a history that is longer than a snapshot of the refs is apart from the next."""
    store = RoundTripStore(MemoryStore())
    lake = Lake.create(store)
    with lake.session() as s:
        for path in TABLES:
            s.create_delta(path, SCHEMA)
    for number in range(70):
        with lake.session() as s:
            s.delta("t/a").append(rows([number]))
    return store


def test_opening_a_lake_at_a_branch(store: RoundTripStore) -> None:
    assert store.measure(lambda: Lake.open(store).at("main")) <= 2


def test_opening_a_lake_and_reading_the_version_of_a_table(store: RoundTripStore) -> None:
    assert store.measure(lambda: Lake.open(store).delta("t/a").version) <= 4


def test_opening_a_table_with_a_checkpoint_and_ten_commits() -> None:
    store = RoundTripStore(MemoryStore())
    table = DeltaTable.create(store, SCHEMA)
    for number in range(20):
        table.append(rows([number]))
    assert store.measure(lambda: DeltaTable.open(store).files) <= 3


def test_appending_to_a_table() -> None:
    store = RoundTripStore(MemoryStore())
    DeltaTable.create(store, SCHEMA)
    assert store.measure(lambda: DeltaTable.open(store).append(rows([1]))) <= 6


@pytest.mark.parametrize(("before", "most"), [(0, 18), (1, 10)], ids=["the first of a process", "a later one"])
def test_publishing_a_session_of_three_tables(store: RoundTripStore, before: int, most: int) -> None:
    lake = Lake.open(store)
    for number in range(before + 1):
        session = lake.session()
        for path in TABLES:
            session.delta(path).append(rows([100 + number]))
        round_trips = store.measure(session.publish)
    assert round_trips <= most


@pytest.mark.extended
def test_merging_two_branches(store: RoundTripStore) -> None:
    lake = Lake.open(store)
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/a").append(rows([100]))
    with lake.session() as s:
        s.delta("t/b").append(rows([100]))
    assert store.measure(lambda: lake.merge("dev")) <= 14


@pytest.mark.extended
def test_a_sensors_look_at_what_was_published(store: RoundTripStore) -> None:
    lake = Lake.open(store)
    lake.log(limit=1)
    with Lake.open(store).session() as s:
        s.delta("t/b").append(rows([100]))
    assert store.measure(lambda: lake.log(limit=10)) <= 2


@pytest.mark.extended
def test_publishing_after_a_publisher_that_died_before_main_was_in_place(store: RoundTripStore) -> None:
    lake = Lake.open(store)
    with lake.session() as s:
        s.delta("t/a").append(rows([100]))
    session = Lake.open(store).session()
    for path in TABLES:
        session.delta(path).append(rows([101]))
    session.publish()
    for path in TABLES:
        newest = max(meta.key for meta in store.inner.list(f"{path}/_delta_log/") if meta.key.endswith(".json"))
        store.inner.delete([newest])
    session = lake.session()
    session.delta("t/a").append(rows([102]))
    assert store.measure(session.publish) <= 14
    assert all(lake.delta(path).version == DeltaTable.open(FolderStore(store.inner, path)).version for path in TABLES)
