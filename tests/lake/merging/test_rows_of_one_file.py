"""Changes of rows of one file with deletion vectors, in sessions and branches: both stay if the rows are apart."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.lake.errors import Conflict
from lake_core.store import MemoryStore
from tests.examples import some_of
from tests.lake.lakes import SCHEMA, rows

PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def _merge(table: DeltaTable, *values: int) -> None:
    source = pa.table({"id": values, "p": ["m"] * len(values), "v": [-1] * len(values)}, schema=SCHEMA)
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()


def _several(table: DeltaTable) -> None:
    table.delete("id = 8")
    table.update({"v": "v + 5"}, "id IN (3, 10)")
    table.append(rows([30]))
    table.delete("id IN (10, 30)")


CHANGES: dict[str, Callable[[DeltaTable], object]] = {
    "delete 1": lambda t: t.delete("id = 1"),
    "delete odd": lambda t: t.delete("id IN (1, 3, 5, 7, 9, 11)"),
    "delete all but 2": lambda t: t.delete("id <> 2"),
    "update 2 and 9": lambda t: t.update({"v": "v + 100"}, "id IN (2, 9)"),
    "update even": lambda t: t.update({"v": "v + 1"}, "id IN (0, 2, 4, 6, 8, 10)"),
    "merge 4 and 20": lambda t: _merge(t, 4, 20),
    "append": lambda t: t.append(rows([12])),
    "several": _several,
    "optimize": lambda t: t.optimize(),
    "rewrite 6": lambda t: t.delete("id = 6", deletion_vectors=False),
}
APART = [
    {"delete 1", "update 2 and 9"},
    {"delete 1", "update even"},
    {"delete 1", "several"},
    {"update 2 and 9", "several"},
    {"delete 1", "append"},
]


def held(lake: Lake, ref: str = "main") -> Counter[str]:
    return Counter(map(str, lake.delta("t", ref=ref).to_arrow().to_pylist()))


def created() -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session(message="rows") as session:
        session.create_delta("t", SCHEMA, properties=PROPERTIES).append(rows(range(12)))
    return lake


def change(lake: Lake, name: str, branch: str = "main") -> bool:
    """Make a change in a session, and return whether there was one to make."""
    before = lake.log(branch)[0].id
    with lake.session(branch, message=name) as session:
        CHANGES[name](session.delta("t"))
    return lake.log(branch)[0].id != before


@functools.cache
def in_turn(*names: str) -> Counter[str]:
    lake = created()
    for name in names:
        change(lake, name)
    return held(lake)


def check_feed(lake: Lake, version: int, before: Counter[str]) -> None:
    """Check that the feed after a version leads from its rows to those of now."""
    table = lake.delta("t")
    if table.version == version:
        return
    total = Counter(before)
    for row in table.changes(version + 1).read_all().to_pylist():
        kind = row["_change_type"]
        text = str({name: value for name, value in row.items() if not name.startswith("_")})
        total[text] += 1 if kind in ("insert", "update_postimage") else -1
    assert Counter({row: count for row, count in total.items() if count}) == held(lake)


PAIRS = list(itertools.product(CHANGES, repeat=2))
ONE_WAY = some_of(PAIRS, set(itertools.combinations_with_replacement(CHANGES, 2)).__contains__)


@pytest.mark.parametrize(("first", "second"), ONE_WAY)
@pytest.mark.sampled(8)
def test_two_sessions(first: str, second: str) -> None:
    lake = created()
    sessions = [lake.session(message=name) for name in (first, second)]
    for name, session in zip((first, second), sessions, strict=True):
        CHANGES[name](session.delta("t"))
    sessions[0].publish()
    before, version = held(lake), lake.delta("t").version
    assert before == in_turn(first)
    try:
        sessions[1].publish()
    except Conflict:
        assert {first, second} not in APART
        assert held(lake) == before
    else:
        assert held(lake) == in_turn(first, second)
        check_feed(lake, version, before)
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize(("first", "second"), ONE_WAY)
@pytest.mark.sampled(8)
def test_a_merge_of_branches(first: str, second: str) -> None:
    lake = created()
    lake.create_branch("dev")
    if not change(lake, second, "dev") or not change(lake, first):
        return
    before, version = held(lake), lake.delta("t").version
    try:
        lake.merge("dev")
    except Conflict:
        assert {first, second} not in APART
        assert held(lake) == before
    else:
        assert held(lake) == in_turn(first, second)
        check_feed(lake, version, before)
        lake.merge("main", into="dev")
        assert held(lake, "dev") == held(lake)
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=" / ".join)
@pytest.mark.sampled(8)
def test_a_revert_takes_back_its_own_rows_alone(first: str, second: str) -> None:
    lake = created()
    if not change(lake, first) or not change(lake, second):
        return
    before, version = held(lake), lake.delta("t").version
    try:
        lake.revert(lake.log()[1].id)
    except Conflict:
        assert {first, second} not in APART
        assert held(lake) == before
    else:
        if second != "several":  # the steps that find nothing to do are not recorded
            assert held(lake) == in_turn(second)
        check_feed(lake, version, before)
        lake.revert(lake.log()[0].id)
        assert held(lake) == before
    assert lake.maintenance.verify() == []


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=" / ".join)
@pytest.mark.sampled(8)
def test_a_pick_brings_its_own_rows_alone(first: str, second: str) -> None:
    lake = created()
    lake.create_branch("dev")
    if not change(lake, first, "dev") or not change(lake, second, "dev"):
        return
    try:
        lake.cherry_pick(lake.log("dev")[0].id, onto="main")
    except Conflict:
        assert {first, second} not in APART
        assert held(lake) == in_turn()
    else:
        if second != "several":  # the steps that find nothing to do are not recorded
            assert held(lake) == in_turn(second)
    assert lake.maintenance.verify() == []


def test_a_vector_that_was_written_again_with_the_same_rows() -> None:
    """A branch has rewritten the file meanwhile. To remove it, it would name a vector that is not there any more."""
    lake = Lake.create(MemoryStore())
    with lake.session(message="rows") as session:
        session.create_delta("t", SCHEMA, properties=PROPERTIES).append(rows(range(4000)))
    odd = f"id IN ({', '.join(str(id) for id in range(1, 4000, 2))})"

    def run(branch: str, change: Callable[[DeltaTable], object]) -> str:
        with lake.session(branch, message="change") as session:
            change(session.delta("t"))
        return lake.log(branch)[0].id

    undone = run("main", lambda t: t.delete(odd))
    lake.create_branch("dev")
    run("dev", lambda t: t.optimize(purge=True))
    lake.revert(undone)
    run("main", lambda t: t.delete(odd))
    assert len(lake.merge("dev").undone) == 1  # the rewrite gives way
    assert lake.delta("t").to_arrow().num_rows == 2000
