"""A real daemon, web server and queue: backfills, retries of killed runs and cancellation, by Dagster's own API."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_orch.tags import EPOCH_TAG
from tests import processes
from tests.processes import answers

until = partial(processes.until, seconds=300)

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.timeout(420), pytest.mark.xdist_group("daemon")]

INSTANCE = """
telemetry: {enabled: false}
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config: {max_concurrent_runs: 6, dequeue_interval_seconds: 1}
run_retries: {enabled: true}
"""

BACKFILL = """
mutation Launch($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""
LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}
"""
AGAIN = """
mutation Again($params: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}
"""
TERMINATE = """
mutation Stop($runId: String!) { terminateRun(runId: $runId, terminatePolicy: SAFE_TERMINATE) { __typename } }
"""


class Server:
    """A web server and a daemon on one instance."""

    def __init__(self, folder: Path, port: int, instance: dg.DagsterInstance) -> None:
        self.folder, self.url, self.instance = folder, f"http://127.0.0.1:{port}", instance
        self.lake = Lake.create(folder / "lake")

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            response = json.load(answer)
        assert "errors" not in response, response
        return response["data"]

    @property
    def repository(self) -> dict[str, str]:
        query = "{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }"
        (node,) = self.ask(query)["repositoriesOrError"]["nodes"]
        return {"repositoryName": node["name"], "repositoryLocationName": node["location"]["name"]}

    def backfill(self, assets: list[str], days: int, **tags: str) -> str:
        params = {
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
            "assetSelection": [{"path": [asset]} for asset in assets],
            "partitionNames": [f"{day:02}" for day in range(days)],
        }
        result = self.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert result["__typename"] == "LaunchBackfillSuccess", result
        id: str = result["backfillId"]
        return id

    def launch(self, job: str, **tags: str) -> str:
        selector = {**self.repository, "pipelineName": job}
        metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        result = self.ask(LAUNCH, params={"selector": selector, "mode": "default", "executionMetadata": metadata})[
            "launchPipelineExecution"
        ]
        assert result["__typename"] == "LaunchRunSuccess", result
        id: str = result["run"]["runId"]
        return id

    def again(self, run_id: str, strategy: str) -> str:
        result = self.ask(AGAIN, params={"parentRunId": run_id, "strategy": strategy})["launchRunReexecution"]
        assert result["__typename"] == "LaunchRunSuccess", result
        id: str = result["run"]["runId"]
        return id

    def ended(self, run_id: str) -> dg.DagsterRun:
        def finished() -> dg.DagsterRun | None:
            run = self.instance.get_run_by_id(run_id)
            return run if run is not None and run.is_finished else None

        ended_run: dg.DagsterRun = until(finished, f"the end of run {run_id}")
        return ended_run

    def errors(self, run_id: str) -> str:
        """Return the errors of a run."""
        failures = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE}
        return "\n".join(str(entry.dagster_event) for entry in self.instance.all_logs(run_id, of_type=failures))

    def rows(self, table: str, ref: str = "main") -> list[Any]:
        state = self.lake.at(ref)
        return (
            sorted(state.delta(f"tables/{table}").to_arrow().columns[0].to_pylist())
            if f"tables/{table}" in state.datasets()
            else []
        )


@contextmanager
def serving(folder: Path, **environment: str) -> Iterator[Server]:
    """Run a web server and a daemon over the code location `daemon_pipeline`."""
    (folder / "home").mkdir()
    (folder / "home" / "dagster.yaml").write_text(INSTANCE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    overrides = {
        "DAGSTER_HOME": str(folder / "home"),
        "LAKE_TEST_FOLDER": str(folder),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    with dg.DagsterInstance.from_config(str(folder / "home")) as instance, (folder / "log").open("w") as log:
        web_server = Server(folder, port, instance)
        command = [
            sys.executable,
            "-m",
            "dagster",
            "dev",
            "-m",
            "tests.orch.daemon_pipeline",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
        ]
        everything = {**os.environ, **overrides, **environment}
        process = subprocess.Popen(command, cwd=ROOT, env=everything, stdout=log, stderr=log, start_new_session=True)
        try:
            until(lambda: process.poll() is not None or answers(web_server.url), "the web server", seconds=90)
            assert process.poll() is None, (folder / "log").read_text()
            yield web_server
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("daemon")) as server:
        yield server


@pytest.fixture(scope="module")
def backfill_of_two(server: Server) -> str:
    """A backfill that the daemon works on during the tests before that of its end: it looks at backfills every 30 s."""
    return server.backfill(["daily", "appended"], 2)


@pytest.mark.usefixtures("backfill_of_two")
@pytest.mark.extended
def test_a_run_whose_process_is_killed_is_retried_by_the_daemon(server: Server) -> None:
    (server.folder / "kill").touch()
    failed = server.ended(server.launch("pair"))
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert failed.tags[EPOCH_TAG] == "1"
    retry = until(
        lambda: server.instance.get_runs(dg.RunsFilter(tags={"dagster/parent_run_id": failed.run_id})), "the retry"
    )[0]
    retried = server.ended(retry.run_id)
    assert retried.is_success
    assert (retried.tags["lake/session"], retried.tags[EPOCH_TAG]) == (failed.tags["lake/session"], "2")
    assert server.rows("first") == [1]
    assert server.rows("second") == [1]


@pytest.mark.extended
def test_cancelled_from_the_api_then_from_failure(server: Server) -> None:
    before = len(server.rows("first"))
    (server.folder / "wait").touch()
    run_id = server.launch("pair", **{"dagster/max_retries": "0"})
    until((server.folder / "waiting").exists, "the step that waits")
    server.ask(TERMINATE, runId=run_id)
    cancelled = server.ended(run_id)
    (server.folder / "wait").unlink()
    assert cancelled.status is dg.DagsterRunStatus.CANCELED
    assert len(server.rows("first")) == before
    assert server.lake.get_session(cancelled.tags["lake/session"]).record.state == "failed"
    resumed = server.ended(server.again(run_id, "FROM_FAILURE"))
    assert resumed.is_success, server.errors(resumed.run_id)
    assert resumed.tags["lake/session"] == cancelled.tags["lake/session"]
    assert len(server.rows("first")) == before + 1


@pytest.mark.exhaustive
def test_from_failed_assets_then_all_steps(server: Server) -> None:
    """Dagster copies the tag of the first re-execution to the second, which starts over all the same."""
    before = {table: len(server.rows(table)) for table in ("first", "second")}
    (server.folder / "bad").touch()
    failed = server.ended(server.launch("pair", **{"dagster/max_retries": "0"}))
    (server.folder / "bad").unlink()
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert len(server.rows("second")) == before["second"]
    resumed = server.ended(server.again(failed.run_id, "FROM_ASSET_FAILURE"))
    assert resumed.is_success, server.errors(resumed.run_id)
    assert resumed.tags["lake/session"] == failed.tags["lake/session"]
    assert [len(server.rows(table)) - count for table, count in before.items()] == [1, 1]
    repeated = server.ended(server.again(resumed.run_id, "ALL_STEPS"))
    assert repeated.is_success, server.errors(repeated.run_id)
    assert repeated.tags["dagster/is_asset_resume_retry"] == "true", "the tag leaks: what this is about"
    assert repeated.tags["lake/session"] != failed.tags["lake/session"]
    assert len(server.rows("second")) == before["second"] + 2


@pytest.mark.extended
def test_a_backfill_of_two_partitions(server: Server, backfill_of_two: str) -> None:
    check_backfill(server, backfill_of_two, 2, Counter())


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_a_backfill_of_sixty_partitions_six_at_a_time(server: Server) -> None:
    backfill_all(server, 60, seconds=1000)


@pytest.mark.stress
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_backfill_of_sixty_partitions_with_a_shared_spark(tmp_path: Path) -> None:
    with serving(tmp_path, LAKE_TEST_SPARK="1") as server:
        backfill_all(server, 60, seconds=1500)


def backfill_all(server: Server, days: int, *, seconds: float) -> None:
    """Backfill the first days of two tables, and check the result."""
    before = Counter(server.rows("appended"))
    check_backfill(server, server.backfill(["daily", "appended"], days), days, before, seconds=seconds)


def check_backfill(server: Server, backfill: str, days: int, before: Counter[str], *, seconds: float = 390) -> None:
    """Check that each row of a backfill of two tables is there once, and that each of its runs made one commit."""

    def over() -> bool:
        partition_backfill = server.instance.get_backfill(backfill)
        return partition_backfill is not None and partition_backfill.status.value.startswith("COMPLETED")

    until(over, "the backfill's end", seconds=seconds)
    runs = server.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    failed = [server.errors(run.run_id) for run in runs if not run.is_success]
    assert not failed, failed[0]
    assert len(runs) == days
    rows = {f"{day:02}": 3 for day in range(days)}
    assert {day: count for day, count in Counter(server.rows("daily")).items() if day in rows} == rows
    assert Counter(server.rows("appended")) - before == rows
    sessions = {run.tags["lake/session"] for run in runs}
    commits = [commit for commit in server.lake.log() if commit.metadata.get("session") in sessions]
    assert len(commits) == days, "each run is one commit"
    assert server.lake.maintenance.verify(hashes=False) == []


@pytest.mark.exhaustive
def test_a_range_in_a_single_run(server: Server) -> None:
    backfill = server.backfill(["at_once"], 20)
    until(lambda: len(server.rows("at_once")) == 60, "the rows")
    assert len(server.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))) == 1


@pytest.mark.exhaustive
def test_a_backfill_that_gathers_is_merged_once(server: Server) -> None:
    """Its runs publish on a branch of their own, whose name is the backfill's."""
    backfill = server.backfill(["gathered"], 6, **{"lake/backfills": "gather"})
    until(lambda: f"backfill-{backfill}-into-main" in server.lake.list_branches(), "the branch")
    assert server.rows("gathered") == []
    until(lambda: f"backfill-{backfill}-into-main" not in server.lake.list_branches(), "the merge")
    assert Counter(server.rows("gathered")) == {f"{day:02}": 3 for day in range(6)}
    assert server.lake.log()[0].message == f"Backfill {backfill}"
