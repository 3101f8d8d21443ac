"""Real processes that are killed in the middle of a run with one session.

Nothing is lost, doubled, or written after the publish.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import dagster as dg
import pytest

from lake_orch.dagster.runs.recovery import recover, settle
from lake_orch.tags import EPOCH_TAG
from tests import processes
from tests.orch.session_bench import ALL, Bench
from tests.orch.test_recovery import KEEP
from tests.orch.test_sessions import check_published

until = partial(processes.until, seconds=60)

pytestmark = pytest.mark.timeout(180)

WORKER = """
import json, sys
import dagster as dg
folder, home, options, in_process = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4] == "in process"
if __name__ == "__main__":
    arguments = {"folder": folder, "in_process": in_process}
    job = dg.build_reconstructable_job("tests.orch.session_pipeline", "job", reconstructable_kwargs=arguments)
    forkserver = {"preload_modules": ["tests.orch.session_pipeline"]}
    config = {"execution": {"config": {"multiprocess": {"start_method": {"forkserver": forkserver}}}}}
    with dg.DagsterInstance.from_config(home) as instance:
        with dg.execute_job(job, instance=instance, tags=options, run_config=None if in_process else config):
            pass
"""


@pytest.fixture
def bench(bench_on_disk: Bench) -> Bench:
    return bench_on_disk


@contextmanager
def worker(bench: Bench, *, in_process: bool = False, **tags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run worker in a process of its own, with its steps in further processes unless they are to run in it."""
    script = bench.folder / "worker.py"
    script.write_text(WORKER)
    steps = "in process" if in_process else "in processes"
    command = [sys.executable, str(script), str(bench.folder), str(bench.folder / "home"), json.dumps(tags), steps]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def only_run(bench: Bench) -> dg.DagsterRun:
    (run,) = bench.instance.get_runs()
    return run


def test_a_step_is_killed(bench: Bench) -> None:
    bench.wish(totals="die")
    with worker(bench) as process:
        assert process.wait(90) is not None
    run = only_run(bench)
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(run) == "failed"
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]
    bench.wish()
    assert bench.resume(run).is_success
    check_published(bench)


@pytest.mark.exhaustive
def test_the_run_worker_is_killed_and_an_orphan_goes_on(bench: Bench) -> None:
    """The orphan wakes up when the run that took over has published: it must not add a row."""
    bench.wish(stock="wait")
    with worker(bench) as process:
        until((bench.folder / "stock.waiting").exists, "the step that waits")
        until(lambda: bench.instance.get_run_step_stats(only_run(bench).run_id, step_keys=["orders"]), "another step")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    run = only_run(bench)
    assert bench.state(run) == "open", "nobody could say that it is over"
    bench.instance.report_run_failed(run, "as the code server does that finds its worker dead")
    run = bench.run_of(run.run_id)
    assert [settled.outcome for settled in settle(bench.instance, bench.lake, keep_failed_for=KEEP)] == ["failed"]

    (bench.folder / "wish-2.json").write_text("{}")  # the runs that take over look there: the orphan goes on waiting
    os.environ["LAKE_TEST_WISHES"] = "wish-2.json"
    try:
        resumed = bench.resume(run)
    finally:
        del os.environ["LAKE_TEST_WISHES"]
    assert resumed.is_success
    assert resumed.tags[EPOCH_TAG] == "2"
    check_published(bench)
    bench.wish()
    until(lambda: _ended(bench, run), "the orphan's end")
    check_published(bench)
    assert bench.lake.maintenance.verify() == []


STORIES = [test_a_step_is_killed, test_the_run_worker_is_killed_and_an_orphan_goes_on]


@pytest.mark.stress
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_with_spark(bench: Bench, story: Callable[[Bench], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with PySpark frames, and a JVM in each process."""
    monkeypatch.setenv("LAKE_TEST_SPARK", "1")
    story(bench)


def _ended(bench: Bench, run: dg.DagsterRun) -> bool:
    """Return whether the orphaned step has reported that it was refused."""
    entries = bench.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    return any(entry.step_key == "stock" and "StaleEpoch" in str(entry.dagster_event) for entry in entries) or any(
        entry.step_key == "stock" and "SessionClosed" in str(entry.dagster_event) for entry in entries
    )


@pytest.mark.parametrize("seam", [pytest.param("die before", marks=pytest.mark.exhaustive), "die after"])
def test_the_run_worker_is_killed_as_it_publishes(bench: Bench, seam: str) -> None:
    """All steps are green, and whether the publish took place is not known: recovery ends it, once."""
    bench.wish(publish=seam)
    with worker(bench, in_process=True) as process:
        assert process.wait(90) == -signal.SIGKILL
    run = only_run(bench)
    bench.instance.report_run_failed(run, "as the code server does that finds its worker dead")
    bench.wish()
    assert bench.state(run) == ("open" if seam == "die before" else "published")
    settle(bench.instance, bench.lake, keep_failed_for=KEEP)
    recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    check_published(bench)


@pytest.mark.exhaustive
def test_a_run_is_cancelled(bench: Bench) -> None:
    bench.wish(totals="wait")
    with worker(bench) as process:
        until((bench.folder / "totals.waiting").exists, "the step that waits")
        os.kill(process.pid, signal.SIGINT)  # what termination by the UI's API sends
        process.wait(60)
    run = until(lambda: only_run(bench) if only_run(bench).is_finished else None, "the run's end")
    assert run.status is dg.DagsterRunStatus.CANCELED or run.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(run) == "failed"
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]
    bench.wish()
    assert bench.resume(run).is_success
    check_published(bench)
