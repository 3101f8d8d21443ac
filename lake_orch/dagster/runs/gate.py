"""The gate: asset checks that fail with severity ERROR and prevent publishing a run's session.

The latest evaluation of a check counts, over all runs that wrote into the session. A run that continues a failed one
evaluates only the checks of the steps that it repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import AssetCheckSeverity, DagsterEventType, RunsFilter

from lake_orch.dagster.runs.run_session import Gate, from_tags
from lake_orch.errors import CheckPending, GateFailed
from lake_orch.tags import SESSION_TAG

if TYPE_CHECKING:
    from dagster import AssetCheckEvaluation, DagsterInstance, DagsterRun, OutputContext


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check whose latest evaluation prevents publishing."""

    asset: str
    check: str
    partition: str | None = None

    def __str__(self) -> str:
        return f"{self.asset}:{self.check}" + (f" ({self.partition})" if self.partition else "")


def runs_of(instance: DagsterInstance, session: str) -> Sequence[DagsterRun]:
    """List the runs that wrote into a session in the order of their epochs.

    A run that was created earlier may have started later.
    """
    records = instance.get_run_records(RunsFilter(tags={SESSION_TAG: session}))
    runs = [record.dagster_run for record in sorted(records, key=lambda record: record.create_timestamp)]
    epochs = {run.run_id: session_of_run.epoch for run in runs if (session_of_run := from_tags(run)) is not None}
    return sorted((run for run in runs if run.run_id in epochs), key=lambda run: epochs[run.run_id])


def failed_checks(instance: DagsterInstance, session: str, gate: Gate) -> list[FailedCheck]:
    """List the checks that prevent publishing a session under this policy."""
    evaluations = (
        entry.dagster_event.asset_check_evaluation_data
        for run in runs_of(instance, session)
        for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION)
        if entry.dagster_event
    )
    return failing_checks(evaluations, gate)


def failing_checks(evaluations: Iterable[AssetCheckEvaluation], gate: Gate) -> list[FailedCheck]:
    """Return the checks whose latest evaluation prevents publishing. The evaluations are in order of time."""
    latest: dict[FailedCheck, AssetCheckEvaluation] = {}
    for evaluation in evaluations:
        asset, partition = evaluation.asset_key.to_user_string(), getattr(evaluation, "partition", None)
        latest[FailedCheck(asset, evaluation.check_name, partition)] = evaluation
    return [check for check, evaluation in latest.items() if prevents_publishing(evaluation, gate)]


def prevents_publishing(evaluation: AssetCheckEvaluation, gate: Gate) -> bool:
    """Return whether an evaluation failed with severity ERROR, and its check is blocking or the gate is `error`."""
    if evaluation.passed or evaluation.severity is not AssetCheckSeverity.ERROR:
        return False
    return bool(evaluation.blocking) or gate == "error"


def check_step_gate(context: OutputContext) -> None:
    """Check that no blocking check of the step on the output's asset has failed, before it publishes the output.

    Raises GateFailed if one failed with severity ERROR, CheckPending if one was not evaluated yet.
    """
    if not context.has_asset_key:
        return
    step = context.step_context
    assets = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)
    if assets is None:
        return
    blocking = {
        spec.name
        for output in step.step.step_outputs
        if (key := output.properties.asset_check_key) is not None
        and key.asset_key == context.asset_key
        and (spec := assets.get_spec_for_check_key(key)).blocking
    }
    if not blocking:
        return
    logged = step.instance.all_logs(step.run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION)
    latest = {
        evaluation.check_name: evaluation
        for entry in logged
        if entry.dagster_event and entry.step_key == context.step_key
        for evaluation in [entry.dagster_event.asset_check_evaluation_data]
        if evaluation.asset_key == context.asset_key
    }
    name = context.asset_key.to_user_string()
    pending = sorted(blocking - latest.keys())
    if pending:
        raise CheckPending(
            f"asset {name} is published with its output, but its blocking checks ({', '.join(pending)}) come later: "
            "yield their results before the output, decorate the asset's function with lake_orch.checks_first, "
            "or publish the run as a whole (scope='run')"
        )
    failed = sorted(check for check in blocking if prevents_publishing(latest[check], "blocking"))
    if failed:
        raise GateFailed(
            f"asset {name} is not published: {', '.join(failed)} failed. Its table is as before",
            checks=[f"{name}:{check}" for check in failed],
        )
