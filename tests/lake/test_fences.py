"""Private sessions of an owner whose work others have taken over publish nothing any longer."""

from __future__ import annotations

from itertools import count

import pytest

from lake_core import Lake
from lake_core.journal import Add
from lake_core.lake.errors import DamagedLake, StaleEpoch
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, ids, opened, rows
from tests.racing_store import RacingStore


def test_a_session_that_is_open_is_not_published(lake: Lake) -> None:
    with pytest.raises(StaleEpoch, match="'run-1' is fenced"), lake.session(owner="run-1") as session:
        session.put("rows", b"1")
        lake.fence("run-1")
    assert not lake.at().exists("rows")


def test_a_session_cannot_begin(lake: Lake) -> None:
    lake.fence("run-1", "run-2")
    for owner in ("run-1", "run-2"):
        with pytest.raises(StaleEpoch):
            lake.session(owner=owner)


def test_others_publish(lake: Lake) -> None:
    lake.fence("run-1")
    for owner in ("run-10", "run-", ""):
        with lake.session(owner=owner) as session:
            session.put(f"of {owner}", b"1")
    assert {f"of {owner}" for owner in ("run-10", "run-", "")} <= {meta.key for meta in lake.at().list()}


def test_what_was_published_before_stays_and_is_told_again(lake: Lake) -> None:
    """The answer of a publish may be lost, and the owner fenced before it is asked for again."""
    session = lake.session(owner="run-1")
    session.put("rows", b"1")
    published = session.publish()
    lake.fence("run-1")
    session.result = None
    session.changes.status = "open"
    assert session.publish().commit == published.commit


def test_a_fence_that_is_set_again_lasts_from_then_on(lake: Lake, time: ManualClock) -> None:
    lake.fence("run-1")
    time.pass_days(20)
    lake.fence("run-1")
    time.pass_days(20)
    lake.maintenance.gc()
    with pytest.raises(StaleEpoch):
        lake.session(owner="run-1")


def test_a_collection_removes_a_fence_whose_time_is_up(lake: Lake, time: ManualClock) -> None:
    lake.fence("run-1")
    time.pass_days(31)
    lake.maintenance.gc()
    assert lake.repository.refs().under("fence/") == {}


def test_a_damaged_fence_is_told(lake: Lake) -> None:
    lake.repository.journal.append(lambda _: [Add("fence/run-1", {"until": "tomorrow"})])
    with pytest.raises(DamagedLake, match="fence/run-1"):
        lake.maintenance.gc()


def test_of_a_publish_and_a_fence_one_is_first(time: ManualClock) -> None:
    """The fence is set before each operation of the publish in turn: what is not there then never comes."""
    seen_outcomes = set()
    for operation in count(1):
        store = MemoryStore(clock=time)
        lake = Lake.create(store, clock=time)
        with lake.session() as session:
            session.create_delta("t", SCHEMA)
        at_fence: list[str] = []

        def fence(lake: Lake = lake, at_fence: list[str] = at_fence) -> None:
            lake.fence("run-1")
            at_fence.append(lake.list_branches()["main"])

        try:
            with opened(RacingStore(store, operation, fence), time).session(owner="run-1") as session:
                session.delta("t").append(rows([1]))
            is_published = True
        except StaleEpoch:
            is_published = False
        if not at_fence:
            break
        assert lake.list_branches()["main"] == at_fence[0], f"nothing is published after operation {operation}"
        assert ids(lake.delta("t")) == [1] * is_published, f"the publish says what it did at operation {operation}"
        seen_outcomes.add(is_published)
    assert seen_outcomes == {True, False}
