"""A session whose flush or publish ends with an unknown outcome: nothing is lost, and nothing is written twice.

The store fails at one operation, which has happened or not, and stays away for a while.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, TypeVar

import pytest

from lake_core import Lake, runtime
from lake_core.errors import LakeError
from lake_core.lake.errors import Conflict, SessionClosed
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.id_datasets import Array, Pool, Table
from tests.outage import Outage

_T = TypeVar("_T")
_AWAY = 400
"""For how many operations the store stays away: longer than anybody tries again."""
Dataset = Table | Pool | Array


@pytest.fixture(params=[Table, Pool, Array], ids=["table", "pool", "array"])
def dataset(request: pytest.FixtureRequest) -> Dataset:
    dataset: Dataset = request.param()
    return dataset


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(runtime, "_SYSTEM", runtime.Runtime(sleep=sleep, monotonic=lambda: now[0]))


def _opened(dataset: Dataset) -> tuple[Outage, Lake]:
    clock = ManualClock()
    store = Outage(MemoryStore(clock=clock))
    lake = Lake.create(store, clock=clock)
    with lake.session() as s:
        dataset.create(s)
    return store, lake


@pytest.mark.parametrize("mode", ["before", "after"])
def test_what_is_written_after_a_flush_that_did_not_end_is_there(
    dataset: Dataset, mode: Literal["before", "after"]
) -> None:
    for operation in range(1, 300):
        store, lake = _opened(dataset)
        shared = lake.open_session(id="run")
        with shared.join(task="load") as writer:
            dataset.add(writer, 1)
            store.begin(operation, mode)
            with suppress(LakeError):
                writer.flush()
            if not store.end():
                break
            dataset.add(writer, 2)
            writer.flush()
            dataset.add(writer, 3)
        shared.publish()
        assert dataset.ids(lake) == [1, 2, 3], f"operation {operation}"
    assert operation > 5


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_publish_that_did_not_end_is_repeated_before_more_is_written(
    dataset: Dataset, mode: Literal["before", "after"]
) -> None:
    refusals = 0
    for operation in range(1, 300):
        store, lake = _opened(dataset)
        session = lake.session()
        dataset.add(session, 1)
        store.begin(operation, mode)
        with suppress(LakeError):
            session.publish()
        if not store.end():
            break
        if session.state == "unsettled":
            refusals += 1
            with pytest.raises(SessionClosed, match="publish it again"):
                dataset.add(session, 2)
        session.publish()
        assert dataset.ids(lake) == [1], f"operation {operation}"
        session.publish()
        assert dataset.ids(lake) == [1], f"operation {operation}"
    assert refusals > 5


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_interrupted_publish_is_repeated_before_more_is_written(
    dataset: Dataset, mode: Literal["before", "after"]
) -> None:
    for operation in range(1, 300, 7):
        store, lake = _opened(dataset)
        session = lake.session()
        dataset.add(session, 1)
        store.begin(operation, mode, KeyboardInterrupt())
        with suppress(KeyboardInterrupt, LakeError):
            session.publish()
        if not store.end():
            break
        if session.state == "unsettled":
            with pytest.raises(SessionClosed):
                dataset.add(session, 2)
        session.publish()
        assert dataset.ids(lake) == [1], f"operation {operation}"
    assert operation > 5


def test_a_session_that_conflicts_is_kept_apart_from_an_earlier_one_of_its_id(lake: Lake) -> None:
    kept = []
    for run in (1, 2):
        session = lake.session(id="hourly")
        session.put("total", b"%d" % run)
        session.put(f"out/{run}", b"1")
        with lake.session() as other:
            other.put("total", b"other %d" % run)
        with pytest.raises(Conflict) as caught:
            session.publish()
        kept.append(caught.value.session)
        assert kept[-1] in str(caught.value)
    assert kept[0] == "hourly"
    for run, id in enumerate(kept, 1):
        assert [meta.key for meta in lake.get_session(id).list("out/")] == [f"out/{run}"]
