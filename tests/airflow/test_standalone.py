"""What processes of Airflow die of, and what people do to runs meanwhile. All scenes go on side by side."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from lake_core import Lake
from tests.airflow.scenes import ROWS, SCENES, WRITERS, Hold, connection_of, root_of, tell
from tests.airflow.standalone import DEADLINE, Run, Standalone, all_processes, connection, is_alive, kill, until

pytestmark = [pytest.mark.airflow, pytest.mark.newest, pytest.mark.timeout(1200)]

DAY = datetime(2026, 1, 2, tzinfo=UTC)

Row = tuple[str, str, str, str, int]
"""A row: its table, and the run, the task and the try that wrote it, and its number."""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    home = tmp_path_factory.mktemp("standalone")
    for scene in SCENES:
        Lake.create(str(root_of(home, scene)))
    connections = {f"AIRFLOW_CONN_{connection_of(scene).upper()}": connection(root_of(home, scene)) for scene in SCENES}
    airflow = Standalone(home, {"LAKE_TEST_HOME": str(home), **connections})
    try:
        airflow.wait_until_up([*SCENES, "after_totals"])
        yield airflow
    finally:
        airflow.stop()


@dataclass(frozen=True, slots=True)
class Scene:
    """A DAG with a lake of its own."""

    airflow: Standalone
    name: str

    @property
    def home(self) -> Path:
        return self.airflow.home

    def run(self) -> Run:
        return self.airflow.run(self.name, DAY)

    def hold(self, task: str) -> Hold:
        return Hold(self.home, self.name, task)

    def lake(self) -> Lake:
        return Lake.open(str(root_of(self.home, self.name)))

    def commits(self) -> int:
        """Return the number of commits that published something."""
        return len(list(self.lake().log())) - 1

    def held(self, hold: Hold) -> dict[str, Any]:
        """Wait until a process is held in the middle of its write, and return it. Nothing is published by then."""
        process = until(hold.held, f"{self.name} to be held", DEADLINE)
        assert not self.published() or self.name not in UNPUBLISHED_WHEN_HELD
        return process

    def published(self, ref: str = "main") -> Counter[Row]:
        """Return the rows of main, as often as they are there."""
        return rows_of(self.lake(), ref)

    def meant(self, *runs: Run) -> Counter[Row]:
        """Return what is to be published: once, each row of the last try at each task that has succeeded."""
        rows: Counter[Row] = Counter()
        for run in runs:
            for task, instance in run.tasks().items():
                if task in WRITERS and instance["state"] == "success":
                    name = f"session.{task}"
                    rows.update((WRITERS[task], run.run_id, name, instance["id"], row) for row in range(ROWS))
        return rows

    def is_published(self, *runs: Run) -> bool:
        """Return whether main has all rows of all tasks of runs, each once, and no others."""
        meant = self.meant(*runs)
        return len(meant) == len(runs) * len(WRITERS) * ROWS and self.published() == meant


UNPUBLISHED_WHEN_HELD = ("task_killed", "worker_killed", "marked_failed", "marked_success", "scheduler_killed")


def rows_of(lake: Lake, ref: str) -> Counter[Row]:
    """Return the rows of a ref."""
    found: Counter[Row] = Counter()
    state = lake.at(ref)
    for record in state.list_datasets():
        rows = state.delta(record.path).to_arrow()
        name = record.path.removeprefix("tables/")
        found.update(zip([name] * len(rows), *(rows[each].to_pylist() for each in ("run", "task", "try", "row"))))
    return found


_scenes: dict[str, tuple[str, Callable[[Scene], None]]] = {}


def scene(name: str) -> Callable[[Callable[[Scene], None]], Callable[..., None]]:
    """Make a test of a scene, which goes on beside all others that were chosen."""

    def decorate(function: Callable[[Scene], None]) -> Callable[..., None]:
        _scenes[function.__name__] = name, function

        def test(outcome: Callable[[], None]) -> None:
            outcome()

        test.__name__ = function.__name__
        return test

    return decorate


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, airflow: Standalone) -> Iterator[dict[str, Callable[[], None]]]:
    """Start all scenes that were chosen."""
    names = {getattr(item, "originalname", item.name) for item in request.session.items}
    chosen = {name: each for name, each in _scenes.items() if name in names}
    with ThreadPoolExecutor(len(chosen) or 1) as threads:
        yield {name: threads.submit(play, Scene(airflow, id)).result for name, (id, play) in chosen.items()}


@pytest.fixture
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, Callable[[], None]]) -> Callable[[], None]:
    return outcomes[request.node.originalname]


@scene("worker_killed")
def test_an_orphan_of_a_dead_worker_has_no_effect_on_what_the_next_try_published(scene: Scene) -> None:
    hold = scene.hold("more")
    run = scene.run()
    process = scene.held(hold)
    kill(process["worker"])
    assert run.end() == "success"
    assert scene.is_published(run)
    assert is_alive(process["pid"])
    hold.let_go()
    until(lambda: not is_alive(process["pid"]), "the orphan to end", DEADLINE)
    assert scene.is_published(run)
    assert process["id"] not in {row[3] for row in scene.published()}
    assert scene.commits() == 1


@scene("backfilled")
def test_a_backfill_and_its_repetition_publish_each_date_once(scene: Scene) -> None:
    days = (DAY, DAY + timedelta(days=5))
    first = scene.airflow.backfill(scene.name, *days, at_a_time=3).end()
    assert [run.state for run in first] == ["success"] * 6
    assert scene.is_published(*first)
    before = scene.published()
    again = scene.airflow.backfill(scene.name, *days, at_a_time=3, again="completed").end()
    assert [run.state for run in again] == ["success"] * 6
    assert scene.is_published(*again)
    assert not before & scene.published()
    assert scene.commits() == 12


@scene("task_killed")
def test_a_task_that_is_killed_in_its_write_is_published_once(scene: Scene) -> None:
    holds = [scene.hold("day"), scene.hold("line")]
    run = scene.run()
    for hold in holds:
        kill(scene.held(hold)["pid"])
    assert run.end() == "success"
    assert [run.tasks()[task]["try_number"] for task in ("day", "line")] == [2, 2]
    assert scene.is_published(run)
    assert scene.commits() == 1


@scene("publish_killed")
def test_a_publish_that_is_killed_after_its_commit_commits_once_and_gives_its_events(scene: Scene) -> None:
    hold = scene.hold("publish")
    run = scene.run()
    process = scene.held(hold)
    assert scene.commits() == 1
    kill(process["pid"])
    assert run.end() == "success"
    assert run.tasks()["publish"]["try_number"] == 2
    assert scene.is_published(run)
    assert scene.commits() == 1
    assert scene.airflow.events(scene.name, run.run_id) == events(scene, "days", "lines", "totals")


@scene("close_killed")
def test_a_run_is_green_though_its_close_was_killed(scene: Scene) -> None:
    hold = scene.hold("close")
    run = scene.run()
    kill(scene.held(hold)["pid"])
    assert run.end() == "success"
    assert scene.is_published(run)
    assert scene.commits() == 1


@scene("marked_failed")
def test_a_run_that_is_marked_failed_publishes_nothing_until_it_is_cleared(scene: Scene) -> None:
    hold = scene.hold("line")
    run = scene.run()
    scene.held(hold)
    run.mark("failed")
    assert run.end() == "failed"
    assert not scene.published()
    hold.let_go()
    run.clear()
    assert run.end() == "success"
    assert scene.is_published(run)
    assert scene.commits() == 1


@scene("marked_success")
def test_a_run_that_is_marked_a_success_before_its_publish_becomes_red(scene: Scene) -> None:
    hold = scene.hold("more")
    run = scene.run()
    process = scene.held(hold)
    run.mark("success")
    until(lambda: run.states()["close"] == "failed", "close to fail", DEADLINE)
    assert run.end() == "failed"
    assert not scene.published()
    until(lambda: not is_alive(process["pid"]), "the task to be ended", DEADLINE)
    assert not scene.published()


@scene("cleared_alone")
def test_a_task_that_is_cleared_alone_after_the_publish_replaces_its_rows(scene: Scene) -> None:
    run = scene.run()
    assert run.end() == "success"
    assert scene.is_published(run)
    before = scene.published()
    run.clear("session.more")
    assert run.end() == "success"
    assert scene.is_published(run)
    assert {row[2] for row in before - scene.published()} == {"session.more"}
    assert scene.commits() == 2


@scene("fails")
def test_a_run_with_a_task_that_fails_is_red_until_the_failed_tasks_are_cleared(scene: Scene) -> None:
    tell(scene.home, scene.name, "line", "fail")
    run = scene.run()
    assert run.end() == "failed"
    assert not scene.published()
    tell(scene.home, scene.name, "line", None)
    run.clear(only_failed=True)
    assert run.end() == "success"
    assert scene.is_published(run)
    assert scene.commits() == 1


@scene("happy")
def test_a_run_publishes_one_commit_and_gives_an_event_for_each_dataset_that_it_changed(scene: Scene) -> None:
    run = scene.run()
    assert run.end() == "success"
    assert scene.is_published(run)
    assert scene.commits() == 1
    assert scene.airflow.events(scene.name, run.run_id) == events(scene, "days", "lines", "totals")
    (after,) = until(lambda: scene.airflow.runs("after_totals"), "the DAG that its asset starts", DEADLINE)
    assert after.end() == "success"

    tell(scene.home, scene.name, "total", "nothing")
    other = scene.airflow.run(scene.name, DAY + timedelta(days=1))
    assert other.end() == "success"
    assert scene.airflow.events(scene.name, other.run_id) == events(scene, "days", "lines")
    assert len(scene.airflow.runs("after_totals")) == 1


def events(scene: Scene, *tables: str) -> Counter[str]:
    """Return one event for each of some tables."""
    return Counter(f"lake://{connection_of(scene.name)}/main/tables/{table}" for table in tables)


def test_a_run_whose_scheduler_was_killed_goes_on_with_the_next_one(
    airflow: Standalone, outcomes: dict[str, Callable[[], None]]
) -> None:
    for ended in outcomes.values():
        try:
            ended()
        except Exception:
            pass  # its own test says so
    scene = Scene(airflow, "scheduler_killed")
    hold = scene.hold("more")
    run = scene.run()
    scene.held(hold)
    airflow.kill_scheduler()
    airflow.start_scheduler()
    assert not scene.published()
    hold.let_go()
    assert run.end() == "success"
    assert scene.is_published(run)
    assert scene.commits() == 1
