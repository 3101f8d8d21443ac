"""Defects of sessions that were found by writing down what holds for them."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import importlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from lake_core import Lake
from lake_core.lake.errors import Conflict
from lake_orch import DeltaIOManager, GateFailed, LakeResource, SessionAlert, lake_executor, testing, with_sessions
from lake_orch.dagster.runs.kept_session import _are_same_steps
from lake_orch.dagster.runs.recovery import recover, recover_all, settle
from lake_orch.errors import StepsLeftOut
from lake_orch.jobs.ops import lake_recover
from lake_orch.jobs.session_sensors import reap
from lake_orch.tags import EPOCH_TAG
from tests.orch.session_bench import Bench
from tests.orch.test_recovery import KEEP
from tests.orch.test_sessions import check_published


def held_back(bench: Bench) -> dg.DagsterRun:
    """Execute a run whose steps succeed and which a non-blocking check holds back, as its job requires."""
    bench.wish(totals_fine="fail")
    run = bench.run("strict")
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(run) == "failed"
    return run


def test_recovery_holds_the_gate_of_the_run(bench: Bench) -> None:
    """The resource's own gate is weaker."""
    run = held_back(bench)
    (error,) = recover_all(bench.instance, bench.lake, gate="blocking", keep_failed_for=KEEP).values()
    assert isinstance(error, GateFailed)
    assert error.checks == ("totals:totals_fine",)
    assert bench.rows("orders") == []
    assert bench.state(run) == "failed"


@pytest.mark.extended
def test_an_alert_tells_a_gate_from_a_publish_that_failed(bench: Bench) -> None:
    run = held_back(bench)
    alerts: list[SessionAlert] = []
    reap(LakeResource(root=f"{bench.folder}/lake"), bench.instance, alerts.append)
    assert [(alert.kind, alert.run) for alert in alerts] == [("gate_failed", run.run_id)]
    assert "totals:totals_fine" in alerts[0].message
    assert "run lake_recover to publish it" not in alerts[0].message


@pytest.mark.extended
def test_somebody_may_lift_the_gate_of_one_session(bench: Bench) -> None:
    run = held_back(bench)
    resources = {"lake": LakeResource(root=f"{bench.folder}/lake").get_resource_definition()}

    def job(**config: Any) -> bool:
        run_config = {"ops": {"recover_sessions": {"config": config}}}
        return (
            lake_recover()
            .execute_in_process(run_config, bench.instance, resources=resources, raise_on_error=False)
            .success
        )

    assert job()
    assert bench.rows("orders") == [], "what a gate holds back is no failure of a recovery, and stays held back"
    assert not job(session=bench.session(run))
    assert not job(gate="none")
    assert not job(session=bench.session(run), gate="no")
    assert bench.rows("orders") == []
    assert job(session=bench.session(run), gate="none")
    assert bench.state(run) == "published"
    check_published(bench)


@pytest.mark.extended
def test_where_no_step_failed_chosen_steps_go_on_in_the_session(bench: Bench) -> None:
    """Dagster re-executes nothing from failure then."""
    run = held_back(bench)
    with pytest.raises(GateFailed, match="re-execute the steps of those assets and what follows them"):
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    bench.wish()
    again = bench.run("strict", reexecution_options=dg.ReexecutionOptions(run.run_id, step_selection=["totals*"]))
    assert again.is_success
    assert bench.session(again) == bench.session(run)
    check_published(bench)


@pytest.mark.extended
def test_an_executor_that_is_wrapped_twice_has_one_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `lake_job(executor_def=lake_executor)` does."""
    monkeypatch.setattr("tests.orch.session_pipeline.lake_executor", with_sessions(lake_executor))
    run = bench.run()
    assert run.is_success
    assert run.tags[EPOCH_TAG] == "1"
    check_published(bench)


class Unmoved(LakeResource):
    """A lake whose teardown does nothing: as where the step that ends last has none of it."""

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        return


def test_a_bare_run_that_nobody_published_is_recovered(bench: Bench) -> None:
    @dg.asset
    def orders() -> pa.Table:
        return pa.table({"id": [1], "of": ["orders"]})

    lake = Unmoved(root=f"{bench.folder}/lake", scope="run")
    assert dg.materialize(
        [orders], resources={"io_manager": DeltaIOManager(lake=lake)}, instance=bench.instance
    ).success
    assert bench.rows("orders") == []
    (settled,) = settle(bench.instance, bench.lake, keep_failed_for=KEEP)
    assert settled.outcome == "failed"
    assert settled.publishable
    assert "ended as success" in settled.reason
    recover_all(bench.instance, bench.lake, gate="blocking", keep_failed_for=KEEP)
    assert bench.rows("orders") == ["orders-1"]


def test_a_recovery_holds_the_gate_of_the_resource_that_the_run_had(bench: Bench) -> None:
    """A job that recovers may have another resource, with a weaker gate."""
    strict = LakeResource(root=f"{bench.folder}/lake", scope="run", gate="error")

    @dg.asset
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    @dg.asset_check(asset=orders)
    def never() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    resources = {"io_manager": DeltaIOManager(lake=strict), "lake": strict}
    with pytest.raises(GateFailed):
        testing.materialize([orders, never], resources=resources, instance=bench.instance)
    (session,) = bench.lake.list_sessions()
    with pytest.raises(GateFailed):
        recover(bench.instance, bench.lake, session.id, gate="blocking", keep_failed_for=KEEP)
    assert bench.rows("orders") == []


def test_steps_that_a_refused_run_was_to_do_again_are_published_by_the_next_one(bench: Bench) -> None:
    bench.wish(totals="fail")
    failed = bench.run()
    chosen = dg.ReexecutionOptions(failed.run_id, step_selection=["orders", "lines"])
    assert StepsLeftOut.__name__ in bench.error(bench.run(reexecution_options=chosen))
    bench.wish()
    assert bench.resume(failed).is_success
    check_published(bench)


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the two projects, with a lake in a folder of the test."""
    Lake.create(tmp_path / "lake")
    monkeypatch.setenv("OTHER_CODE_FOLDER", str(tmp_path))
    return importlib.reload(importlib.import_module("tests.orch.other_code_pipeline"))


@pytest.fixture
def execute(pipeline: ModuleType, tmp_path: Path) -> Iterator[Callable[[str], dg.JobExecutionResult]]:
    (tmp_path / "instance").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "instance")) as instance:

        def run(job: str) -> dg.JobExecutionResult:
            config = {"execution": {"config": {"in_process": {}}}}
            return dg.execute_job(dg.reconstructable(getattr(pipeline, job)), instance, run_config=config)

        yield run


def _rows_by_path(root: Path) -> dict[str, list[int]]:
    state = Lake.open(root).at()
    return {path: state.delta(path).to_arrow()["id"].to_pylist() for path in state.datasets()}


def test_an_asset_of_one_key_in_other_code_does_not_complete_a_failed_run(
    execute: Callable[[str], dg.JobExecutionResult], tmp_path: Path
) -> None:
    assert not execute("whole").success
    assert execute("other").success
    assert _rows_by_path(tmp_path / "lake") == {"tables/other": [3]}


def test_another_job_of_the_asset_completes_a_failed_run(
    execute: Callable[[str], dg.JobExecutionResult], tmp_path: Path
) -> None:
    assert not execute("whole").success
    (tmp_path / "mended").touch()
    assert execute("rest").success
    assert _rows_by_path(tmp_path / "lake") == {"tables/raw": [1], "tables/orders": [2]}


@pytest.mark.parametrize(("location", "is_same"), [("a", True), ("b", False)])
def test_steps_of_another_code_location_are_other_ones(bench: Bench, location: str, is_same: bool) -> None:
    failed = held_back(bench)
    origins = [RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(name), "repository") for name in ("a", location)]
    first, second = (failed._replace(remote_job_origin=RemoteJobOrigin(origin, "job")) for origin in origins)
    assert _are_same_steps(bench.instance, first, second, {"orders"}) == is_same


def test_a_run_that_was_refused_as_it_would_repeat_a_published_one_has_no_rest(bench: Bench) -> None:
    """The worker published, and died before it could say so. Nobody who re-executes the refused run gets around it."""
    run = bench.run()
    bench.instance.report_run_failed(run, "its worker does not answer")
    refused = bench.run(reexecution_options=dg.ReexecutionOptions(run.run_id))
    for _ in range(2):
        assert not refused.is_success
        assert f"repeats steps of run {run.run_id}" in bench.error(refused)
        refused = bench.resume(refused)
    check_published(bench)


def test_a_session_that_conflicts_is_kept_as_long_as_the_resource_says(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as session:
        session.create_delta("tables/t", pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
    resource = LakeResource(root=str(tmp_path / "lake"), scope="run", keep_failed_for=100)

    @dg.asset(metadata={"lake/merge": {"on": "t.n = s.n", "when_matched_update": {"n": "t.n + 1"}}})
    def t() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.asset(deps=[t])
    def others() -> None:
        with lake.session() as session:
            session.delta("tables/t").update({"n": "5"})

    resources = {"io_manager": DeltaIOManager(lake=resource), "lake": resource}
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance, pytest.raises(Conflict):
        testing.materialize([t, others], resources=resources, instance=instance)
    (record,) = lake.list_sessions()
    assert record.state == "failed"
    assert (record.expires - record.opened) / timedelta(hours=1) == pytest.approx(100, abs=0.1)
