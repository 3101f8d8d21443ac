"""The state of a run's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_orch._dagster import StepEventStatus

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

_FINE = (None, StepEventStatus.SUCCESS, StepEventStatus.SKIPPED)


def all_succeeded(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Return whether every step of a run's plan has succeeded."""
    if run.execution_plan_snapshot_id is None:
        return False
    planned = set(instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).step_keys_to_execute)
    stats = instance.get_run_step_stats(run.run_id)
    succeeded = {stat.step_key for stat in stats if stat.status in (StepEventStatus.SUCCESS, StepEventStatus.SKIPPED)}
    # The plan has only the pattern of mapped steps.
    return (
        all(stat.status in _FINE for stat in stats)
        and {step for step in planned if not step.endswith("[?]")} <= succeeded
    )
