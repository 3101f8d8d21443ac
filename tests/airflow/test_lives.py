"""What people and schedulers do to a run of Airflow, and what is published after it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core import Lake
from tests.airflow.behaviour import calls, plan

pytestmark = pytest.mark.airflow

TABLES = ("slice", "shared", "own")
WRITERS = {"day": "slice", "line": "shared", "left": "shared", "halves": "shared", "right": "own", "down": "own"}


_days = count()
"""Airflow has one run of a DAG for each logical date."""


def new_life(run_id: str | None = None) -> Any:
    from tests.airflow.scheduler import Life

    day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=next(_days))
    return Life("lives", day, run_id=run_id or f"run__{day:%Y-%m-%d}T00:00:00+00:00")


@pytest.fixture
def life(lake_root: Path) -> Any:
    return new_life()


def published(root: Path) -> Counter[tuple[str, str, int]]:
    """Return the rows of main, as often as they are there: table, task and number of the try."""
    lake = Lake.open(str(root))
    found: Counter[tuple[str, str, int]] = Counter()
    for name in TABLES:
        if any(record.path == f"tables/{name}" for record in lake.list_datasets("main")):
            rows = lake.delta(f"tables/{name}").to_arrow()
            found.update(
                (name, task, n) for task, n in zip(rows["task"].to_pylist(), rows["n"].to_pylist(), strict=True)
            )
    return found


def meant(*lives: Any) -> Counter[tuple[str, str, int]]:
    """Return what is to be published: what the last tries of the tasks wrote that have succeeded, twice each."""
    rows: Counter[tuple[str, str, int]] = Counter()
    for life in lives:
        states = life.states()
        last = {(call["task"], call["map"]): call for call in calls() if call["run"] == life.run_id}
        for (task, index), call in last.items():
            table, number = WRITERS.get(task.removeprefix("session.")), call["n"]
            if table is not None and "begins" not in call and states.get((task, index)) == "success":
                rows[table, task, number] = 2
    return rows


def test_a_run_is_published_as_one_commit(life: Any, lake_root: Path) -> None:
    assert life.go() == "success"
    assert published(lake_root) == meant(life)
    assert len(list(Lake.open(str(lake_root)).log())) == 2


def test_a_deferred_task_is_published_with_what_each_of_its_processes_wrote(life: Any, lake_root: Path) -> None:
    life.go()
    halves = [key for key in published(lake_root) if key[1] == "session.halves"]
    assert [published(lake_root)[key] for key in halves] == [2]


@pytest.mark.newest
@pytest.mark.parametrize("downstream", [False, True])
@pytest.mark.parametrize("task", ["day", "line", "left", "halves", "down", "publish", "open"])
def test_a_task_that_is_cleared_after_the_publish_replaces_what_it_had_published(
    life: Any, lake_root: Path, task: str, downstream: bool
) -> None:
    life.go()
    life.clear(f"session.{task}", downstream=downstream)
    assert life.go() == "success"
    assert published(lake_root) == meant(life)


@pytest.mark.newest
def test_a_run_that_is_cleared_as_a_whole_is_published_once(life: Any, lake_root: Path) -> None:
    life.go()
    before = published(lake_root)
    life.clear()
    assert life.go() == "success"
    assert published(lake_root) == meant(life) != before


@pytest.mark.newest
def test_a_failed_run_publishes_nothing_and_is_red(life: Any, lake_root: Path) -> None:
    plan(fail=["down"])
    assert life.go() == "failed"
    assert not published(lake_root)


def test_clearing_the_failed_tasks_publishes_the_rest_with_them(life: Any, lake_root: Path) -> None:
    plan(fail=["down", "halves"])
    life.go()
    plan(fail=[])
    life.clear(only_failed=True)
    assert life.go() == "success"
    assert published(lake_root) == meant(life)


@pytest.mark.newest
@pytest.mark.parametrize("after", [False, True])
def test_a_list_that_shrank_leaves_nothing_of_the_indexes_that_are_gone(
    life: Any, lake_root: Path, after: bool
) -> None:
    plan(files=4, fail=[] if after else ["halves"])
    life.go()
    plan(files=2, fail=[], branch="right")
    life.clear()
    assert life.go() == "success"
    assert published(lake_root) == meant(life)
    assert sum(n for (_, task, _), n in published(lake_root).items() if task == "session.line") == 4


@pytest.mark.newest
@pytest.mark.parametrize(("task", "rows"), [("down", 0), ("halves", 1)])
def test_marking_a_failed_task_as_a_success_publishes_the_blocks_that_it_ended(
    life: Any, lake_root: Path, task: str, rows: int
) -> None:
    plan(fail=[task])
    life.go()
    life.mark(f"session.{task}", "success")
    life.clear("session.publish", downstream=True)
    assert life.go() == "success"
    assert sum(n for (_, name, _), n in published(lake_root).items() if name == f"session.{task}") == rows


@pytest.mark.newest
@pytest.mark.parametrize("was_published", [False, True])
def test_what_was_cleared_and_is_marked_before_it_runs_again_is_never_missing_in_a_green_run(
    life: Any, lake_root: Path, was_published: bool
) -> None:
    life.go(until=None if was_published else lambda task: task == "session.publish")
    life.clear("session.day", downstream=True)
    life.go(until=lambda task: task == "session.down")
    life.mark("session.halves", "success")
    assert life.go() == "failed"
    life.clear("session.halves", downstream=True)
    assert life.go() == "success"
    assert published(lake_root) == meant(life)


@pytest.mark.newest
@pytest.mark.parametrize("state", ["failed", "success"])
def test_marking_a_run_that_is_not_published_never_makes_it_green(life: Any, lake_root: Path, state: str) -> None:
    life.go(until=lambda task: task == "session.publish")
    life.mark_run(state)
    assert (life.go(), published(lake_root)) == ("failed", Counter())


def test_a_publish_that_others_contradict_says_what_to_clear_and_is_not_tried_again(
    life: Any, lake_root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    life.go(until=lambda task: task == "session.publish")
    with Lake.open(str(lake_root)).session() as s:
        s.create_delta("tables/own", pa.schema([("other", pa.string())]))
    assert life.go() == "failed"
    assert life.states()["session.publish", -1] == "failed"
    assert "Clear the tasks of the group 'session', which then write on top of it" in capfd.readouterr().out
    with Lake.open(str(lake_root)).session() as s:
        s.drop("tables/own")
    life.clear()
    assert life.go() == "success"
    assert published(lake_root) == meant(life)


def test_the_tasks_that_end_a_session_are_tried_again_when_they_die(life: Any) -> None:
    assert [life.dag.get_task(f"session.{name}").retries for name in ("day", "publish", "close")] == [0, 3, 3]


@pytest.mark.newest
def test_a_check_that_fails_publishes_nothing(life: Any, lake_root: Path) -> None:
    plan(bad=True)
    assert life.go() == "failed"
    assert not published(lake_root)


@pytest.mark.newest
def test_a_run_that_is_deleted_and_made_again_replaces_what_it_had_published(life: Any, lake_root: Path) -> None:
    life.go()
    life.delete()
    again = new_life(life.run_id)
    assert again.go() == "success"
    assert published(lake_root) == meant(again)


@pytest.mark.newest
def test_two_runs_add_up_in_what_they_append_and_replace_their_own_slices(life: Any, lake_root: Path) -> None:
    other = new_life()
    other.go(until=lambda task: task == "session.publish")
    assert (life.go(), other.go()) == ("success", "success")
    assert published(lake_root) == meant(life, other)
