"""A run's session at the moments that random orders seldom meet: overtaken tries, reverts, what is long ago."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.lake.errors import AttemptTakenOut, BatchesGone, LakeError, SessionClosed, StaleAttempt, StaleEpoch
from lake_core.lake.session.session_writer import SessionWriter
from lake_core.lake.session.task_attempt import TaskAttempt
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from lake_orch.errors import InvalidDefinition
from lake_orch.runs.run import Run
from lake_orch.runs.task_states import TryState

SCHEMA = pa.schema({"task": pa.string(), "row": pa.int64()})
KEEP = timedelta(hours=24)


class Tries:
    """The last try at each task, and its state."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[TaskAttempt, TryState | None]] = {}
        self.meanwhile: Callable[[], None] | None = None
        """What happens while the orchestrator answers for the next time."""

    def begin(self, task: str, number: int = 1, token: str = "first") -> TaskAttempt:
        attempt = TaskAttempt(task, number, token)
        self.last[task] = attempt, TryState.RUNNING
        return attempt

    def end(self, task: str, state: TryState | None = TryState.SUCCEEDED) -> None:
        """End a try; with None, its task is cleared."""
        self.last[task] = self.last[task][0], state

    def of(self, attempt: TaskAttempt) -> TryState:
        last, state = self.last.get(str(attempt.task), (None, None))
        is_last = last is not None and (last.number, last.token) == (attempt.number, attempt.token)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return state if is_last and state is not None else TryState.GONE

    def look(self) -> None:
        pass

    def replaces(self, task: str) -> bool:
        return False

    def unfinished(self) -> Collection[str]:
        return [task for task, (_, state) in self.last.items() if state is not TryState.SUCCEEDED]

    def succeeded(self) -> Collection[str]:
        return [task for task, (_, state) in self.last.items() if state is TryState.SUCCEEDED]

    def name(self, task: str) -> str:
        return task


class Bench:
    """A lake with a table, and a run that writes into it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lake = Lake.create(MemoryStore(clock=self.clock), clock=self.clock)
        with self.lake.session() as session:
            session.create_delta("t", SCHEMA)
        self.tries = Tries()
        self.run = Run(self.lake, "main", "run", self.tries, self.clock())

    def write(self, writer: SessionWriter, task: str, row: int) -> None:
        writer.delta("t").append(pa.table({"task": [task], "row": [row]}, schema=SCHEMA))

    def do(self, task: str, row: int | None, number: int = 1, token: str = "first") -> None:
        """Run a task from its begin to its end."""
        with self.run.begin(self.tries.begin(task, number, token)) as writer:
            if row is not None:
                self.write(writer, task, row)
        self.tries.end(task)

    def rows(self) -> list[tuple[str, int]]:
        return sorted((row["task"], row["row"]) for row in self.lake.delta("t").to_arrow().to_pylist())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_came_after_the_look_is_not_discarded(bench: Bench) -> None:
    bench.do("a", 1)
    session = bench.run.open()
    judged = [batch.id for batch in session.list_batches()]
    bench.do("a", 2, number=2)
    session.discard_batches(judged)
    bench.run.publish()
    assert bench.rows() == [("a", 2)]


def test_a_try_that_is_overtaken_while_it_begins_is_told(bench: Bench) -> None:
    overtaken = bench.tries.begin("a", 1, "first")
    bench.tries.meanwhile = lambda: bench.do("a", 2, number=1, token="second")
    with pytest.raises(StaleAttempt):
        bench.run.begin(overtaken)
    bench.run.publish()
    assert bench.rows() == [("a", 2)]


# Branches


def on_branch(bench: Bench, branch: str) -> Run:
    """The same run, which is for another branch now."""
    return replace(bench.run, branch=branch)


def rows_on(bench: Bench, branch: str) -> list[tuple[str, int]]:
    return sorted((row["task"], row["row"]) for row in bench.lake.delta("t", ref=branch).to_arrow().to_pylist())


@pytest.mark.parametrize("published", [False, True], ids=["staged", "published"])
def test_what_was_written_for_another_branch_is_not_published_on_this_one(bench: Bench, published: bool) -> None:
    bench.lake.create_branch("march")
    bench.run = on_branch(bench, "march")
    bench.do("a", 1)
    if published:
        bench.run.publish()
    bench.run = on_branch(bench, "main")
    with pytest.raises(InvalidDefinition, match=r"for branch 'main', and these tasks have written for 'march'.*'a'"):
        bench.run.publish()
    with pytest.raises(InvalidDefinition, match="Run them again as well"):
        bench.do("b", 1)
    assert not bench.run.is_published
    assert rows_on(bench, "main") == []


@pytest.mark.parametrize("published", [False, True], ids=["staged", "published"])
def test_a_run_that_begins_again_for_another_branch_leaves_the_first_one(bench: Bench, published: bool) -> None:
    bench.lake.create_branch("march")
    bench.run = on_branch(bench, "march")
    bench.do("a", 1)
    if published:
        bench.run.publish()
    bench.run = on_branch(bench, "main")
    bench.tries.end("a", None)
    bench.run.open(anew=True)
    bench.do("a", 2, number=2)
    bench.run.publish()
    assert rows_on(bench, "main") == [("a", 2)]
    assert rows_on(bench, "march") == ([("a", 1)] if published else [])


def test_what_was_merged_from_another_branch_is_replaced(bench: Bench) -> None:
    bench.lake.create_branch("march")
    bench.run = on_branch(bench, "march")
    bench.do("a", 1)
    bench.run.publish()
    bench.lake.merge("march")
    bench.run = on_branch(bench, "main")
    bench.tries.end("a", None)
    bench.run.open(anew=True)
    bench.do("a", 2, number=2)
    bench.run.publish()
    assert rows_on(bench, "main") == [("a", 2)]


# Publishers that are taken for dead


def test_a_publisher_that_was_taken_for_dead_publishes_nothing(bench: Bench) -> None:
    bench.do("a", 1)

    def check_alive() -> None:
        raise StaleAttempt("it is failed")

    with pytest.raises(StaleAttempt):
        bench.run.publish(check_alive=check_alive)
    assert bench.rows() == []


def test_a_publisher_does_not_go_on_after_the_run_was_closed(bench: Bench) -> None:
    bench.do("a", 1)
    session = bench.run.open()
    assert bench.run.close("its publisher does not answer", keep=KEEP) == "unpublished"
    with pytest.raises(StaleEpoch):
        session.publish()
    bench.run.publish()
    assert bench.rows() == [("a", 1)]


def test_a_try_that_was_let_go_cannot_begin(bench: Bench) -> None:
    attempt = bench.tries.begin("a")
    bench.tries.end("a", TryState.FAILED)
    with pytest.raises(StaleAttempt, match="it is failed"):
        bench.run.begin(attempt)


def test_a_task_that_writes_nothing_again_leaves_the_run_published(bench: Bench) -> None:
    bench.do("a", None)
    bench.do("b", 1)
    bench.run.publish()
    bench.do("a", None, number=2)
    bench.run.publish()
    assert bench.run.close("over", keep=KEEP) == "published"
    bench.run.publish()
    assert [record.id for record in bench.lake.list_generations("run")] == ["run", "run.2"]


def test_a_task_that_was_reverted_and_runs_again_is_there_once(bench: Bench) -> None:
    bench.do("a", 1)
    published = bench.run.publish()
    assert published is not None
    bench.lake.revert(published.published.commit)
    bench.do("a", 2, number=2)
    bench.run.publish()
    assert bench.rows() == [("a", 2)]
    assert bench.run.close("over", keep=KEEP) == "published"


def test_a_cleared_task_that_does_not_run_again_leaves_nothing(bench: Bench) -> None:
    bench.do("a", 1)
    bench.do("b", 1)
    bench.run.publish()
    del bench.tries.last["a"]  # a mapped list that shrank
    assert bench.run.close("over", keep=KEEP) == "unpublished"
    published = bench.run.publish()
    assert published is not None
    assert published.replaced == ["a"]
    assert bench.rows() == [("b", 1)]


@pytest.mark.parametrize("was_published", [False, True])
def test_a_task_that_was_cleared_and_taken_out_cannot_be_marked_as_a_success(bench: Bench, was_published: bool) -> None:
    bench.do("a", 1)
    if was_published:
        bench.run.publish()
    bench.tries.end("a", None)
    bench.do("b", 2)
    bench.tries.end("a")
    with pytest.raises(AttemptTakenOut, match=r"marked as successes since: 'a'\. Run them again"):
        bench.run.publish()
    assert bench.run.close("the run is over", keep=KEEP) == "unpublished"
    bench.do("a", 3, number=2)
    bench.run.publish()
    assert bench.rows() == [("a", 3), ("b", 2)]


def test_a_task_that_was_cleared_and_not_taken_out_yet_may_be_marked_as_a_success(bench: Bench) -> None:
    bench.do("a", 1)
    bench.tries.end("a", None)
    bench.tries.end("a")
    bench.do("b", 2)
    bench.run.publish()
    assert bench.rows() == [("a", 1), ("b", 2)]


def test_what_a_session_took_out_of_a_publish_is_there_again_once_it_is_abandoned(bench: Bench) -> None:
    bench.do("a", 1)
    bench.run.publish()
    bench.tries.end("a", None)
    bench.do("b", 2)
    session = bench.run.session
    assert session is not None
    bench.lake.get_session(session.id).abandon()
    bench.tries.end("a")
    bench.do("b", 3, number=2)
    bench.run.publish()
    assert bench.rows() == [("a", 1), ("b", 3)]


def test_what_expired_has_to_run_again(bench: Bench) -> None:
    bench.do("a", 1)
    bench.clock.pass_days(8)
    with pytest.raises(SessionClosed):
        bench.run.publish()
    bench.do("b", 1)
    with pytest.raises(SessionClosed, match="Run them again"):
        bench.run.publish()
    assert bench.run.close("over", keep=KEEP) == "unpublished"
    bench.do("a", 2, number=2)
    bench.run.publish()
    assert bench.rows() == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("is_published", [True, False])
def test_what_the_lake_has_forgotten_is_not_taken_for_nothing(bench: Bench, is_published: bool) -> None:
    bench.do("a", 1)
    if is_published:
        bench.run.publish()
    for _ in range(3):
        bench.clock.pass_days(20)
        bench.lake.maintenance.gc()
    bench.tries.begin("b")
    before = bench.rows()
    with pytest.raises(BatchesGone):
        bench.run.begin(bench.tries.last["b"][0])
    assert bench.rows() == before


def test_a_run_that_has_published_nothing_begins_anew_whenever_that_is(bench: Bench) -> None:
    bench.do("a", 1)
    for _ in range(3):
        bench.clock.pass_days(20)
        bench.lake.maintenance.gc()
    bench.do("a", 2, number=2)
    bench.run.publish()
    assert bench.rows() == [("a", 2)]


def test_a_publish_is_repeated_some_weeks_later(bench: Bench) -> None:
    bench.do("a", 1)
    first = bench.run.publish()
    bench.clock.pass_days(18)
    bench.lake.maintenance.gc()
    again = bench.run.publish()
    assert first is not None
    assert again is not None
    assert again.published.commit == first.published.commit
    assert bench.run.close("over", keep=KEEP) == "published"


def test_half_of_a_task_that_somebody_marks_as_a_success_is_refused_or_left_out(bench: Bench) -> None:
    writer = bench.run.begin(bench.tries.begin("a"))
    bench.write(writer, "a", 1)
    writer.flush()  # its process dies
    bench.tries.end("a")
    bench.do("b", 1)
    with pytest.raises(LakeError, match="did not end"):
        bench.run.publish()
    published = bench.run.publish(half_written="leave out")
    assert published is not None
    assert published.left_out == ["a"]
    assert bench.rows() == [("b", 1)]


def test_a_closed_run_goes_on_with_the_next_try(bench: Bench) -> None:
    bench.do("a", 1)
    assert bench.run.close("a task failed", keep=KEEP) == "unpublished"
    bench.do("b", 1)
    bench.run.publish()
    assert bench.rows() == [("a", 1), ("b", 1)]


def test_a_run_that_wrote_nothing_is_closed_without_a_commit(bench: Bench) -> None:
    bench.run.open()
    assert bench.run.close("over", keep=KEEP) == "nothing"
    assert len(bench.lake.log()) == 2
