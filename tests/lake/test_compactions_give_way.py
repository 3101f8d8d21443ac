"""A session that changes what was compacted since it began publishes: the compaction is undone, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.lake.session.write_session import WriteSession
from lake_core.store import MemoryStore
from lake_core.testing.fault_store import FaultMode
from lake_core.testing.manual_clock import ManualClock
from tests.examples import exhaustive, stride
from tests.lake.id_datasets import PATH, Pool, Table
from tests.lake.lakes import died_at, opened


@pytest.fixture(params=[Table, Pool], ids=["table", "pool"])
def dataset(request: pytest.FixtureRequest) -> Table | Pool:
    dataset: Table | Pool = request.param()
    return dataset


@pytest.fixture
def lake(empty: Lake, dataset: Table | Pool) -> Lake:
    """A lake whose dataset has the ids 1 to 4 in two files."""
    with empty.session() as s:
        dataset.create(s)
        dataset.add(s, 1, 2)
    with empty.session() as s:
        dataset.add(s, 3, 4)
    return empty


def _is_data(key: str) -> bool:
    return key.endswith(".parquet") or "/data/" in key


def _do(lake: Lake, *operations: Callable[[WriteSession], object]) -> str:
    """Do operations in a session, and return the commit."""
    with lake.session() as s:
        for operation in operations:
            operation(s)
    return lake.list_branches()["main"]


def test_a_deletion_publishes(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.delete(late, 1)
    compaction = _do(lake, dataset.compact)
    assert late.publish().undone == (compaction,)
    assert dataset.ids(lake) == [2, 3, 4]
    assert lake.maintenance.verify() == []


def test_a_shared_session_publishes(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.open_session()
    with late.join() as w:
        dataset.delete(w, 1)
    compaction = _do(lake, dataset.compact)
    assert late.publish().undone == (compaction,)
    assert dataset.ids(lake) == [2, 3, 4]


def _create_again(session: WriteSession, dataset: Table | Pool) -> None:
    session.drop(PATH)
    dataset.create(session)
    dataset.add(session, 9)


def test_a_dataset_that_is_created_again_publishes(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    _create_again(late, dataset)
    compaction = _do(lake, dataset.compact)
    assert late.publish().undone == (compaction,)
    assert dataset.ids(lake) == [9]
    assert lake.maintenance.verify() == []


def test_a_dataset_that_others_wrote_to_is_not_created_again(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    _create_again(late, dataset)
    _do(lake, dataset.compact)
    _do(lake, lambda s: dataset.add(s, 5))
    with pytest.raises(Conflict, match="drop it and create it again"):
        late.publish()
    assert dataset.ids(lake) == [1, 2, 3, 4, 5]


def test_rows_that_came_after_the_compaction_stay(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.delete(late, 1)
    _do(lake, dataset.compact)
    _do(lake, lambda s: dataset.add(s, 5))
    late.publish()
    assert dataset.ids(lake) == [2, 3, 4, 5]


def test_several_compactions_are_undone(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.delete(late, 1)
    first = _do(lake, dataset.compact)
    _do(lake, lambda s: dataset.add(s, 5))
    second = _do(lake, dataset.compact)
    assert late.publish().undone == (second, first)
    assert dataset.ids(lake) == [2, 3, 4, 5]


def test_the_session_can_be_reverted(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.delete(late, 1)
    _do(lake, dataset.compact)
    lake.revert(late.publish().commit)
    assert dataset.ids(lake) == [1, 2, 3, 4]


def test_a_compaction_below_a_change_of_its_rows_does_not_give_way(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.delete(late, 1)
    _do(lake, dataset.compact)
    head = _do(lake, lambda s: dataset.delete(s, 3))
    with pytest.raises(Conflict):
        late.publish()
    assert lake.list_branches()["main"] == head


def test_nothing_is_undone_for_a_session_that_conflicts_anyway(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.delete(late, 1)
    late.put("notes.txt", b"mine")
    _do(lake, dataset.compact)
    head = _do(lake, lambda s: s.put("notes.txt", b"theirs"))
    with pytest.raises(Conflict) as caught:
        late.publish()
    assert set(caught.value.kinds) == {PATH, "notes.txt"}
    assert lake.list_branches()["main"] == head


def test_nothing_is_undone_for_another_compaction(lake: Lake, dataset: Table | Pool) -> None:
    late = lake.session()
    dataset.compact(late)
    head = _do(lake, dataset.compact)
    with pytest.raises(Conflict):
        late.publish()
    assert lake.list_branches()["main"] == head


def test_a_compaction_whose_files_are_gone_does_not_give_way(
    lake: Lake, dataset: Table | Pool, store: MemoryStore
) -> None:
    old = {meta.key for meta in store.list() if meta.key.startswith(f"{PATH}/") and _is_data(meta.key)}
    late = lake.session()
    dataset.delete(late, 1)
    head = _do(lake, dataset.compact)
    store.delete(list(old))
    with pytest.raises(Conflict):
        late.publish()
    assert lake.list_branches()["main"] == head
    assert dataset.ids(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["before", *exhaustive(["after"])])
def test_a_publisher_that_dies_anywhere_leaves_all_rows(dataset: Table | Pool, mode: FaultMode) -> None:
    """After each death, the next attempt publishes the deletion once."""

    def make(time: ManualClock) -> MemoryStore:
        store = MemoryStore(clock=time)
        lake = Lake.create(store, clock=time)
        _do(lake, dataset.create, lambda s: dataset.add(s, 1, 2))
        _do(lake, lambda s: dataset.add(s, 3, 4))
        late = lake.open_session("main", id="late")
        with late.join() as w:
            dataset.delete(w, 1)
        _do(lake, dataset.compact)
        return store

    def publish(lake: Lake) -> None:
        lake.get_session("late").publish()

    for operation in range(1, 400, stride(7)):
        store, time, fired = died_at(operation, mode, publish, make)
        lake = opened(store, time)
        assert dataset.ids(lake) in ([1, 2, 3, 4], [2, 3, 4]), f"operation {operation}"
        publish(lake)
        assert dataset.ids(lake) == [2, 3, 4], f"operation {operation}"
        if not fired:
            break
    assert operation > 20
