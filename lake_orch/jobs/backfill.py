"""Backfills that publish as a whole. Their runs publish to a separate branch, which is merged after all succeeded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from lake_core.lake import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.readable import count_of
from lake_orch._dagster import BulkActionStatus
from lake_orch.dagster.runs.gathering import BACKFILL_TAG, gathered, last_of
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.dagster.runs.run_session import is_published
from lake_orch.dagster.runs.steps import FINE, pattern_of
from lake_orch.resources import LakeResource

_COMPLETED = (BulkActionStatus.COMPLETED, BulkActionStatus.COMPLETED_SUCCESS, BulkActionStatus.COMPLETED_FAILED)
_ENDED = (*_COMPLETED, BulkActionStatus.FAILED, BulkActionStatus.CANCELED)


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """The state of a backfill's branch."""

    backfill: str
    branch: str
    outcome: Literal["running", "merged", "failed", "conflict", "unknown"]
    """After `merged`, the branch is deleted. After `failed` and `conflict`, it is kept.

    `unknown` means that this instance does not have the backfill.
    """
    commit: str | None = None
    message: str = ""


def merge_backfills(instance: dg.DagsterInstance, lake: Lake, into: str = "main") -> list[BackfillOutcome]:
    """Merge the branches of backfills of which all is published, of those that began at the branch `into`.

    A repeated call continues where the last one stopped.
    """
    return list(_merge(instance, lake, into))


def _merge(instance: dg.DagsterInstance, lake: Lake, into: str) -> Iterator[BackfillOutcome]:
    gathering = {branch: names for branch in sorted(lake.list_branches()) if (names := gathered(branch)) is not None}
    for branch, (backfill, begun_at) in gathering.items():
        if begun_at != into:
            continue
        record = instance.get_backfill(backfill)
        if record is None:
            yield BackfillOutcome(backfill, branch, "unknown", message="this Dagster instance has no such backfill")
            continue
        # What a backfill lacked is what its re-execution from failure is for, so the last one tells of all.
        record = last_of(instance, record)
        runs = instance.get_runs(dg.RunsFilter(tags={BACKFILL_TAG: record.backfill_id}))
        failed = [run for run in runs if run.is_finished and not _is_made_good(instance, lake, run)]
        if record.status not in _ENDED or any(not run.is_finished for run in runs):
            yield BackfillOutcome(backfill, branch, "running")
        elif failed or record.status not in _COMPLETED:
            message = (
                f"{count_of(len(failed), 'run')} did not succeed (backfill {record.status.value}): "
                f"re-execute them, or delete branch {branch!r}"
            )
            yield BackfillOutcome(backfill, branch, "failed", message=message)
        else:
            yield _merge_one(lake, backfill, branch, into)


def _merge_one(lake: Lake, backfill: str, branch: str, into: str) -> BackfillOutcome:
    head = lake.list_branches()[branch]
    try:
        commit = lake.merge(branch, into=into, message=f"Backfill {backfill}").commit
    except NothingToApply:
        commit = lake.list_branches()[into]
    except Conflict as error:
        return BackfillOutcome(backfill, branch, "conflict", message=str(error))
    if not lake.delete_branch(branch, at=head):
        # A run was re-executed in the meantime: the next call merges its commits.
        return BackfillOutcome(backfill, branch, "running", commit)
    return BackfillOutcome(backfill, branch, "merged", commit)


def _is_made_good(instance: dg.DagsterInstance, lake: Lake, run: dg.DagsterRun) -> bool:
    """Return whether all that an ended run was to do is published, be it by a re-execution.

    What a run wrote into a session counts once that is published, and until then neither do its failures.
    """
    if run.is_success and is_published(lake, run):
        return True
    group = instance.get_run_group(run.root_run_id or run.run_id)
    plan = plan_of(instance, run)
    if group is None or plan is None:
        return False
    last: dict[str, bool] = {}
    ids = [each.run_id for each in group[1]]
    for other in (each.dagster_run for each in instance.get_run_records(dg.RunsFilter(run_ids=ids), ascending=True)):
        own = plan_of(instance, other)
        if own is None or not is_published(lake, other):
            continue
        # A run that maps anew may map over other keys, or over none.
        last = {
            key: fine
            for key, fine in last.items()
            if key == pattern_of(key) or pattern_of(key) not in own.step_keys_to_execute
        }
        executions = instance.get_run_step_stats(other.run_id)
        last |= {each.step_key: each.status in FINE for each in executions if each.status is not None}
        if other.is_success:
            last |= {key: True for key in own.step_keys_to_execute if key not in last}
    unfinished = {pattern_of(key) for key, is_fine in last.items() if not is_fine}
    finished = {pattern_of(key) for key in last} - unfinished
    return all(pattern_of(key) in finished for key in plan.step_keys_to_execute)


def lake_backfill_sensor(
    name: str = "lake_backfills", *, minimum_interval_seconds: int = 30, **options: Any
) -> dg.SensorDefinition:
    """Make a sensor that merges the branches of finished backfills, for a `LakeResource(backfills="gather")`."""

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        description="Merges the branches of finished backfills.",
        **options,
    )
    def merge_finished(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SkipReason:
        outcomes = merge_backfills(context.instance, lake.open(), lake.branch)
        lines = [
            f"{outcome.branch}: {outcome.outcome} {outcome.commit or outcome.message}".rstrip() for outcome in outcomes
        ]
        for line in lines:
            context.log.info(line)
        return dg.SkipReason("; ".join(lines) or "no backfill has a branch to merge")

    definition: dg.SensorDefinition = merge_finished
    return definition
