"""What processes of Airflow die of, and what people do to runs meanwhile. All scenes go on side by side."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from lake_core import Lake
from tests.airflow.scenes import FOLLOWED, ROWS, WRITERS, Hold, connection_of, root_of, tell
from tests.airflow.standalone import DEADLINE, Process, Run, Standalone, is_alive, kill, until

pytestmark = [pytest.mark.airflow, pytest.mark.newest, pytest.mark.timeout(1200)]

DAY = datetime(2026, 1, 2, tzinfo=UTC)

Row = tuple[str, str, str, str, int]
"""A row: its table, and the run, the task and the try that wrote it, and its number."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A DAG with a lake of its own."""

    airflow: Standalone
    name: str
    holds: list[Hold] = field(default_factory=list)

    def play(self, function: Callable[[Scene], None]) -> None:
        """Play the scene. In the end nothing of it is held."""
        try:
            function(self)
        finally:
            for hold in self.holds:
                hold.let_go()

    @property
    def home(self) -> Path:
        return self.airflow.home

    def run(self) -> Run:
        return self.airflow.run(self.name, DAY)

    def hold(self, task: str) -> Hold:
        hold = Hold(self.home, self.name, task)
        self.holds.append(hold)
        return hold

    def lake(self) -> Lake:
        return Lake.open(str(root_of(self.home, self.name)))

    def commits(self) -> int:
        """Return the number of commits that published something."""
        return len(list(self.lake().log())) - 1

    def held(self, hold: Hold) -> dict[str, Any]:
        """Wait until a process is held, and return it."""
        return until(hold.held, f"a process of {self.name} to be held", DEADLINE)

    def held_in_its_write(self, hold: Hold) -> dict[str, Any]:
        """Wait until a process is held in the middle of its write, and return it. Nothing is published by then."""
        process = self.held(hold)
        assert not self.published()
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
        return len(meant) == len(runs) * WHOLE and self.published() == meant


class Accidents(Thread):
    """Kills processes of Airflow at random, until it is stopped."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._airflow, self._dag_id, self._stopped = scene.airflow, scene.name, Event()
        self._last_scheduler = time.monotonic()
        self._last_tasks: Counter[tuple[str, str]] = Counter()
        self.killed: Counter[str] = Counter()

    def run(self) -> None:
        kinds = {"task": 5, "worker": 2, "publish": 3, "scheduler": 1}
        while not self._stopped.wait(random.uniform(0.5, 4)):
            self.happen(*random.choices(list(kinds), list(kinds.values())))

    def happen(self, kind: str) -> None:
        """Let one accident happen, if there is something to kill."""
        processes = self._airflow.processes()
        schedulers = [each for each in processes if " scheduler" in each.command]
        # Workers that have lost their scheduler are never used again.
        for worker in processes:
            if worker.command.endswith("<idle>") and worker.parent not in {each.pid for each in schedulers}:
                kill(worker.pid)
        if kind == "scheduler":
            if schedulers and time.monotonic() - self._last_scheduler > 45:
                self._last_scheduler = time.monotonic()
                self._kill(kind, schedulers[0].pid)
            return
        running = self._airflow.running(self._dag_id)
        tasks = {each.pid: running.get(each.command.rpartition(" ")[2]) for each in processes if is_task(each)}
        victims = {pid: task for pid, task in tasks.items() if task is not None and self._may_kill(*task)}
        if kind == "publish":
            victims = {pid: task for pid, task in victims.items() if task[1] == "session.publish"}
        if not victims:
            return
        pid, task = random.choice(list(victims.items()))
        if task[1] in LAST:
            self._last_tasks[task] += 1
        # A worker that waits for work would keep a lock of all the others, so it has to be one that has some.
        parents = {each.pid: each.parent for each in processes}
        self._kill(kind, parents[pid] if kind == "worker" and parents[pid] in parents else pid)

    def _may_kill(self, run_id: str, task_id: str) -> bool:
        """Return whether a task has tries left. Without any, a run may be red whose rows are published."""
        return task_id not in LAST or self._last_tasks[run_id, task_id] < 2

    def _kill(self, kind: str, pid: int) -> None:
        kill(pid)
        self.killed[kind] += 1

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self.join()


class Reader(Thread):
    """Reads main again and again, and notes what is not whole."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(daemon=True)
        self._lake, self._stopped = lake, Event()
        self.looks, self.seen = 0, 0
        self.faults: list[str] = []

    def run(self) -> None:
        while not self._stopped.wait(0.2):
            try:
                self.look()
            except Exception as error:
                self.faults.append(repr(error))

    def look(self) -> None:
        """Read all tables of one commit."""
        commit = next(iter(self._lake.log(limit=1))).id
        rows = rows_of(self._lake, commit)
        runs = Counter(row[1] for row in rows)
        self.faults += [f"{commit}: {count} times {row}" for row, count in rows.items() if count != 1]
        self.faults += [f"{commit}: {count} rows of {run}" for run, count in runs.items() if count != WHOLE]
        self.looks += 1
        self.seen = len(runs)

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self.join()


LAST = ("session.publish", "session.close")
"""The tasks that may have published before they die."""
WHOLE = len(WRITERS) * ROWS
"""The number of rows of a run."""


def is_task(process: Process) -> bool:
    """Return whether a process is that of a task."""
    return re.fullmatch(r"airflow worker -- [0-9a-f-]{36}", process.command) is not None


def rows_of(lake: Lake, ref: str) -> Counter[Row]:
    """Return the rows of a ref."""
    found: Counter[Row] = Counter()
    for record in lake.list_datasets(ref):
        rows = lake.delta(record.path, ref=ref).to_arrow()
        name = record.path.removeprefix("tables/")
        columns = (rows[each].to_pylist() for each in ("run", "task", "try", "row"))
        found.update((name, *row) for row in zip(*columns, strict=True))
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
        yield {name: threads.submit(Scene(airflow, id).play, play).result for name, (id, play) in chosen.items()}


@pytest.fixture
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, Callable[[], None]]) -> Callable[[], None]:
    return outcomes[request.node.originalname]


@scene("worker_killed")
def test_an_orphan_of_a_dead_worker_has_no_effect_on_what_the_next_try_published(scene: Scene) -> None:
    hold = scene.hold("more")
    run = scene.run()
    process = scene.held_in_its_write(hold)
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
        kill(scene.held_in_its_write(hold)["pid"])
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
    scene.held_in_its_write(hold)
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
    process = scene.held_in_its_write(hold)
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
    (after,) = until(lambda: scene.airflow.runs(FOLLOWED[scene.name]), "the DAG that its asset starts", DEADLINE)
    assert after.end() == "success"

    tell(scene.home, scene.name, "total", "nothing")
    other = scene.airflow.run(scene.name, DAY + timedelta(days=1))
    assert other.end() == "success"
    assert scene.airflow.events(scene.name, other.run_id) == events(scene, "days", "lines")
    assert len(scene.airflow.runs(FOLLOWED[scene.name])) == 1


def events(scene: Scene, *tables: str) -> Counter[str]:
    """Return one event for each of some tables."""
    return Counter(f"lake://{connection_of(scene.name)}/main/tables/{table}" for table in tables)


def test_a_run_whose_scheduler_was_killed_goes_on_with_the_next_one(
    airflow: Standalone, outcomes: dict[str, Callable[[], None]]
) -> None:
    for ended in outcomes.values():
        with suppress(Exception):  # its own test says so
            ended()
    Scene(airflow, "scheduler_killed").play(lose_scheduler)


def lose_scheduler(scene: Scene) -> None:
    hold = scene.hold("more")
    run = scene.run()
    scene.held_in_its_write(hold)
    started = scene.airflow.schedulers_started
    scene.airflow.kill_scheduler()
    until(lambda: scene.airflow.schedulers_started > started, "another scheduler", DEADLINE)
    assert not scene.published()
    hold.let_go()
    assert run.end() == "success"
    assert scene.is_published(run)
    assert scene.commits() == 1


@pytest.mark.stress
@pytest.mark.timeout(5400)
def test_thirty_dates_are_published_once_each_whatever_dies(airflow: Standalone) -> None:
    scene = Scene(airflow, "stressed")
    reader, accidents = Reader(scene.lake()), Accidents(scene)
    reader.start()
    backfill = airflow.backfill(scene.name, DAY, DAY + timedelta(days=29), at_a_time=6)
    accidents.start()
    try:
        runs = backfill.end(4000)
    finally:
        accidents.stop()
    assert len(runs) == 30
    check_colours(scene, runs)

    for run in runs:
        if run.state == "failed":
            run.clear()
    assert [run.end() for run in runs] == ["success"] * 30
    check_colours(scene, runs)
    assert scene.is_published(*runs)
    reader.stop()
    assert reader.looks
    assert not reader.faults
    print(f"killed {dict(accidents.killed)}, {reader.looks} looks at main")


def check_colours(scene: Scene, runs: Sequence[Run]) -> None:
    """Check that a run is green if its rows are published, and red if none of them is."""
    published = scene.published()
    rows = Counter(row[1] for row in published)
    said = {run.run_id: run.state for run in runs}
    assert {id: rows[id] for id in said} == {id: WHOLE if state == "success" else 0 for id, state in said.items()}
    green = [run for run in runs if said[run.run_id] == "success"]
    assert published == scene.meant(*green)
