"""A run's life in random orders, against a model: published is what the tries that count have written, and that once.

The orchestrator here is like Airflow, which clears, marks, maps, skips and defers tasks within a run, before and after
the publish. It is in memory; the lake is real.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.errors import LakeError
from lake_core.lake.errors import AttemptTakenOut, Conflict, SessionClosed, StaleAttempt, StaleEpoch, UnfinishedTasks
from lake_core.lake.session.session_writer import SessionWriter
from lake_core.lake.session.task_attempt import TaskAttempt
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from lake_orch.runs.run import Run
from lake_orch.runs.task_states import TryState
from tests.examples import exhaustive
from tests.outage import Outage, no_waiting

SCHEMA = pa.schema({"task": pa.string(), "row": pa.int64()})
TABLES = ("shared", "own")


class State(Enum):
    NONE = "none"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass
class Task:
    """A task as the orchestrator knows it."""

    name: str
    upstream: tuple[str, ...] = ()
    state: State = State.NONE
    number: int = 0
    token: str = ""
    part: int = 0
    """How often it was deferred in its try."""
    rows: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """What its try has brought into the session: rows of datasets, less those that it deleted."""
    rows_before: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """What its try had brought when its last process began to write."""
    has_ended: bool = True
    """Whether the last process of its try ended its block."""
    is_revived: bool = False
    """Whether it was marked as a success while its try did not count, and might have been taken out."""


@dataclass(frozen=True)
class Written:
    """One write of a task."""

    dataset: str
    row: int
    replaces: bool = False
    """Whether it replaces what the task wrote into the dataset before."""
    deleted: tuple[tuple[str, str, int], ...] = ()


@dataclass
class Process:
    """A process of a try, which may outlive what the orchestrator believes."""

    task: Task
    attempt: TaskAttempt
    writer: SessionWriter | None = None
    rows: list[Written] = field(default_factory=list)
    """What it has written and not flushed yet."""


class Orchestrator:
    """Tasks, of which `down` reads what `up` wrote, and `m…` are mapped."""

    def __init__(self) -> None:
        self.tasks = {name: Task(name) for name in ("up", "side", "m0", "m1")}
        self.tasks["down"] = Task("down", ("up", "m0", "m1"))
        self.removed: dict[str, Task] = {}

    def of(self, attempt: TaskAttempt) -> TryState:
        task = self.tasks.get(str(attempt.task))
        if task is None or (task.number, task.token) != (attempt.number, attempt.token):
            return TryState.GONE
        return {
            State.RUNNING: TryState.RUNNING,
            State.SUCCESS: TryState.SUCCEEDED,
            State.FAILED: TryState.FAILED,
        }.get(task.state, TryState.GONE)

    def look(self) -> None:
        pass

    def replaces(self, task: str) -> bool:
        return False

    def unfinished(self) -> Collection[str]:
        return [task.name for task in self.tasks.values() if task.state not in (State.SUCCESS, State.SKIPPED)]

    def succeeded(self) -> Collection[str]:
        return [task.name for task in self.tasks.values() if task.state is State.SUCCESS]

    def name(self, task: str) -> str:
        return task

    def can_start(self, task: Task) -> bool:
        upstream = [self.tasks[name] for name in task.upstream if name in self.tasks]
        return task.state is State.NONE and all(each.state in (State.SUCCESS, State.SKIPPED) for each in upstream)


class Life:
    """A run, its processes, and what must be published."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.store = Outage(MemoryStore(clock=self.clock))
        self.lake = Lake.create(self.store, clock=self.clock)
        self.orchestrator = Orchestrator()
        self.run = Run(self.lake, "main", "run", self.orchestrator, self.clock())
        self.processes: list[Process] = []
        self.row = 0
        self.others: Counter[tuple[str, str, int]] = Counter()
        """What other runs have published."""
        self.publishes = 0
        self.did: list[str] = []
        self.rewrites = self.chance.random() < 0.4
        """Whether `down` deletes rows of `up`, so that these cannot be taken out without it."""
        self.expired = self.conflicted = False
        if self.chance.random() < 0.5:
            with self.lake.session() as session:
                for table in TABLES:
                    session.create_delta(table, SCHEMA)

    # What tasks do

    def start(self) -> None:
        ready = [task for task in self.orchestrator.tasks.values() if self.orchestrator.can_start(task)]
        if not ready:
            return
        task = self.chance.choice(ready)
        task.state, task.number, task.token, task.part = State.RUNNING, task.number + 1, f"try-{len(self.did)}", 0
        task.rows, task.rows_before, task.has_ended, task.is_revived = Counter(), Counter(), True, False
        self.did.append(f"start {task.name}")
        self.processes.append(Process(task, TaskAttempt(task.name, task.number, task.token, "0")))

    def write(self, process: Process) -> None:
        if process.writer is None:
            counts = self.orchestrator.of(process.attempt) is TryState.RUNNING
            try:
                process.writer = self.run.begin(process.attempt)
            except StaleAttempt:
                assert not counts, "a try that counts may write"
                self.processes.remove(process)
                return
            except Conflict:
                assert self.rewrites, "only what others rewrote cannot be taken out"
                self.processes.remove(process)
                process.task.state = State.FAILED
                return
            assert counts
            process.task.has_ended = process.writer.is_complete
            process.task.rows_before = Counter(process.task.rows)
        self.row += 1
        kind = self.chance.choice(["append", "append", "replace", "file", "delete"])
        self.did.append(f"{kind} {process.task.name} {process.attempt.number} {self.row}")
        process.rows.append(self._write(process.writer, process.task, kind))

    def _write(self, writer: SessionWriter, task: Task, kind: str) -> Written:
        rows = pa.table({"task": [task.name], "row": [self.row]}, schema=SCHEMA)
        if kind == "file":
            writer.put(f"files/{task.name}", str(self.row).encode())
            return Written("files", self.row, replaces=True)
        if kind == "replace":
            table = writer.create_delta("own", SCHEMA, exist_ok=True)
            table.overwrite(rows, where=f"task = '{task.name}'")
            return Written("own", self.row, replaces=True)
        table = writer.create_delta("shared", SCHEMA, exist_ok=True)
        deleted: tuple[tuple[str, str, int], ...] = ()
        if kind == "delete" and task.upstream and self.rewrites:
            found = table.to_arrow(where="task = 'up'").to_pylist()
            deleted = tuple(("shared", "up", row["row"]) for row in found)
            table.delete("task = 'up'")
        table.append(rows)
        return Written("shared", self.row, deleted=deleted)

    def _bring(self, process: Process) -> None:
        """Let the try have brought what its process has written."""
        task = process.task
        for written in process.rows:
            if written.replaces:
                for key in [key for key in task.rows if key[:2] == (written.dataset, task.name)]:
                    del task.rows[key]
            task.rows.subtract(written.deleted)
            task.rows[written.dataset, task.name, written.row] += 1
        process.rows = []

    def flush(self, process: Process, *, is_last: bool = False) -> bool:
        """Flush, and return whether the process lives on. What it flushed counts if its try does."""
        if process.writer is None:
            if is_last:
                self.processes.remove(process)
            return True
        self.did.append(f"{'end' if is_last else 'flush'} {process.task.name} {process.attempt.number}")
        counts = self.orchestrator.of(process.attempt) is TryState.RUNNING
        try:
            if is_last:
                process.writer.__exit__(None, None, None)
            else:
                process.writer.flush()
        except (StaleAttempt, StaleEpoch, SessionClosed, Conflict) as error:
            # A conflict: others took out what created the table that it writes to.
            assert not counts or isinstance(error, Conflict | StaleEpoch | SessionClosed), error
            self.processes.remove(process)
            if counts:
                process.task.state = State.FAILED
            return False
        if self._is_of_try(process):
            self._bring(process)
            process.task.has_ended |= is_last
        process.rows = []
        if is_last:
            self.processes.remove(process)
        return True

    def _is_of_try(self, process: Process) -> bool:
        return (process.task.number, process.task.token) == (process.attempt.number, process.attempt.token)

    def end(self, process: Process) -> None:
        """A process ends well; its task succeeds, if the orchestrator still waits for it."""
        if self.flush(process, is_last=True) and self._is_of_try(process) and process.task.state is State.RUNNING:
            process.task.state = State.SUCCESS

    def fail(self, process: Process) -> None:
        """A process dies, or is only believed to be dead: then it goes on."""
        is_dead = self.chance.random() < 0.6
        self.did.append(f"{'die' if is_dead else 'lose'} {process.task.name} {process.attempt.number}")
        if is_dead:
            self.processes.remove(process)
        if self._is_of_try(process) and process.task.state is State.RUNNING:
            process.task.state = State.FAILED

    def defer(self, process: Process) -> None:
        """A process ends, and another one goes on with the same try."""
        if self._is_of_try(process) and process.task.state is State.RUNNING and self.flush(process, is_last=True):
            task = process.task
            task.part += 1
            attempt = TaskAttempt(task.name, task.number, task.token, str(task.part))
            self.did.append(f"defer {task.name}")
            self.processes.append(Process(task, attempt))

    def lose_answer(self, process: Process) -> None:
        """The store goes away in a flush, and comes back."""
        if process.writer is None or not process.rows:
            return
        self.store.begin(self.chance.randint(1, 12), self.chance.choice(["before", "after"]))
        try:
            process.writer.flush()
        except (LakeError, OSError):
            self.store.end()
            if process in self.processes:
                self.flush(process)
        else:
            self.store.end()
            if self._is_of_try(process):
                self._bring(process)
            process.rows = []

    # What people and the orchestrator do

    def clear(self) -> None:
        task = self.chance.choice([*self.orchestrator.tasks.values()])
        with_downstream = self.chance.random() < 0.7
        self.did.append(f"clear {task.name} {'with' if with_downstream else 'without'} downstream")
        for each in self.orchestrator.tasks.values():
            if each is task or (with_downstream and task.name in each.upstream):
                each.state = State.NONE

    def mark(self) -> None:
        task = self.chance.choice([*self.orchestrator.tasks.values()])
        state = self.chance.choice([State.SUCCESS, State.FAILED, State.SKIPPED])
        was_begun = task.token != "" and task.state in (State.NONE, State.SKIPPED)
        if task.state in (State.FAILED, State.RUNNING) or state is State.SKIPPED or was_begun:
            self.did.append(f"mark {task.name} {state.value}")
            task.state, task.is_revived = state, task.is_revived or was_begun

    def map(self) -> None:
        """A mapped list shrinks or grows."""
        tasks, removed = self.orchestrator.tasks, self.orchestrator.removed
        if "m1" in tasks:
            self.did.append("shrink")
            removed["m1"] = tasks.pop("m1")
        else:
            self.did.append("grow")
            tasks["m1"] = removed.pop("m1")
            tasks["m1"].state = State.NONE

    def publish(self) -> None:
        half = self.chance.choice(["refuse", "leave out"])
        self.did.append(f"publish, {half}")
        unfinished = self.orchestrator.unfinished()
        counting = [task for task in self.orchestrator.tasks.values() if task.state is State.SUCCESS]
        half_written = [task for task in counting if not task.has_ended]
        revived = any(task.is_revived for task in counting)
        try:
            outcome = self.run.publish(half_written="leave out" if half == "leave out" else "refuse")
        except UnfinishedTasks:
            assert unfinished or half_written
            return
        except AttemptTakenOut:
            assert revived
            return
        except SessionClosed:
            assert self.expired or self.conflicted or revived, "it expired, conflicts, or was marked"
            return
        except Conflict as error:
            # Others changed what these changes build on, or tasks that count build on what is to be left out.
            self.conflicted = True
            assert self.rewrites or self.others, error
            return
        assert not unfinished
        for task in half_written:
            task.rows = task.rows_before
        if outcome is not None:
            self.publishes += 1
        self.check()

    def check(self) -> None:
        """Check that published is exactly what the tries that count wrote, and what others did."""
        expected = Counter(self.others)
        for task in self.orchestrator.tasks.values():
            if task.state is State.SUCCESS:
                expected.update(task.rows)
        assert self.published() == +expected, "\n".join(self.did)

    def published(self) -> Counter[tuple[str, str, int]]:
        state = self.lake.at("main")
        rows = Counter(
            (table, row["task"], row["row"])
            for table in TABLES
            if table in state.datasets()
            for row in state.delta(table).to_arrow().to_pylist()
        )
        rows.update(
            ("files", meta.key.removeprefix("files/"), int(state.get(meta.key))) for meta in state.list("files/")
        )
        return rows

    def close(self) -> None:
        self.did.append("close")
        if self.run.close("the run is over", keep=timedelta(hours=24)) == "published" and not (
            self.orchestrator.unfinished()
        ):
            self.check()

    def wait(self) -> None:
        """Let the session expire, once."""
        if self.expired or self.chance.random() < 0.7:
            return
        self.did.append("wait")
        self.expired = True
        self.clock.pass_days(8)

    def other(self) -> None:
        """Another run publishes into a table of this one, or compacts it."""
        state = self.lake.at("main")
        tables = [table for table in TABLES if table in state.datasets()]
        if not tables:
            return
        table = self.chance.choice(tables)
        with self.lake.session() as session:
            if self.chance.random() < 0.3:
                self.did.append(f"compact {table}")
                session.delta(table).optimize()
            else:
                self.row += 1
                self.did.append(f"other {table} {self.row}")
                rows = pa.table({"task": ["other"], "row": [self.row]}, schema=SCHEMA)
                session.delta(table).append(rows)
                self.others[table, "other", self.row] += 1

    def step(self) -> None:
        if self.processes and self.chance.random() < 0.6:
            process = self.chance.choice(self.processes)
            actions = [self.write, self.write, self.write, self.flush, self.end, self.end, self.end, self.fail]
            self.chance.choice([*actions, self.defer, self.lose_answer])(process)
        else:
            kinds = [self.start] * 8 + [self.publish] * 3 + [self.clear, self.clear, self.mark, self.map]
            self.chance.choice([*kinds, self.close, self.wait, self.other])()

    def finish(self) -> None:
        """Let all tasks run to their end once more, with nothing in their way, and publish: no run is lost for ever.

        A session that conflicts, as it began before others published, is followed by one that does not.
        """
        before = self.publishes
        for _ in range(2):
            self.conflicted = False
            self.run_all()
            self.publish()
            if not self.conflicted:
                break
        assert self.publishes == before + 1, "\n".join(self.did)

    def run_all(self) -> None:
        for task in self.orchestrator.tasks.values():
            task.state = State.NONE
        while any(self.orchestrator.can_start(task) for task in self.orchestrator.tasks.values()):
            self.start()
            process = self.processes[-1]
            self.write(process)
            self.end(process)


def live(seed: int, steps: int) -> Life:
    with no_waiting():
        life = Life(seed)
        for _ in range(steps):
            life.step()
        life.finish()
    return life


@pytest.mark.parametrize("seed", [*range(10), *exhaustive(range(10, 40))])
def test_what_is_published_is_what_counts(seed: int) -> None:
    live(seed, 40)


@pytest.mark.parametrize("part", [0, *exhaustive(range(1, 100))])
def test_thousands_of_short_orders(part: int) -> None:
    for seed in range(10_000 + 20 * part, 10_000 + 20 * (part + 1)):
        live(seed, 8)


def test_a_table_of_the_run_may_be_compacted_while_it_is_made_anew() -> None:
    # The second generation dropped the table, which the first had created, and created it again.
    assert "compact shared" in live(1795729384, 60).did


def test_new_orders(new_seed: int) -> None:
    for seed in range(new_seed, new_seed + 10):
        live(seed, 60)


@pytest.mark.histories
def test_thousands_of_orders(chosen_seeds: range) -> None:
    for seed in chosen_seeds:
        live(seed, 80)
