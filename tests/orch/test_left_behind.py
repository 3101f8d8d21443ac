"""Processes of a failed run that go on while others do its work again, where each output is published by itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import DagsterEvent, DagsterEventType

from lake_core import Lake
from lake_orch.tags import SCOPE_TAG
from tests import processes
from tests.orch.left_behind_pipeline import IN_STEP
from tests.orch.meanwhile import MEANWHILE

until = partial(processes.until, seconds=60)


class Left:
    """A lake, and runs of one asset, whose rows are the ids of their runs."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        MEANWHILE.clear()
        IN_STEP.clear()
        self.folder, self.instance = folder, instance
        self.lake = Lake.create(folder / "lake")

    def run(self, assets: str = "table", options: dg.ReexecutionOptions | None = None, **tags: str) -> dg.DagsterRun:
        job = dg.build_reconstructable_job(
            "tests.orch.left_behind_pipeline",
            "job",
            reconstructable_kwargs={"folder": str(self.folder), "names": assets},
        )
        with dg.execute_job(job, instance=self.instance, reexecution_options=options, tags=tags) as result:
            return self.run_of(result.run_id)

    def again(self, how: str, failed: dg.DagsterRun, assets: str = "table", **tags: str) -> dg.DagsterRun:
        """Do the work of a failed run again."""
        if how == "from failure":
            options = dg.ReexecutionOptions.from_failure(failed.run_id, self.instance)
            return self.run(assets, options, **tags)
        return self.run(assets, dg.ReexecutionOptions(failed.run_id) if how == "all steps" else None, **tags)

    def run_of(self, id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(id)
        assert run is not None
        return run

    def fail(self) -> dg.DagsterRun:
        """Mark the run that is under way as failed, as run monitoring does. Return it as it is then."""
        (run,) = self.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        self.instance.report_run_failed(run, "its worker does not answer")
        return self.run_of(run.run_id)

    def log(self, run: dg.DagsterRun) -> str:
        entries = self.instance.all_logs(run.run_id)
        return "\n".join(f"{entry.user_message} {entry.dagster_event}" for entry in entries)

    def rows(self, asset: str = "table") -> list[str]:
        return sorted(row["run"] for row in self.lake.delta(f"tables/{asset}").to_arrow().to_pylist())

    def fences(self) -> list[object]:
        return list(self.lake.repository.refs().under("fence/").values())


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Left(tmp_path, instance)


def in_thread(work: Callable[[], object]) -> None:
    """Do something that Dagster does not take for a part of the step that it comes in between."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def fail_step() -> None:
    raise RuntimeError


HOW = ["all steps", "new run", "from failure"]


@pytest.mark.parametrize("how", HOW)
def test_a_step_that_is_about_to_publish_does_not(left: Left, how: str) -> None:
    runs: list[dg.DagsterRun] = []
    MEANWHILE.append(lambda: runs.append(left.again(how, left.fail())))
    orphan = left.run()
    (again,) = runs
    assert again.is_success, left.log(again)
    assert left.rows() == [again.run_id]
    # In a run that goes on where it failed, its write is the same one: it learns that it was published.
    assert ("StaleEpoch" in left.log(orphan)) is (how != "from failure")


@pytest.mark.parametrize("how", HOW)
def test_a_step_that_has_not_begun_to_write_publishes_nothing_later(left: Left, how: str) -> None:
    runs: list[dg.DagsterRun] = []
    IN_STEP.append(lambda: in_thread(lambda: runs.append(left.again(how, left.fail()))))
    orphan = left.run()
    (again,) = runs
    assert again.is_success, left.log(again)
    assert left.rows() == [again.run_id]
    assert f"Dagster has had run {orphan.run_id} as failed" in left.log(orphan)


@pytest.mark.parametrize("scope", ["asset", "run"])
@pytest.mark.parametrize("how", HOW)
def test_a_worker_that_begins_when_its_run_has_failed_publishes_nothing(left: Left, how: str, scope: str) -> None:
    """Its event of the start makes the run a started one again."""
    runs: list[dg.DagsterRun] = []

    def fail_and_start() -> None:
        failed = left.fail()
        runs.append(left.again(how, failed, **{SCOPE_TAG: scope}))
        start = DagsterEvent(DagsterEventType.RUN_START.value, failed.job_name, message="started late")
        left.instance.report_dagster_event(start, failed.run_id)
        assert left.run_of(failed.run_id).status is dg.DagsterRunStatus.STARTED

    IN_STEP.append(lambda: in_thread(fail_and_start))
    orphan = left.run(**{SCOPE_TAG: scope})
    (again,) = runs
    assert again.is_success, left.log(again)
    assert left.rows() == [again.run_id]
    assert f"Dagster has had run {orphan.run_id} as failed" in left.log(orphan)


@pytest.mark.parametrize("asset", ["table", "mapped"])
@pytest.mark.parametrize("how", ["all steps", "from failure"])
def test_what_is_published_after_the_next_run_was_made_is_not_repeated(left: Left, how: str, asset: str) -> None:
    """The next run has not begun to write. The worker that was taken for dead publishes, and even ends as a success."""
    made, ended = threading.Event(), threading.Event()
    runs: list[dg.DagsterRun] = []

    def wait() -> None:
        made.set()
        assert ended.wait(60)

    def meanwhile() -> None:
        failed = left.fail()
        IN_STEP.append(wait)
        next_run.append(threading.Thread(target=lambda: runs.append(left.again(how, failed, asset))))
        next_run[0].start()
        assert made.wait(60)

    next_run: list[threading.Thread] = []
    MEANWHILE.append(meanwhile)
    orphan = left.run(asset)
    assert orphan.is_success
    ended.set()
    next_run[0].join()
    assert left.rows(asset if asset == "table" else "mapped/x") == [orphan.run_id]
    assert runs[0].is_success is (how == "from failure"), left.log(runs[0])


def test_a_failed_run_is_fenced_once(left: Left) -> None:
    IN_STEP.append(fail_step)
    assert not left.run("parts").is_success
    assert left.run("parts").is_success
    fences = left.fences()
    assert len(fences) == 1
    assert left.run("parts").is_success
    assert left.fences() == fences


def test_runs_that_succeed_are_not_fenced(left: Left) -> None:
    assert left.run().is_success
    assert left.run().is_success
    assert left.fences() == []


def test_a_step_that_starts_over_says_what_it_repeats(left: Left) -> None:
    """It failed between two publishes. Who asks for all steps gets the first one twice, and is told."""

    IN_STEP.append(fail_step)
    failed = left.run("parts")
    head = left.lake.list_branches()["main"]
    again = left.again("all steps", failed, "parts")
    assert again.is_success
    assert left.rows("parts") == sorted([again.run_id, again.run_id, failed.run_id])
    assert left.log(again).count(f"had published '{head[:12]}' in run") == 1


def test_a_step_that_goes_on_repeats_nothing(left: Left) -> None:
    IN_STEP.append(fail_step)
    failed = left.run("parts")
    again = left.again("from failure", failed, "parts")
    assert left.rows("parts") == sorted([again.run_id, failed.run_id])
    assert "starts over" not in left.log(again)


def test_the_rest_of_a_run_is_not_done_in_a_session(left: Left) -> None:
    """It skips nothing that the failed run has published by itself."""
    IN_STEP.append(fail_step)
    failed = left.run("parts")
    again = left.again("from failure", failed, "parts", **{"lake/scope": "run"})
    assert "with the tag lake/scope: asset" in left.log(again)
    again = left.again("from failure", failed, "parts", **{"lake/scope": "asset"})
    assert left.rows("parts") == sorted([again.run_id, failed.run_id])


class Process:
    """A process outside of Dagster that a step has started, and that goes on when it is told to."""

    def __init__(self, left: Left, *waits: str) -> None:
        self.left, self.folder = left, left.folder
        (left.folder / "wishes.json").write_text(json.dumps([f"wait {when}" for when in waits]))

    def until_it_waits(self, when: str) -> None:
        until((self.folder / f"waits {when}").exists, "the process that waits")

    def go_on(self, when: str) -> None:
        (self.folder / f"go on {when}").touch()

    def ids(self) -> list[int]:
        return sorted(self.left.lake.delta("tables/first").to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("how", ["all steps", pytest.param("new run", marks=pytest.mark.exhaustive)])
def test_a_process_outside_of_dagster_is_kept_out(left: Left, how: str) -> None:
    """It has not published, as its run is marked as failed, and another run starts it again."""
    process = Process(left, "before")
    orphan = threading.Thread(target=lambda: left.run("outside"))
    orphan.start()
    process.until_it_waits("before")
    again = left.again(how, left.fail(), "outside")
    assert again.is_success, left.log(again)
    process.go_on("before")
    orphan.join()
    assert process.ids() == [1, 2, 3]


def test_what_it_has_published_unseen_is_not_repeated(left: Left) -> None:
    """It publishes after its run was marked as failed, and before another run begins."""
    process = Process(left, "before", "after")
    orphan = threading.Thread(target=lambda: left.run("outside"))
    orphan.start()
    process.until_it_waits("before")
    failed = left.fail()
    process.go_on("before")
    process.until_it_waits("after")
    again = left.again("all steps", failed, "outside")
    assert not again.is_success
    assert f"repeats step outside of run {failed.run_id}" in left.log(again)
    assert not left.again("from failure", again, "outside").is_success
    assert left.again("from failure", failed, "outside").is_success
    process.go_on("after")
    orphan.join()
    assert process.ids() == [1, 2, 3]
