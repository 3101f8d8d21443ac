"""Row ids through sessions and branches: rows that were there keep theirs, new ones get one that no other has."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.row_tracking import ROW_COMMIT_VERSION, ROW_ID, high_water_mark
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.store import MemoryStore
from tests.lake.lakes import SCHEMA, rows

LAYOUTS = {
    "whole files": {"delta.enableRowTracking": "true"},
    "vectors": {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"},
}


def _append_and_update(table: DeltaTable) -> None:
    table.append(rows([40, 41]))
    table.update({"v": "7"}, "id = 41")
    table.update({"v": "8"}, "id = 40")


def _merge(table: DeltaTable) -> None:
    source = pa.table({"id": [3, 50], "p": ["m", "m"], "v": [-1, -1]}, schema=SCHEMA)
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()


CHANGES: dict[str, Callable[[DeltaTable], object]] = {
    "append": lambda t: t.append(rows([20, 21])),
    "append others": lambda t: t.append(rows([30, 31, 32])),
    "append and update": _append_and_update,
    "update 1": lambda t: t.update({"v": "v + 1"}, "id = 1"),
    "delete 5": lambda t: t.delete("id = 5"),
    "merge": _merge,
    "optimize": lambda t: t.optimize(),
}
NEW = {20, 21, 30, 31, 32, 40, 41, 50}
PAIRS = list(itertools.product(CHANGES, repeat=2))


def created(layout: str) -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session(message="rows") as session:
        table = session.create_delta("t", SCHEMA, properties=LAYOUTS[layout])
        table.append(rows(range(4)))
        table.append(rows(range(4, 8)))
        table.update({"v": "1"}, "id = 2")
    return lake


def tracked(lake: Lake, ref: str = "main") -> dict[int, tuple[int, int]]:
    """The id and the version of each row, by its key. No id is there twice, and no version is to come."""
    table = lake.delta("t", ref=ref)
    found = table.to_arrow(columns=["id", ROW_ID, ROW_COMMIT_VERSION]).to_pylist()
    ids = [row[ROW_ID] for row in found]
    assert len(set(ids)) == len(ids)
    assert max(ids) <= high_water_mark(table.snapshot.domains)
    assert max(row[ROW_COMMIT_VERSION] for row in found) <= table.version
    return {row["id"]: (row[ROW_ID], row[ROW_COMMIT_VERSION]) for row in found}


def change(lake: Lake, name: str, branch: str = "main") -> bool:
    before = lake.log(branch)[0].id
    with lake.session(branch, message=name) as session:
        CHANGES[name](session.delta("t"))
    return lake.log(branch)[0].id != before


def values(lake: Lake, ref: str = "main") -> dict[int, tuple[str, int]]:
    found = lake.delta("t", ref=ref).to_arrow().to_pylist()
    return {row["id"]: (row["p"], row["v"]) for row in found}


def check(lake: Lake, before: dict[int, tuple[int, int]], was: dict[int, tuple[str, int]]) -> None:
    """Check the newest version against the one before: who the rows are, and that changed ones say so.

    Keys that are there twice tell no rows apart: only that ids are not is checked then.
    """
    now, are, version = tracked(lake), values(lake), lake.delta("t").version
    if len(now) < lake.delta("t").to_arrow().num_rows:
        return
    assert {key: now[key][0] for key in now.keys() & before.keys()} == {
        key: before[key][0] for key in now.keys() & before.keys()
    }
    for key, (_, changed) in now.items():
        if are[key] != was.get(key):
            assert changed == version, key
        elif key not in (3, 50):  # which a second merge sets to what they are
            assert now[key] == before[key], key


def test_a_table_of_one_session_has_ids_from_the_start() -> None:
    for layout in LAYOUTS:
        lake = created(layout)
        assert lake.delta("t").version == 0
        assert {version for _, version in tracked(lake).values()} == {0}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", CHANGES)
def test_sessions_one_after_another(first: str, layout: str) -> None:
    for second in CHANGES:
        lake = created(layout)
        for name in (first, second):
            before, was = tracked(lake), values(lake)
            change(lake, name)
            check(lake, before, was)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=" / ".join)
def test_sessions_at_the_same_time(first: str, second: str, layout: str) -> None:
    lake = created(layout)
    sessions = [lake.session(message=name) for name in (first, second)]
    for name, session in zip((first, second), sessions, strict=True):
        CHANGES[name](session.delta("t"))
    for session in sessions:
        before, was = tracked(lake), values(lake)
        try:
            session.publish()
        except Conflict:
            return
        check(lake, before, was)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=" / ".join)
def test_merges_of_a_branch_that_goes_on(first: str, second: str, layout: str) -> None:
    """Twice, with changes of the rows that came with the first merge."""
    lake = created(layout)
    lake.create_branch("dev")
    change(lake, second, "dev")
    change(lake, first)
    for number in range(2):
        before, was = tracked(lake), values(lake)
        try:
            lake.merge("dev")
        except (Conflict, NothingToApply):
            return
        check(lake, before, was)
        with lake.session("dev", message="on") as session:
            session.delta("t").update({"v": "v + 10"}, "id IN (20, 30, 40, 50)")
            session.delta("t").append(rows([60 + number]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_revert_brings_back_the_rows_that_were(name: str, layout: str) -> None:
    lake = created(layout)
    before = tracked(lake)
    if not change(lake, name):
        return
    lake.revert(lake.log()[0].id)
    now = tracked(lake)
    assert {key: id for key, (id, _) in now.items()} == {key: id for key, (id, _) in before.items()}
    change(lake, "append others")
    assert len(tracked(lake)) == len(now) + 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=" / ".join)
def test_picks_one_by_one(first: str, second: str, layout: str) -> None:
    lake = created(layout)
    lake.create_branch("dev")
    change(lake, "append others" if "append others" not in (first, second) else "delete 5")
    commits = [lake.log("dev")[0].id for name in (first, second) if change(lake, name, "dev")]
    for commit in commits:
        before, was = tracked(lake), values(lake)
        try:
            lake.cherry_pick(commit, onto="main")
        except Conflict:
            return
        check(lake, before, was)
