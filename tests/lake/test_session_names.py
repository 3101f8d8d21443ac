"""Ids of sessions: those that are made of other names, and those of the next generation of a run."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lake_core import Lake
from lake_core.lake.errors import SessionClosed
from lake_core.lake.refs.refs_state import check_name

_PARTS = st.lists(st.text(), min_size=1, max_size=4)


@given(_PARTS)
def test_a_name_is_valid_whatever_it_is_made_of(parts: list[str]) -> None:
    check_name(Lake.session_name(*parts), "session")


@given(_PARTS, _PARTS)
def test_other_parts_give_another_name(parts: list[str], others: list[str]) -> None:
    assert (Lake.session_name(*parts) == Lake.session_name(*others)) == (parts == others)


def test_a_name_shows_what_it_is_made_of() -> None:
    name = Lake.session_name("shop", "scheduled__2026-01-01T00:00:00+00:00")
    assert name.startswith("shop-scheduled-2026-01-01T00-00")


def test_a_name_is_made_of_something() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Lake.session_name()


def test_a_run_that_was_published_goes_on_in_its_next_generation(lake: Lake) -> None:
    ids = []
    for number in range(3):
        session = lake.open_session(id="run", renew=True)
        assert lake.open_session(id="run", renew=True, resume=False).id == session.id
        with session.join() as writer:
            writer.put(f"out/{number}", b"1")
        session.publish()
        ids.append(session.id)
    assert ids == ["run", "run.2", "run.3"]
    assert [meta.key for meta in lake.at().list("out/")] == ["out/0", "out/1", "out/2"]


@pytest.mark.parametrize("end", ["abandon", "publish"])
def test_a_generation_that_has_ended_in_any_way_is_followed_by_another(lake: Lake, end: str) -> None:
    getattr(lake.open_session(id="run"), end)()
    assert lake.open_session(id="run", renew=True).id == "run.2"


def test_a_failed_generation_is_resumed(lake: Lake) -> None:
    lake.open_session(id="run").fail("a step failed")
    resumed = lake.open_session(id="run", renew=True)
    assert (resumed.id, resumed.epoch) == ("run", 2)


def test_a_session_of_another_name_is_no_generation(lake: Lake) -> None:
    for id in ("run.x", "run.02", "run.1", "run-2", "runs"):
        lake.open_session(id=id).publish()
    assert lake.open_session(id="run", renew=True).id == "run"


def test_without_renewal_an_ended_session_is_refused(lake: Lake) -> None:
    lake.open_session(id="run").publish()
    with pytest.raises(SessionClosed):
        lake.open_session(id="run")
