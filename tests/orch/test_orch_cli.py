"""The command `lake-orch`, as a user types it, over a real instance and runs that went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from lake_orch.cli import main
from lake_orch.tags import EPOCH_TAG
from tests.orch.session_bench import Bench
from tests.orch.test_recovery import failed_publish
from tests.orch.test_sessions import check_published


@pytest.fixture
def bench(bench_on_disk: Bench) -> Bench:
    return bench_on_disk


def run_json(bench: Bench, *words: str, code: int = 0, where: tuple[str, ...] = ()) -> Any:
    arguments = [*(where or ("--root", f"{bench.folder}/lake")), *words, "--json"]
    result = CliRunner(env={"DAGSTER_HOME": str(bench.folder / "home")}).invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_failed_publish_is_found_and_made_up_for(bench: Bench) -> None:
    run = failed_publish(bench)
    (session,) = run_json(bench, "sessions")
    assert session["session"] == bench.session(run)
    assert session["run"] == run.run_id
    assert session["run_status"] == "FAILURE"
    assert session["state"] == "failed"
    assert session["publishable"] is True
    assert 0 <= session["age"] < 600
    assert [row["error"] is None for row in run_json(bench, "recover", code=1)] == [False]
    assert run_json(bench, "recover", session["session"], code=1)["kind"] == "ProtectedBranch"
    bench.lake.settings.unprotect("main")
    (recovered,) = run_json(bench, "recover")
    assert recovered["session"] == session["session"]
    assert recovered["commit"] == bench.lake.list_branches()["main"]
    check_published(bench)
    assert run_json(bench, "sessions") == []
    assert run_json(bench, "recover") == []
    assert [row["state"] for row in run_json(bench, "sessions", "--all")] == ["published"]
    assert run_json(bench, "recover", session["session"])["commit"] == recovered["commit"], "repeated, the same"


def test_what_failed_is_not_recovered(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    assert [row["publishable"] for row in run_json(bench, "sessions")] == [False]
    assert "re-execute it from failure" in run_json(bench, "recover", bench.session(run), code=1)["error"]
    assert run_json(bench, "recover") == []


def test_what_a_dead_worker_left_open_is_reaped(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    bench.lake.open_session(id=bench.session(run))  # as if its process had died before it could report that
    bench.instance.add_run_tags(run.run_id, {EPOCH_TAG: "2"})
    assert [row["outcome"] for row in run_json(bench, "reap")] == ["failed"]
    assert bench.state(run) == "failed"
    assert [row["outcome"] for row in run_json(bench, "reap")] == ["kept"]


def test_backfills_are_merged_once_their_runs_are_through(bench: Bench) -> None:
    for id, status in (("whole", BulkActionStatus.COMPLETED_SUCCESS), ("going", BulkActionStatus.REQUESTED)):
        bench.instance.add_backfill(PartitionBackfill(id, status, from_failure=False, tags={}, backfill_timestamp=0.0))
        bench.lake.create_branch(f"backfill-{id}-into-main")
        with bench.lake.session(f"backfill-{id}-into-main") as session:
            session.put(f"files/{id}", b"1")
    outcomes = {row["backfill"]: row["outcome"] for row in run_json(bench, "merge-backfills")}
    assert outcomes == {"whole": "merged", "going": "running"}
    assert bench.lake.at().exists("files/whole")
    assert not bench.lake.at().exists("files/going")
    bench.lake.create_branch("backfill-stranger-into-main")
    assert "unknown" in {row["outcome"] for row in run_json(bench, "merge-backfills")}


def test_the_lake_of_a_code_location(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = failed_publish(bench)
    text = (
        "import dagster as dg\nfrom lake_orch import DeltaIOManager, LakeResource\n"
        "lake = LakeResource(root=dg.EnvVar('ORCH_CLI_LAKE'))\n"
        "def other(): return dg.Definitions()\n"
        "@dg.definitions\ndef defs():\n"
        "    return dg.Definitions(resources={'one': lake, 'io_manager': DeltaIOManager(lake=lake), 'text': 'x'})\n"
    )
    (bench.folder / "orch_cli_location.py").write_text(text)
    monkeypatch.chdir(bench.folder)
    monkeypatch.setenv("ORCH_CLI_LAKE", f"{bench.folder}/lake")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for where in (("-m", "orch_cli_location"), ("-m", "orch_cli_location", "--resource", "io_manager")):
        assert [row["session"] for row in run_json(bench, "sessions", where=where)] == [bench.session(run)]
    for where, said in (
        (("-m", "orch_cli_location", "--resource", "two"), "no resource 'two'"),
        (("-m", "orch_cli_location", "--resource", "text"), "no LakeResource"),
        (("-m", "orch_cli_nothing"), "no module"),
        (("-m", "json"), "0 dagster.Definitions"),
        (("-m", "json", "--root", "x"), "name the lake"),
        (("--storage-option", "a=b", "-m", "json"), "leave --storage-option out"),
    ):
        assert said in run_json(bench, "sessions", where=where, code=1)["error"]


@pytest.mark.extended
def test_as_an_installed_command(bench: Bench) -> None:
    failed_publish(bench)

    def shell(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in ("DAGSTER_HOME", "LAKE_URL")}
        return subprocess.run(words, env=inherited | environment, capture_output=True, text=True, timeout=60)

    command, home = str(Path(sys.executable).parent / "lake-orch"), str(bench.folder / "home")
    shown = shell(command, "sessions", LAKE_URL=f"{bench.folder}/lake", DAGSTER_HOME=home)
    assert shown.returncode == 0
    assert "publishable" in shown.stdout
    assert "True" in shown.stdout, shown.stderr
    unset = shell(sys.executable, "-m", "lake_orch", "--root", f"{bench.folder}/lake", "sessions")
    assert unset.returncode == 1
    assert "DAGSTER_HOME" in unset.stderr
    assert "Traceback" not in unset.stderr


def test_wrong_usage(bench: Bench) -> None:
    runner = CliRunner(env={"DAGSTER_HOME": str(bench.folder / "home"), "LAKE_URL": ""})
    assert runner.invoke(main, ["--storage-option", "x", "sessions"]).exit_code == 2
    assert "not a lake" in runner.invoke(main, ["--root", f"{bench.folder}/nothing", "sessions"]).output


@pytest.mark.extended
def test_a_gate_is_lifted_for_one_session(bench: Bench) -> None:
    bench.wish(totals_fine="fail")
    run = bench.run("strict")
    assert "totals_fine" in run_json(bench, "recover", bench.session(run), code=1)["error"]
    assert (
        run_json(bench, "recover", bench.session(run), "--gate", "none")["commit"] == bench.lake.list_branches()["main"]
    )
    check_published(bench)
