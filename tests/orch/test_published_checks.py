"""Checks of the published state, in runs of their own and in those that publish, and what Dagster's health says."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.asset_health.asset_check_health import AssetCheckHealthState
from dagster._core.definitions.asset_health.asset_health import AssetHealthStatus
from dagster._core.loader import LoadingContextForTest

from lake_core import Lake
from lake_core.lake import SharedSession
from lake_orch import (
    DeltaIOManager,
    InvalidDefinition,
    LakeResource,
    lake_executor,
    lake_freshness_checks,
    lake_published_checks,
    testing,
)
from lake_orch.dagster.runs.recovery import recover, settle
from tests.orch.session_bench import Bench

HOUR = timedelta(hours=1)
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


class Pipeline:
    """Assets `orders` and `fails` on a lake, with checks of what is published, and a job of all of them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, *, partitions: Any = None, **options: Any) -> None:
        self.lake, self.instance, self.fails = Lake.create(folder / "lake", exist_ok=True), instance, False
        resource = LakeResource(root=str(folder / "lake"))
        metadata = {"partition_expr": "day"} if partitions else {}

        @dg.asset(partitions_def=partitions, metadata=metadata)
        def orders(context: dg.AssetExecutionContext) -> pa.Table:
            return pa.table({"day": [context.partition_key if partitions else "a"], "id": [1]})

        @dg.asset(deps=[orders], partitions_def=partitions)
        def fails() -> None:
            if self.fails:
                raise RuntimeError("it was to fail")

        options = {"lower_bound_delta": HOUR} | options
        severity = options.get("severity", dg.AssetCheckSeverity.WARN)
        self.checks = [
            *lake_published_checks([orders], severity=severity),
            *lake_freshness_checks(["orders"], **options),
        ]
        self.assets: list[Any] = [orders, fails]
        self.resources = {"io_manager": DeltaIOManager(lake=resource), "lake": resource}
        self.defs = dg.Definitions(
            assets=self.assets,
            asset_checks=self.checks,
            resources=self.resources,
            jobs=[
                dg.define_asset_job("all", tags={"lake/gate": "error"}),
                dg.define_asset_job("checks", dg.AssetSelection.checks(*self.checks), tags={"lake/scope": "asset"}),
            ],
            executor=lake_executor,
        )

    def run(self, name: str = "all", *, fails: bool = False, **options: Any) -> dg.ExecuteInProcessResult:
        """Run a job as one session, in this process."""
        self.fails = fails
        job = self.defs.resolve_job_def(name)
        return testing.execute_in_process(job, instance=self.instance, raise_on_error=False, **options)

    def check(self) -> None:
        """Evaluate the checks in a run of their own."""
        job = self.defs.resolve_job_def("checks")
        assert job.execute_in_process(instance=self.instance).success

    def last(self, name: str) -> dg.AssetCheckEvaluation:
        """Return the last evaluation of a check."""
        key = dg.AssetCheckKey(dg.AssetKey("orders"), name)
        record = self.instance.get_latest_asset_check_evaluation_record(key)
        assert record is not None
        assert record.event is not None
        evaluation = record.event.asset_check_evaluation
        assert evaluation is not None
        return evaluation

    @property
    def passes(self) -> tuple[bool, bool]:
        """Return whether the last evaluations of both checks passed."""
        return self.last("published").passed, self.last("published_freshness").passed

    @property
    def health(self) -> AssetHealthStatus:
        """Return what Dagster makes of the checks."""
        keys = {dg.AssetCheckKey(dg.AssetKey("orders"), name) for name in ("published", "published_freshness")}
        context = LoadingContextForTest(self.instance)
        return asyncio.run(AssetCheckHealthState.compute_for_asset_checks(keys, context)).health_status


def values(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def age(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Let the checks believe that it is later."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + by

    monkeypatch.setattr("lake_orch.dagster.runs.published_state.datetime", Later)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def pipeline(tmp_path: Path, instance: dg.DagsterInstance) -> Pipeline:
    return Pipeline(tmp_path, instance)


def test_what_a_failed_run_staged_is_neither_published_nor_fresh(pipeline: Pipeline) -> None:
    failed = pipeline.run(fails=True)
    session = failed.dagster_run.tags["lake/session"]
    assert not failed.success
    for _ in range(2):  # as the failed run left them, and in a run of their own
        assert pipeline.passes == (False, False)
        for name in ("published", "published_freshness"):
            evaluation = pipeline.last(name)
            assert evaluation.severity is dg.AssetCheckSeverity.WARN
            assert values(evaluation)["lake/session"] == session
            assert f"lake.at('{session}')" in str(evaluation.description)
            assert "re-execute this run from failure" in str(evaluation.description)
        assert pipeline.health is AssetHealthStatus.WARNING
        pipeline.check()


@pytest.mark.parametrize("severity", list(dg.AssetCheckSeverity))
def test_the_publish_passes_the_checks_of_its_own_run(
    tmp_path: Path, instance: dg.DagsterInstance, severity: dg.AssetCheckSeverity
) -> None:
    pipeline = Pipeline(tmp_path, instance, severity=severity)
    assert pipeline.run().success, "a gate that counts every error does not wait for the publish that it prevents"
    assert pipeline.passes == (True, True)
    assert pipeline.health is AssetHealthStatus.HEALTHY
    published = values(pipeline.last("published_freshness"))
    assert published["lake/commit"] == pipeline.lake.log()[0].id
    assert published["lake/branch"] == "main"
    assert published["dagster/fresh_until_timestamp"] == published["dagster/last_updated_timestamp"] + 3600
    again = Pipeline(tmp_path, instance, severity=severity)
    again.run(fails=True)
    assert again.passes == (False, True), "what is published is fresh still"
    assert again.last("published").severity is severity
    assert "only staged" in str(again.last("published_freshness").description)


def test_a_recovered_session_passes_the_checks_that_others_failed(pipeline: Pipeline) -> None:
    session = pipeline.run(fails=True).dagster_run.tags["lake/session"]
    pipeline.check()
    assert pipeline.run(resume=session).success
    assert pipeline.passes == (True, True)
    evaluations = pipeline.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey("orders"), "published"), limit=50
    )
    recover(pipeline.instance, pipeline.lake, session, gate="none", keep_failed_for=HOUR)
    after = pipeline.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(dg.AssetKey("orders"), "published"), limit=50
    )
    assert len(after) == len(evaluations), "a repeated publish has nothing new to say"


def test_who_settles_what_a_dead_worker_left_open_evaluates_the_checks(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.run()
    with monkeypatch.context() as dead:
        dead.setattr(SharedSession, "fail", lambda *args, **options: None)
        dead.setattr("lake_orch.testing.evaluate_again", lambda *args: None)
        session = pipeline.run(fails=True).dagster_run.tags["lake/session"]
    pipeline.check()
    assert "left open" in str(pipeline.last("published").description)
    settle(pipeline.instance, pipeline.lake, keep_failed_for=HOUR)
    assert f"Session {session} is kept until" in str(pipeline.last("published").description)


def test_the_executor_evaluates_them_when_its_run_has_failed_or_is_published(bench: Bench) -> None:
    checks: Any = lake_published_checks(["orders"])
    lake = LakeResource(root=str(bench.folder / "lake"))
    key = dg.AssetCheckKey(dg.AssetKey("orders"), "published")

    def last() -> dg.AssetCheckEvaluation:
        record = bench.instance.get_latest_asset_check_evaluation_record(key)
        assert record is not None
        assert record.event is not None
        evaluation = record.event.asset_check_evaluation
        assert evaluation is not None
        return evaluation

    defs = dg.Definitions(
        assets=[dg.AssetSpec("orders")],
        asset_checks=checks,
        resources={"lake": lake},
        jobs=[dg.define_asset_job("checks", dg.AssetSelection.checks(*checks))],
    )
    defs.resolve_job_def("checks").execute_in_process(instance=bench.instance)
    assert "never published" in str(last().description)
    bench.wish(totals="fail")
    failed = bench.run()
    assert bench.session(failed) in str(last().description)
    bench.wish()
    bench.resume(failed)
    assert last().passed


def test_a_session_that_is_gone_is_said_to_be(pipeline: Pipeline) -> None:
    session = pipeline.run(fails=True).dagster_run.tags["lake/session"]
    pipeline.lake.get_session(session).abandon()
    settle(pipeline.instance, pipeline.lake, keep_failed_for=HOUR)
    pipeline.check()
    assert "start a new run of all steps" in str(pipeline.last("published").description)


def test_an_overdue_publish_fails_with_its_severity(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path, instance, severity=dg.AssetCheckSeverity.ERROR)
    pipeline.run()
    age(monkeypatch, 2 * HOUR)
    pipeline.check()
    assert pipeline.passes == (True, False)
    assert pipeline.last("published_freshness").severity is dg.AssetCheckSeverity.ERROR
    assert "Overdue" in str(pipeline.last("published_freshness").description)
    assert pipeline.health is AssetHealthStatus.DEGRADED


def test_a_deadline_is_the_last_tick_of_its_schedule(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    cron = f"{(now - timedelta(minutes=30)).minute} * * * *"
    pipeline = Pipeline(tmp_path, instance, lower_bound_delta=timedelta(minutes=5), deadline_cron=cron)
    pipeline.run()
    assert pipeline.passes == (True, True), "published after the last deadline"
    age(monkeypatch, 2 * HOUR)
    pipeline.check()
    metadata = values(pipeline.last("published_freshness"))
    assert pipeline.passes == (True, False)
    ticks = metadata["dagster/latest_cron_tick_timestamp"], metadata["dagster/freshness_lower_bound_timestamp"]
    assert ticks[0] - ticks[1] == 300


def test_what_is_published_on_another_branch_counts_once_main_has_it(pipeline: Pipeline) -> None:
    pipeline.lake.create_branch("pr")
    pipeline.run(tags={"lake/branch": "pr"})
    assert pipeline.passes == (False, False)
    assert "lake.merge('pr')" in str(pipeline.last("published").description)
    pipeline.lake.merge("pr", squash=True)
    pipeline.check()
    assert pipeline.passes == (True, True)


def test_what_is_published_asset_by_asset_passes_at_once(pipeline: Pipeline) -> None:
    resources: Any = pipeline.resources
    checks: Any = pipeline.checks
    assert dg.materialize([pipeline.assets[0], *checks], resources=resources, instance=pipeline.instance).success
    assert pipeline.passes == (True, True)


def test_each_partition_is_to_be_published_and_any_is_fresh(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pipeline = Pipeline(tmp_path, instance, partitions=PARTS)
    pipeline.run(partition_key="a")
    assert pipeline.passes == (True, True)
    pipeline.run(partition_key="b", fails=True)
    assert pipeline.passes == (False, True)
    assert "'b'" in str(pipeline.last("published").description)
    pipeline.run(partition_key="a")
    assert pipeline.passes == (False, True), "the other partition is still only staged"


def test_what_was_never_materialized_fails(pipeline: Pipeline) -> None:
    pipeline.check()
    assert pipeline.passes == (False, False)
    assert "never published" in str(pipeline.last("published").description)


def test_dagsters_sensor_evaluates_freshness_when_it_is_due(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = dg.build_sensor_for_freshness_checks(freshness_checks=pipeline.checks[1:])

    def asks() -> bool:
        with dg.build_sensor_context(pipeline.instance, definitions=pipeline.defs) as context:
            return isinstance(sensor(context), dg.RunRequest)

    assert asks(), "it was never evaluated"
    pipeline.run()
    assert not asks()
    monkeypatch.setattr(
        "dagster._core.definitions.asset_checks.asset_check_factories.freshness_checks.sensor.get_current_datetime",
        lambda: datetime.now(UTC) + 2 * HOUR,
    )
    assert asks()


@pytest.mark.parametrize(
    ("assets", "options", "problem"),
    [
        (["orders"], {"deadline_cron": "every day"}, "0 9"),
        (["orders"], {"timezone": "Mars"}, "Mars"),
        (["orders", dg.AssetKey("orders")], {}, "Name each once"),
    ],
)
def test_wrong_arguments_are_refused(assets: Any, options: Any, problem: str) -> None:
    with pytest.raises(InvalidDefinition, match=problem):
        lake_freshness_checks(assets, lower_bound_delta=HOUR, **options)
