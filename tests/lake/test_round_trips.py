"""How many requests wait for one another, in a process that opened nothing before: what a distant bucket costs."""

from __future__ import annotations

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.store import MemoryStore
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
    assert store.measure(lambda: Lake.open(store).at("main").exists("file")) <= 3


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
