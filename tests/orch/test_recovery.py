"""Sessions whose runs cannot see to them any more: publishes that failed, cancelled runs, what is left open."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from lake_core.lake.errors import ProtectedBranch
from lake_orch import LakeResource
from lake_orch.dagster.runs.recovery import recover, recoverable, settle
from lake_orch.errors import NothingToRecover, SessionLost
from lake_orch.jobs.ops import lake_recover
from lake_orch.jobs.session_sensors import SessionAlert, lake_session_reaper, lake_session_sensors
from lake_orch.tags import EPOCH_TAG
from tests.orch.session_bench import ALL, Bench
from tests.orch.test_sessions import check_published

KEEP = timedelta(hours=24)


def failed_publish(bench: Bench) -> dg.DagsterRun:
    """Execute a run whose steps succeed and whose publish is refused."""
    bench.lake.settings.protect("main")
    run = bench.run()
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert "protected" in bench.error(run)
    assert bench.state(run) == "failed"
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]
    return run


def test_a_failed_publish_is_made_up_for(bench: Bench) -> None:
    run = failed_publish(bench)
    assert recoverable(bench.instance, bench.lake) == [bench.session(run)]
    with pytest.raises(ProtectedBranch):
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    bench.lake.settings.unprotect("main")
    first = recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    check_published(bench)
    assert (
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP).commit
        == first.commit
    )
    assert recoverable(bench.instance, bench.lake) == []
    observed = bench.instance.fetch_observations(dg.AssetKey("orders"), limit=5).records
    assert len(observed) == 1, "a publish that is repeated is told once"


def test_the_job_recovers_what_can_be(bench: Bench) -> None:
    run = failed_publish(bench)
    bench.lake.settings.unprotect("main")
    job = lake_recover()
    lake = LakeResource(root=f"{bench.folder}/lake")
    result = job.execute_in_process(instance=bench.instance, resources={"lake": lake.get_resource_definition()})
    assert result.success
    assert bench.state(run) == "published"
    check_published(bench)


@pytest.mark.extended
def test_what_was_done_again_is_not_published_too(bench: Bench) -> None:
    run = failed_publish(bench)
    bench.lake.settings.unprotect("main")
    assert bench.run(reexecution_options=dg.ReexecutionOptions(run.run_id)).is_success
    with pytest.raises(NothingToRecover, match="duplicate"):
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    check_published(bench)


def test_what_a_plain_run_made_since_is_not_published_too(bench: Bench) -> None:
    run = failed_publish(bench)
    bench.lake.settings.unprotect("main")
    assert bench.run().is_success
    with pytest.raises(NothingToRecover, match=r"has made .* again after session"):
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    check_published(bench)
    lake = LakeResource(root=f"{bench.folder}/lake")
    passed_over = lake_recover().execute_in_process(
        instance=bench.instance, resources={"lake": lake.get_resource_definition()}
    )
    messages = [entry.user_message for entry in bench.instance.all_logs(passed_over.run_id)]
    assert any(f"session {bench.session(run)} is passed over" in message for message in messages)


def test_a_failed_run_is_not_recovered(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    with pytest.raises(NothingToRecover, match="re-execute it from failure"):
        recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)


@pytest.mark.extended
def test_a_session_that_is_gone_is_not_carried_on(bench: Bench) -> None:
    """Its green steps would be left out, and their work is nowhere."""
    bench.wish(totals="fail")
    run = bench.run()
    bench.lake.get_session(bench.session(run)).abandon()
    bench.wish()
    again = bench.resume(run)
    assert again.status is dg.DagsterRunStatus.FAILURE
    assert SessionLost.__name__ in bench.error(again)
    assert [bench.rows(table) for table in ALL] == [[], [], [], []]


@pytest.mark.extended
def test_settling_fails_what_a_dead_worker_left_open(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    bench.lake.open_session(id=bench.session(run))  # as if its process had died before it could report that
    bench.instance.add_run_tags(run.run_id, {EPOCH_TAG: "2"})
    alerts: list[SessionAlert] = []
    reaper = lake_session_reaper(alert=alerts.append)
    result = dg.materialize(
        [reaper], resources={"lake": LakeResource(root=f"{bench.folder}/lake")}, instance=bench.instance
    )
    assert result.success
    assert bench.state(run) == "failed"
    assert [(alert.kind, alert.session) for alert in alerts] == [("run_failed", bench.session(run))]
    bench.wish()
    assert bench.resume(run).is_success
    check_published(bench)
    assert settle(bench.instance, bench.lake, keep_failed_for=KEEP) == []


def sensor(sensors: Sequence[dg.SensorDefinition], name: str) -> dg.SensorDefinition:
    return next(candidate for candidate in sensors if candidate.name.endswith(name))


def evaluate(
    bench: Bench, sensors: Sequence[dg.SensorDefinition], name: str, run: dg.DagsterRun, lake: LakeResource
) -> Any:
    ended = {dg.DagsterEventType.RUN_FAILURE, dg.DagsterEventType.RUN_SUCCESS}
    event = bench.instance.all_logs(run.run_id, of_type=ended)[-1].dagster_event
    assert event is not None
    with dg.build_run_status_sensor_context(
        sensor_name=name,
        dagster_event=event,
        dagster_instance=bench.instance,
        dagster_run=run,
        resources={"lake": lake},
    ) as context:
        return sensor(sensors, name)(context)


def test_sensors_tell_of_failed_publishes_once_a_run_has_ended(bench: Bench) -> None:
    alerts: list[SessionAlert] = []
    sensors = lake_session_sensors(alert=alerts.append)
    lake = LakeResource(root=f"{bench.folder}/lake")
    run = failed_publish(bench)
    evaluate(bench, sensors, "failure", run, lake)
    assert [(alert.kind, alert.run) for alert in alerts] == [("publish_failed", run.run_id)]
    assert "lake_recover" in alerts[0].message
    bench.lake.settings.unprotect("main")
    recover(bench.instance, bench.lake, bench.session(run), gate="blocking", keep_failed_for=KEEP)
    assert "published" in str(evaluate(bench, sensors, "failure", run, lake))
    assert len(alerts) == 1
    elsewhere = LakeResource(root=f"{bench.folder}/another")
    assert "no session of this lake" in str(evaluate(bench, sensors, "failure", run, elsewhere))


@pytest.mark.parametrize(("strategy", "kinds"), [("FROM_FAILURE", ["publish_failed"]), ("ALL_STEPS", [])])
def test_a_retry_that_dagster_cannot_make_is_not_waited_for(bench: Bench, strategy: str, kinds: list[str]) -> None:
    """From failure, a run whose publish alone failed has no step to do again."""
    alerts: list[SessionAlert] = []
    run = failed_publish(bench)
    bench.instance.add_run_tags(run.run_id, {"dagster/will_retry": "true", "dagster/retry_strategy": strategy})
    sensors = lake_session_sensors(alert=alerts.append)
    evaluate(bench, sensors, "failure", run, LakeResource(root=f"{bench.folder}/lake"))
    assert [alert.kind for alert in alerts] == kinds


def test_a_conflict_says_what_to_do(bench: Bench) -> None:
    """Somebody drops a table that the run appends to: publishing can never succeed, and all steps have to run again."""
    assert bench.run().is_success
    bench.wish(stock="wait")

    def disturb() -> None:
        while not (bench.folder / "stock.waiting").exists():
            pass
        with bench.lake.session() as session:
            session.delta("tables/orders").delete()
            session.drop("tables/orders")
        bench.wish()

    thread = threading.Thread(target=disturb)
    thread.start()
    run = bench.run()
    thread.join()
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert bench.state(run) == "failed"
    assert "tables/orders" in bench.error(run)
    assert "re-execute all steps" in bench.error(run)
    again = bench.run(reexecution_options=dg.ReexecutionOptions(run.run_id))
    assert again.is_success
    assert bench.rows("orders") == [f"orders0-{id}" for id in range(3)]
