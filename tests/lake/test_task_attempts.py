"""Attempts at the tasks of a shared session, in random orders, against a model that says what must be published."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict, StaleAttempt, UnfinishedTasks
from lake_core.lake.session.session_writer import SessionWriter
from lake_core.store import MemoryStore
from tests.examples import stride
from tests.lake.id_datasets import PATH, Pool, Table

TASKS = ("load", "clean", "count")


@dataclass
class _Part:
    """What one writer has brought into the session."""

    token: str
    number: int
    rows: list[int] = field(default_factory=list)
    has_ended: bool = False


@dataclass
class _Process:
    """A process that runs an attempt. It may be one of several that do."""

    task: str
    number: int
    token: str
    part: str
    writer: SessionWriter
    rows: list[int] = field(default_factory=list)
    """What it has written and not flushed yet."""
    mine: _Part | None = None
    """What it has brought into the session."""


class _Run:
    """A session, the processes that write to it, and what must be in it."""

    def __init__(self, dataset: Table | Pool, chance: random.Random, *, is_created: bool) -> None:
        self.dataset, self.chance = dataset, chance
        self.lake = Lake.create(MemoryStore())
        if is_created:
            with self.lake.session() as s:
                dataset.create(s)
        self.session = self.lake.open_session(id="run")
        self.there: dict[str, dict[str, _Part]] = {task: {} for task in TASKS}
        """By task and by part: what the session holds."""
        self.processes: list[_Process] = []
        self.numbers: Counter[str] = Counter()
        self.row = 0
        self.did: list[str] = []

    def begin(self) -> None:
        """Begin an attempt: the next one, or the same number with another token, or another part, or the same again."""
        task = self.chance.choice(TASKS)
        kind = self.chance.choice(["next", "next", "token", "part", "same"])
        others = [process for process in self.processes if process.task == task]
        token, part = f"t{len(self.did)}", ""
        if kind == "next" or not others:
            self.numbers[task] += 1
        elif kind != "token":
            token = others[-1].token
            part = f"p{len(self.did)}" if kind == "part" else others[-1].part
        number = self.numbers[task] if kind in ("next", "token") or not others else others[-1].number
        self.did.append(f"begin {task} {number} {token} {part!r}")
        parts = self.there[task]
        is_stale = any(other.number > number for other in parts.values())
        try:
            writer = self.session.join(task=task, attempt=number, token=token, part=part)
        except StaleAttempt:
            assert is_stale
            return
        assert not is_stale
        same = parts.get(part)
        is_complete = same is not None and (same.number, same.token) == (number, token) and same.has_ended
        assert writer.is_complete is is_complete
        process = _Process(task, number, token, part, writer)
        self.processes.append(process)
        if not is_complete:
            self._replace(process)

    def _replace(self, process: _Process) -> None:
        """Let the session hold what a process has brought, beside the other parts of the same attempt."""
        parts = self.there[process.task]
        identity = process.number, process.token
        for part in [part for part, other in parts.items() if (other.number, other.token) != identity]:
            del parts[part]
        process.mine = parts[process.part] = _Part(process.token, process.number)

    def write(self, process: _Process) -> None:
        self.row += 1
        self.did.append(f"write {self.row} by {process.task} {process.token} {process.part!r}")
        if not process.writer.datasets():
            self.dataset.create(process.writer)
        self.dataset.add(process.writer, self.row)
        process.rows.append(self.row)

    def flush(self, process: _Process, *, is_last: bool) -> None:
        self.did.append(f"{'end' if is_last else 'flush'} {process.task} {process.token} {process.part!r}")
        is_there = process.mine is not None and self.there[process.task].get(process.part) is process.mine
        try:
            if is_last:
                process.writer.__exit__(None, None, None)
            else:
                process.writer.flush()
        except StaleAttempt:
            assert not is_there
            self.processes.remove(process)
            return
        except Conflict:
            # It wrote to a dataset whose creation was discarded in the meantime.
            assert process.rows
            assert not self.lake.list_datasets("run")
            self.processes.remove(process)
            return
        if not process.writer.is_complete:
            assert is_there
            assert process.mine is not None
            process.mine.rows += process.rows
            process.mine.has_ended |= is_last
        process.rows = []
        if is_last:
            self.processes.remove(process)

    def discard(self) -> None:
        tasks = self.chance.sample(TASKS, self.chance.randint(1, 2))
        self.did.append(f"discard {tasks}")
        self.session.discard(tasks)
        for task in tasks:
            self.there[task] = {}

    def step(self) -> None:
        x = self.chance.random()
        if x < 0.3 or not self.processes:
            self.begin()
            return
        process = self.chance.choice(self.processes)
        if x < 0.6:
            self.write(process)
        elif x < 0.75:
            self.flush(process, is_last=False)
        elif x < 0.9:
            self.flush(process, is_last=True)
        elif x < 0.95:
            self.did.append(f"{process.task} {process.token} dies")
            self.processes.remove(process)
        else:
            self.discard()

    def rows(self) -> list[int]:
        return sorted(row for parts in self.there.values() for part in parts.values() for row in part.rows)

    def check(self) -> None:
        has_dataset = bool(self.lake.list_datasets("run"))
        assert (self.dataset.ids(self.lake, "run") if has_dataset else []) == self.rows()

    def publish(self) -> None:
        """Publish the tasks that ended, and leave out the rest."""
        ended = [task for task, parts in self.there.items() if parts and all(part.has_ended for part in parts.values())]
        if any(parts for task, parts in self.there.items() if task not in ended):
            with pytest.raises(UnfinishedTasks):
                self.session.publish(tasks=ended)
        self.session.publish(tasks=ended, others="leave out")
        self.there = {task: parts if task in ended else {} for task, parts in self.there.items()}
        has_dataset = bool(self.lake.list_datasets())
        assert (self.dataset.ids(self.lake) if has_dataset else []) == self.rows()


@pytest.mark.parametrize("is_created", [True, False], ids=["of a dataset that is there", "of a new one"])
@pytest.mark.parametrize("dataset", [Table(), Pool()], ids=["table", "pool"])
def test_random_orders_of_attempts(dataset: Table | Pool, is_created: bool) -> None:
    for seed in range(0, 25, stride(8)):
        run = _Run(dataset, random.Random(seed), is_created=is_created)
        try:
            for _ in range(30):
                run.step()
                run.check()
            run.publish()
        except (AssertionError, Conflict) as error:
            raise AssertionError(f"seed {seed}: {'; '.join(run.did)}") from error


def _written(run: Lake, dataset: Table | Pool, task: str, *rows: int, attempt: int = 0, ends: bool = True) -> None:
    writer = run.get_session("run").join(task=task, attempt=attempt)
    dataset.create(writer)
    dataset.add(writer, *rows)
    if ends:
        writer.__exit__(None, None, None)
    else:
        writer.flush()


@pytest.fixture(params=[Table, Pool], ids=["table", "pool"])
def dataset(request: pytest.FixtureRequest) -> Table | Pool:
    dataset: Table | Pool = request.param()
    return dataset


@pytest.fixture
def opened(empty: Lake) -> Lake:
    empty.open_session(id="run")
    return empty


def test_the_task_that_created_a_table_runs_again_after_others_wrote_to_it(opened: Lake, dataset: Table | Pool) -> None:
    _written(opened, dataset, "first", 1)
    _written(opened, dataset, "second", 2)
    _written(opened, dataset, "first", 3, attempt=1)
    opened.get_session("run").publish()
    assert dataset.ids(opened) == [2, 3]


def test_a_discarded_task_takes_its_table_along(opened: Lake, dataset: Table | Pool) -> None:
    _written(opened, dataset, "first", 1)
    assert opened.get_session("run").discard(["first", "never ran"]) == ["first"]
    assert opened.list_datasets("run") == []


def test_a_dataset_that_a_discarded_task_created_leaves_no_trace(opened: Lake, dataset: Table | Pool) -> None:
    before = {difference.key for difference in opened.diff("main", "run")}
    _written(opened, dataset, "first", 1)
    _written(opened, dataset, "second", 2)
    opened.get_session("run").discard(["second"])
    opened.get_session("run").discard(["first"])
    assert {difference.key for difference in opened.diff("main", "run")} == before


def test_a_discarded_drop_brings_the_dataset_back(opened: Lake, dataset: Table | Pool) -> None:
    with opened.session() as s:
        dataset.create(s)
    session = opened.open_session(id="later")
    with session.join(task="drops") as writer:
        writer.drop(PATH)
        dataset.create(writer)
        dataset.add(writer, 1)
    session.discard(["drops"])
    session.publish()
    assert dataset.ids(opened) == []


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_attempts_at_a_task_create_what_another_session_creates(
    opened: Lake, dataset: Table | Pool, attempts: int
) -> None:
    for attempt in range(attempts):
        _written(opened, dataset, "first", 10 + attempt, attempt=attempt)
    with opened.session() as other:
        dataset.create(other)
        dataset.add(other, 1)
    opened.get_session("run").publish()
    assert dataset.ids(opened) == [1, 9 + attempts]


def test_what_others_rewrote_is_not_taken_out(opened: Lake, dataset: Table | Pool) -> None:
    _written(opened, dataset, "first", 1, 2)
    with opened.get_session("run").join(task="second") as writer:
        dataset.delete(writer, 1)
    with pytest.raises(Conflict, match="Discard those tasks as well"):
        opened.get_session("run").discard(["first"])
    assert dataset.ids(opened, "run") == [2]
    opened.get_session("run").discard(["first", "second"])
    assert opened.list_datasets("run") == []


def test_an_attempt_that_did_not_end_is_not_published(opened: Lake, dataset: Table | Pool) -> None:
    _written(opened, dataset, "whole", 1)
    _written(opened, dataset, "half", 2, ends=False)
    with pytest.raises(UnfinishedTasks, match="'half' did not end") as caught:
        opened.get_session("run").publish(tasks=["whole", "half"])
    assert caught.value.unfinished == ("half",)
    opened.get_session("run").publish(tasks=["whole", "half"], others="leave out")
    assert dataset.ids(opened) == [1]


def test_a_task_that_is_not_named_is_not_published(opened: Lake, dataset: Table | Pool) -> None:
    _written(opened, dataset, "map/0", 1)
    _written(opened, dataset, "map/1", 2)
    with pytest.raises(UnfinishedTasks) as caught:
        opened.get_session("run").publish(tasks=["map/0"])
    assert caught.value.others == ("map/1",)
    opened.get_session("run").publish(tasks=["map/0"], others="leave out")
    assert dataset.ids(opened) == [1]


def test_one_attempt_in_two_processes_keeps_one_of_them(opened: Lake, dataset: Table | Pool) -> None:
    def told(writers: Sequence[SessionWriter]) -> int:
        count = 0
        for number, writer in enumerate([*writers, *writers]):
            with suppress(StaleAttempt):
                dataset.create(writer)
                dataset.add(writer, number)
                writer.flush()
                continue
            count += 1
        return count

    session = opened.get_session("run")
    assert told([session.join(task="load"), session.join(task="load")]) == 1
    assert dataset.ids(opened, "run") == [1, 3]


@pytest.mark.parametrize("others", [True, False], ids=["with rows of others", "alone"])
def test_a_marked_write_of_a_discarded_task_is_written_again(opened: Lake, dataset: Table | Pool, others: bool) -> None:
    session = opened.get_session("run")
    for _ in range(2):
        with session.join(task="first") as writer:
            dataset.create(writer)
            dataset.add(writer, 1, txn=("load", 1))
        if others:
            with session.join(task="second") as writer:
                dataset.create(writer)
                dataset.add(writer, 2)
        assert session.discard(["first"]) == ["first"]
        if others:
            session.discard(["second"])
    with session.join(task="first") as writer:
        dataset.create(writer)
        dataset.add(writer, 1, txn=("load", 1))
    session.publish()
    assert dataset.ids(opened) == [1]


def test_a_failed_session_gives_up_what_is_discarded(opened: Lake, dataset: Table | Pool) -> None:
    session = opened.get_session("run")
    _written(opened, dataset, "whole", 1)
    _written(opened, dataset, "half", 2, ends=False)
    session.fail("a step failed")
    session.publish(tasks=["whole"], others="leave out")
    assert dataset.ids(opened) == [1]


def test_a_discarded_writer_is_told(opened: Lake, dataset: Table | Pool) -> None:
    session = opened.get_session("run")
    writer = session.join(task="load")
    dataset.create(writer)
    dataset.add(writer, 1)
    writer.flush()
    session.discard(["load"])
    dataset.add(writer, 2)
    with pytest.raises(StaleAttempt, match="discarded"):
        writer.flush()


def test_a_part_that_is_there_is_skipped_and_says_so(opened: Lake, dataset: Table | Pool) -> None:
    session = opened.get_session("run")
    for part in ("one", "two", "one"):
        with session.join(task="load", token="try-1", part=part) as writer:
            assert writer.is_complete is (part == "one" and dataset_exists(opened))
            dataset.create(writer)
            dataset.add(writer, 1 if part == "one" else 2)
    session.publish()
    assert dataset.ids(opened) == [1, 2]


def dataset_exists(lake: Lake) -> bool:
    return bool(lake.list_datasets("run"))


def test_an_orphan_of_another_token_is_told(opened: Lake, dataset: Table | Pool) -> None:
    session = opened.get_session("run")
    orphan = session.join(task="load", token="try-1")
    with session.join(task="load", token="try-2") as writer:
        dataset.create(writer)
        dataset.add(writer, 2)
    dataset.create(orphan)
    dataset.add(orphan, 1)
    with pytest.raises(StaleAttempt):
        orphan.flush()
    session.publish(tasks=["load"])
    assert dataset.ids(opened) == [2]


@pytest.mark.parametrize(("token", "part"), [("try-1", ""), ("", "one")])
def test_a_token_or_a_part_needs_a_task(opened: Lake, token: str, part: str) -> None:
    with pytest.raises(ValueError, match="name the task"):
        opened.get_session("run").join(token=token, part=part)
