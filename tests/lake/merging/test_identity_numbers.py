"""Numbers of identity columns through sessions and branches: none is in a table twice, and none is given back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_core.store import MemoryStore

NUMBER = {"delta.identity.start": "1", "delta.identity.step": "1", "delta.identity.allowExplicitInsert": "false"}
SCHEMA = pa.schema([pa.field("n", pa.int64(), metadata=NUMBER), ("v", pa.string())])


@pytest.fixture
def lake() -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        session.create_delta("t", SCHEMA)
    return lake


def append(lake: Lake, value: str, branch: str = "main") -> None:
    with lake.session(branch) as session:
        session.delta("t").append(pa.table({"v": [value]}))


def held(lake: Lake, branch: str = "main") -> list[tuple[int, str]]:
    return sorted((row["n"], row["v"]) for row in lake.delta("t", ref=branch).to_arrow().to_pylist())


def test_of_two_sessions_that_gave_the_same_numbers_one_is_refused(lake: Lake) -> None:
    opened = lake.open_session("main", id="other")
    with opened.join(task="t", attempt=1) as writer:
        writer.delta("t").append(pa.table({"v": ["a"]}))
    append(lake, "b")
    with pytest.raises(Conflict, match="the same numbers"):
        opened.publish()
    assert held(lake) == [(1, "b")]


def test_of_two_branches_that_gave_the_same_numbers_one_is_refused(lake: Lake) -> None:
    lake.create_branch("dev")
    append(lake, "a")
    append(lake, "b", "dev")
    with pytest.raises(Conflict, match="the same numbers"):
        lake.merge("dev")
    assert held(lake) == [(1, "a")]


def test_of_two_branches_that_created_the_table_and_gave_the_same_numbers_one_is_refused() -> None:
    lake = Lake.create(MemoryStore())
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as session:
            session.create_delta("t", SCHEMA).append(pa.table({"v": [branch]}))
    with pytest.raises(Conflict, match="the same numbers"):
        lake.merge("dev")
    assert held(lake) == [(1, "main")]


def test_rows_that_were_picked_do_not_conflict_with_themselves(lake: Lake) -> None:
    lake.create_branch("dev")
    append(lake, "a", "dev")
    picked = lake.log("dev")[0].id
    with lake.session("dev") as session:
        session.delta("t").update({"v": "'a2'"}, "n = 1")
    lake.cherry_pick(picked, onto="main")
    lake.merge("dev")
    assert held(lake) == [(1, "a2")]


def test_an_append_is_reverted_after_a_later_one(lake: Lake) -> None:
    append(lake, "a")
    append(lake, "b")
    lake.revert("main~1")
    assert held(lake) == [(2, "b")]
    append(lake, "c")
    assert held(lake) == [(2, "b"), (3, "c")]


def test_what_was_reverted_comes_back_with_its_numbers(lake: Lake) -> None:
    append(lake, "a")
    lake.revert("main")
    append(lake, "b")
    lake.revert("main~1")
    assert held(lake) == [(1, "a"), (2, "b")]
