"""Row ids through sessions and branches: rows that were there keep theirs, new ones get one that no other has."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

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
PAIRS = [
    pytest.param(first, second, layout, id=f"{first} / {second}-{layout}", marks=[pytest.mark.exhaustive] * rest)
    for place, (first, second) in enumerate(itertools.product(CHANGES, repeat=2))
    for rest, layout in zip((place % 2, 1 - place % 2), LAYOUTS, strict=True)
]
"""Two changes in each layout; `make test` takes the layouts in turns."""


Tracked: TypeAlias = dict[int, tuple[int, int]]
"""The id and the version of each row, by its key."""


def created(layout: str) -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session(message="rows") as session:
        table = session.create_delta("t", SCHEMA, properties=LAYOUTS[layout])
        table.append(rows(range(4)))
        table.append(rows(range(4, 8)))
        table.update({"v": "1"}, "id = 2")
    return lake


def tracked(lake: Lake, ref: str = "main") -> Tracked:
    """Return the id and the version of each row. No id is there twice, and no version is to come."""
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
@pytest.mark.sampled(8)
def test_sessions_one_after_another(first: str, layout: str) -> None:
    for second in CHANGES:
        lake = created(layout)
        for name in (first, second):
            before, was = tracked(lake), values(lake)
            change(lake, name)
            check(lake, before, was)


@pytest.mark.parametrize(("first", "second", "layout"), PAIRS)
@pytest.mark.sampled(8)
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


@pytest.mark.parametrize(("first", "second", "layout"), PAIRS)
@pytest.mark.sampled(8)
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


@pytest.mark.parametrize(("first", "second", "layout"), PAIRS)
@pytest.mark.sampled(8)
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


def with_ids_apart(layout: str) -> Lake:
    """A lake whose branches have given the same ids to other rows, and have merged these."""
    lake = Lake.create(MemoryStore())
    with lake.session(message="rows") as session:
        session.create_delta("t", SCHEMA, properties=LAYOUTS[layout]).append(rows(range(4)))
    lake.create_branch("dev")
    run(lake, "dev", lambda t: t.append(rows(range(20, 24))))
    run(lake, "main", lambda t: t.append(rows(range(10, 14))))
    lake.merge("dev")
    return lake


def run(lake: Lake, branch: str, change: Callable[[DeltaTable], object]) -> None:
    with lake.session(branch, message="change") as session:
        change(session.delta("t"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_branches_that_merge_in_turns(layout: str) -> None:
    lake = with_ids_apart(layout)
    for turn in range(3):
        before = {ref: tracked(lake, ref) for ref in ("main", "dev")}
        run(lake, "dev", _on_row("append", 0, [30 + turn]))
        run(lake, "dev", lambda t: t.update({"v": "v + 1"}, "id = 21"))
        lake.merge("main", into="dev")
        run(lake, "main", _on_row("append", 0, [40 + turn]))
        lake.merge("dev")
        for ref in ("main", "dev"):
            now = tracked(lake, ref)
            assert {key: now[key][0] for key in before[ref]} == {key: id for key, (id, _) in before[ref].items()}
            stay = before[ref].keys() - {21}
            assert {key: now[key] for key in stay} == {key: before[ref][key] for key in stay}
    assert len(tracked(lake)) == 12 + 6


def _on_row(change: str, key: int, new_keys: list[int]) -> Callable[[DeltaTable], object]:
    if change == "append":
        return lambda table: table.append(rows(new_keys))
    if change == "update":
        return lambda table: table.update({"v": "v + 1"}, f"id = {key}")
    if change == "optimize":
        return lambda table: table.optimize()
    return lambda table: table.delete(f"id = {key}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(each, marks=pytest.mark.exhaustive) for each in range(3, 99))]
)
def test_branches_that_change_and_merge_at_random(seed: int, layout: str) -> None:
    """No step gives another id to a row that was there, on either side, and none gives one twice."""
    for before, now in _random_steps(seed, layout, ["append", "update", "delete", "merge"]):
        stay = now.keys() & before.keys()
        assert {key: now[key][0] for key in stay} == {key: before[key][0] for key in stay}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(each, marks=pytest.mark.exhaustive) for each in range(3, 99))]
)
def test_branches_that_undo_as_well_give_no_id_twice(seed: int, layout: str) -> None:
    """Reverts undo, and compactions are undone where they would conflict.

    Rows of a file that only the other branch had may get new ids when it comes.
    """
    for _, now in _random_steps(seed, layout, ["append", "update", "delete", "merge", "optimize", "revert"]):
        assert len({id for id, _ in now.values()}) == len(now)


def _random_steps(seed: int, layout: str, steps: list[str]) -> Iterator[tuple[Tracked, Tracked]]:
    """Change, merge and undo on two branches. Yield the rows of each branch before a step, and after it."""
    random = Random(seed)
    lake = with_ids_apart(layout)
    new_keys = itertools.count(100)
    for _ in range(10):
        before = {ref: tracked(lake, ref) for ref in ("main", "dev")}
        into, source = random.sample(["main", "dev"], 2)
        key = random.choice(sorted(before[into]))
        keys = [next(new_keys), next(new_keys)]
        step = random.choices(steps, [2, 4, 2, 4, 1, 3][: len(steps)])[0]
        if step == "merge":
            with contextlib.suppress(Conflict, NothingToApply):
                lake.merge(source, into=into)
        elif step == "revert":
            with contextlib.suppress(Conflict, NothingToApply):
                lake.revert(into, branch=into)
        else:
            run(lake, into, _on_row(step, key, keys))
        for ref, ids in before.items():
            yield ids, tracked(lake, ref)


UNDONE = {
    "optimize": lambda t: t.optimize(),
    "delete a file": lambda t: t.delete("id >= 30"),
    "delete a part of a file": lambda t: t.delete("id = 21"),
    "update": lambda t: t.update({"v": "v + 1"}, "id = 21"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("change", UNDONE)
@pytest.mark.parametrize("on", ["dev", "main"])
def test_an_undo_that_is_merged_gives_no_id_twice(on: str, change: str, layout: str) -> None:
    """The files that come back have ids of their own on each side."""
    lake = with_ids_apart(layout)
    run(lake, "dev", lambda t: t.append(rows([30, 31])))
    lake.merge("dev")
    before = tracked(lake)
    run(lake, "dev", UNDONE[change])
    lake.merge("dev")
    lake.revert(on, branch=on)
    if on == "dev":
        lake.merge("dev")
    assert {key: id for key, (id, _) in tracked(lake).items()} == {key: id for key, (id, _) in before.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_that_was_written_again_for_a_branch_is_no_change_there(layout: str) -> None:
    lake = with_ids_apart(layout)
    run(lake, "main", lambda t: t.delete("id = 10"))
    run(lake, "dev", lambda t: t.append(rows([60])))
    lake.merge("main", into="dev")
    run(lake, "main", lambda t: t.update({"v": "7"}, "id = 12"))
    run(lake, "dev", lambda t: t.append(rows([61])))
    lake.merge("main", into="dev")
    keys = {0, 1, 2, 3, 11, 12, 13, 20, 21, 22, 23, 60, 61}
    assert values(lake, "dev") == {key: (f"p{key % 2}", 7 if key == 12 else 0) for key in keys}


@pytest.mark.parametrize("way", ["merge", "pick"])
def test_both_sides_mark_rows_of_a_file_whose_ids_differ(way: str) -> None:
    lake = with_ids_apart("vectors")
    before = tracked(lake)
    run(lake, "dev", lambda t: t.update({"v": "7"}, "id = 20"))
    run(lake, "main", lambda t: t.update({"v": "8"}, "id = 21"))
    if way == "merge":
        lake.merge("dev")
    else:
        lake.cherry_pick(lake.log("dev")[0].id, onto="main")
    now = tracked(lake)
    assert {key: id for key, (id, _) in now.items()} == {key: id for key, (id, _) in before.items()}
    assert now[20][1] == lake.delta("t").version


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_merge_that_takes_the_other_side_keeps_the_ids_of_untouched_rows(layout: str) -> None:
    lake = created(layout)
    lake.create_branch("dev")
    before = tracked(lake)
    run(lake, "dev", lambda t: (t.delete("id = 1"), t.update({"v": "5"}, "id = 2")))
    run(lake, "main", lambda t: t.update({"v": "6"}, "id = 2"))
    lake.merge("dev", strategy="theirs")
    now = tracked(lake)
    assert now.keys() == before.keys() - {1}
    untouched = now.keys() - {2}
    assert {key: now[key][0] for key in untouched} == {key: before[key][0] for key in untouched}


def _untracked(**properties: str) -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        session.create_delta("t", SCHEMA, properties=properties).append(rows(range(4)))
    with lake.session() as session:
        session.delta("t").append(rows(range(4, 8)))
    return lake


def _track(lake: Lake, branch: str = "main") -> None:
    with lake.session(branch) as session:
        session.delta("t").set_properties({"delta.enableRowTracking": "true"})


def test_rows_that_were_there_get_ids_when_these_are_enabled() -> None:
    lake = _untracked(**{"delta.enableChangeDataFeed": "true"})
    _track(lake)
    before = tracked(lake)
    assert set(before) == set(range(8))
    assert lake.delta("t").changes(2).read_all().num_rows == 0
    change(lake, "append")
    after = tracked(lake)
    assert {key: after[key] for key in before} == before


def test_ids_are_enabled_on_a_branch_that_goes_on() -> None:
    lake = _untracked(**{"delta.enableDeletionVectors": "true"})
    lake.create_branch("dev")
    _track(lake, "dev")
    change(lake, "append", "dev")
    change(lake, "delete 5", "dev")
    change(lake, "update 1", "dev")
    lake.merge("dev")
    assert set(tracked(lake)) == {0, 1, 2, 3, 4, 6, 7, 20, 21}
    before = tracked(lake)
    change(lake, "append others")
    after = tracked(lake)
    assert {key: after[key] for key in before} == before


def test_ids_are_enabled_again_after_that_was_reverted() -> None:
    lake = _untracked()
    _track(lake)
    lake.revert("main")
    change(lake, "append")
    _track(lake)
    assert set(tracked(lake)) == {*range(8), 20, 21}
