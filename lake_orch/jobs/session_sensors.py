"""Sensors and an asset that settle the sessions of failed runs, and send alerts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import dagster as dg

from lake_core.lake.errors import SessionNotFound
from lake_orch.dagster.runs.publishing import publish_session
from lake_orch.dagster.runs.recovery import SessionOutcome, settle, settle_session
from lake_orch.dagster.runs.run_session import from_tags, is_resumed
from lake_orch.resources import LakeResource
from lake_orch.tags import ROOT_TAG

_STATUSES = {
    "failure": dg.DagsterRunStatus.FAILURE,
    "canceled": dg.DagsterRunStatus.CANCELED,
    "success": dg.DagsterRunStatus.SUCCESS,
}


@dataclass(frozen=True, slots=True)
class SessionAlert:
    """An alert about a session."""

    kind: str
    """What happened to the session.

    `publish_failed`: all steps succeeded, but the publish failed. `gate_failed`: all steps succeeded, but checks
    prevent the publish. `run_failed`: steps failed, and the session is kept. `stale`: the session has expired.
    """
    session: str
    run: str | None
    message: str


Alert: TypeAlias = Callable[[SessionAlert], None]


def lake_session_sensors(
    *, alert: Alert | None = None, prefix: str = "lake", **options: Any
) -> Sequence[dg.SensorDefinition]:
    """Make run status sensors that settle a run's session as soon as the run has ended, with success or not.

    They need a resource `lake`. `alert` is called for sessions that need attention. `options` are those of
    `dg.run_status_sensor`.
    """
    return [_sensor(f"{prefix}_sessions_on_{name}", status, alert, options) for name, status in _STATUSES.items()]


def _sensor(
    name: str, status: dg.DagsterRunStatus, alert: Alert | None, options: dict[str, Any]
) -> dg.SensorDefinition:
    settings: dict[str, Any] = {"default_status": dg.DefaultSensorStatus.RUNNING} | options

    @dg.run_status_sensor(
        run_status=status, name=name, description="Settles the lake session of a run that has ended.", **settings
    )
    def settle_run(context: dg.RunStatusSensorContext, lake: LakeResource) -> dg.SkipReason:
        run_session = from_tags(context.dagster_run)
        if run_session is None or context.dagster_run.tags.get(ROOT_TAG) != lake.root:
            return dg.SkipReason("the run had no session of this lake")
        opened = lake.open()
        try:
            record = opened.get_session(run_session.id).record
        except SessionNotFound:
            return dg.SkipReason(f"session {run_session.id} no longer exists")
        if is_resumed(record, context.dagster_run):
            return dg.SkipReason(f"session {run_session.id} was resumed by a later run")
        keep = lake.keep_failed
        if record.is_published:
            # Its process may have died before it could report this.
            publish_session(context.instance, opened, run_session, gate="none", keep_failed_for=keep)
            return dg.SkipReason(f"session {run_session.id} is published")
        outcome = settle_session(context.instance, opened, record, keep_failed_for=keep, gate=lake.gate)
        _send_alert(alert, outcome)
        return dg.SkipReason(f"session {run_session.id}: {outcome.outcome} {outcome.reason}".rstrip())

    definition: dg.SensorDefinition = settle_run
    return definition


def reap(lake: LakeResource, instance: dg.DagsterInstance, alert: Alert | None = None) -> list[SessionOutcome]:
    """Settle every session of the lake that has not ended, including those that no sensor saw."""
    outcomes = settle(instance, lake.open(), keep_failed_for=lake.keep_failed, gate=lake.gate)
    for outcome in outcomes:
        _send_alert(alert, outcome)
    return outcomes


def lake_session_reaper(
    key: str | Sequence[str] | dg.AssetKey = "lake_session_reaper",
    *,
    alert: Alert | None = None,
    needs_lake: bool = True,
    **options: Any,
) -> dg.AssetsDefinition:
    """Make an asset that fails the open sessions of ended runs, and expires sessions past their time.

    It works without sensors and after a daemon outage. Give it a schedule, such as
    `automation_condition=dg.AutomationCondition.on_cron("*/30 * * * *")`. With `needs_lake=False` it does nothing if
    the root is a folder of plain tables, which has no sessions. `options` are those of `@dg.asset`.
    """

    def reaper(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult[Any]:
        if not (needs_lake or lake.is_lake()):
            context.log.info(f"{lake.root} is a folder of plain tables, which has no sessions")
            return dg.MaterializeResult(metadata={"lake/due": False})
        outcomes = reap(lake, context.instance, alert)
        counts = {
            f"lake/{outcome}": sum(session_outcome.outcome == outcome for session_outcome in outcomes)
            for outcome in ("running", "failed", "expired", "kept")
        }
        table = [
            f"| {outcome.session} | {outcome.run or ''} | {outcome.outcome} | {outcome.reason} |"
            for outcome in outcomes[:50]
        ]
        sessions = dg.MetadataValue.md("\n".join(["| session | run | outcome | reason |", "|---|---|---|---|", *table]))
        return dg.MaterializeResult(
            metadata={
                **counts,
                "lake/publishable": sum(outcome.publishable for outcome in outcomes),
                "lake/sessions": sessions,
            }
        )

    asset: Any = dg.asset(
        key=dg.AssetKey.from_coercible(key),
        description="Settles the sessions of runs that ended without settling them.",
        **options,
    )
    definition: dg.AssetsDefinition = asset(reaper)
    return definition


def _send_alert(alert: Alert | None, outcome: SessionOutcome) -> None:
    if alert is None or outcome.outcome not in ("failed", "kept", "expired"):
        return
    message = f"session {outcome.session}: {outcome.reason or outcome.outcome}"
    if outcome.held_back:
        # The reason names the remedy.
        kind = "gate_failed"
    elif outcome.publishable:
        kind, message = "publish_failed", f"{message}; run lake_recover to publish it"
    elif outcome.outcome == "expired":
        kind = "stale"
    else:
        kind, message = "run_failed", f"{message}; re-execute the run from failure to go on"
    alert(SessionAlert(kind, outcome.session, outcome.run, message))
