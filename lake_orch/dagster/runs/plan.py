"""The plan of a run: the steps that it is to execute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_orch._dagster import ExecutionPlanSnapshot


def plan_of(instance: DagsterInstance, run: DagsterRun) -> ExecutionPlanSnapshot | None:
    """Return the plan of a run, if the instance has it."""
    snapshot = run.execution_plan_snapshot_id
    return instance.get_execution_plan_snapshot(snapshot) if snapshot else None
