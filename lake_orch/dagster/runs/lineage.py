"""The lineage of a step: the identity under which its writes happen exactly once.

Dagster starts a step again in three ways: a step retry (same run), a re-execution from failure (a new run that
continues the old one), and a re-execution of all steps (a new run that starts over). The first two must not repeat
committed writes. The third must write again. The lineage distinguishes them: it is the id of the first run in the chain
that this step continues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dagster import DagsterEventType

from lake_orch._dagster import ResolvedFromDynamicStepHandle
from lake_orch.dagster.runs.plan import plan_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from dagster import DagsterInstance, DagsterRun, RunRecord

CLOCKS_APART = timedelta(hours=1)
"""The largest difference between the clocks of a run's machines."""

MAX_ANCESTORS = 64
"""The most ancestors to follow in a chain of re-executions. This limits the work if a chain is damaged."""

# The tags' names are part of Dagster's GraphQL and UI contract, but it exports no public constants for them.
RESUME_RETRY_TAG = "dagster/is_resume_retry"
ASSET_RESUME_RETRY_TAG = "dagster/is_asset_resume_retry"
_WILL_RETRY, _RETRIED_AS, _RETRY_STRATEGY = (
    "dagster/will_retry",
    "dagster/auto_retry_run_id",
    "dagster/retry_strategy",
)


def step_lineage(instance: DagsterInstance, run: DagsterRun, step_key: str) -> str:
    """Return the run id that is part of the identity of this step's writes.

    It is the run's id, or its parent's lineage if the run re-executes the parent from failure and this step had not
    succeeded in the parent by then.
    """
    current = run
    run_ids = {run.run_id}
    while len(run_ids) < MAX_ANCESTORS and current.parent_run_id and current.parent_run_id not in run_ids:
        parent = instance.get_run_by_id(current.parent_run_id)
        if parent is None or not continues(instance, current, parent):
            break
        if step_key in successful_steps(instance, parent, before=current):
            break
        run_ids.add(parent.run_id)
        current = parent
    return current.run_id


def continues(instance: DagsterInstance, run: DagsterRun, parent: DagsterRun) -> bool:
    """Return whether `run` re-executes `parent` from failure, rather than starting over.

    The Python API sets no tags, but makes the plan from the parent's state, or as a strict part of the parent's plan.
    On the other hand, Dagster copies the tag of an asset retry to later re-executions of *all* steps. Such a leaked tag
    is ignored.
    """
    if run.tags.get(RESUME_RETRY_TAG) == "true":
        return True
    if run.tags.get(ASSET_RESUME_RETRY_TAG) == "true":
        return not _tag_is_leaked(instance, run, parent)
    if _plan_follows(instance, run, parent):
        return True
    return bool(run.step_keys_to_execute) and _is_strict_part(
        set(run.step_keys_to_execute or ()), planned_steps(instance, parent)
    )


def mapped_steps_left_out(instance: DagsterInstance, run: DagsterRun) -> list[str]:
    """Return the mapped steps that began in no run of this chain, and that this run does not execute either.

    Dagster leaves them out when it re-executes a run whose worker died before it began them.
    """
    plan = plan_of(instance, run)
    if plan is None:
        return []
    mapped = {step.key for step in plan.steps if isinstance(step.step_handle, ResolvedFromDynamicStepHandle)}
    left_out = mapped.difference(plan.step_keys_to_execute)
    for parent in ancestors(instance, run) if left_out else ():
        left_out -= {each.step_key for each in instance.get_run_step_stats(parent.run_id) if each.status is not None}
    return sorted(left_out)


def ancestors(instance: DagsterInstance, run: DagsterRun) -> Iterator[DagsterRun]:
    """Yield the run that a run re-executes, the one that this re-executes, and so on, as far as they are known."""
    current = run
    for _ in range(MAX_ANCESTORS):
        parent = instance.get_run_by_id(current.parent_run_id) if current.parent_run_id else None
        if parent is None:
            return
        yield parent
        current = parent


@dataclass(frozen=True, slots=True)
class FailedAncestor:
    """A failed run that another run re-executes, or that an ancestor of this one does."""

    run: DagsterRun
    is_continued: bool
    """Whether the other run does the rest of it. Otherwise that run, or one in between, has started over."""
    succeeded: frozenset[str]
    """Its steps that had succeeded when the other run was made."""


def failed_ancestors(instance: DagsterInstance, run: DagsterRun) -> list[FailedAncestor]:
    """Return the runs that a run re-executes, the nearest first, up to one that had ended as a success."""
    failed: list[FailedAncestor] = []
    current, is_continued = run, True
    for parent in ancestors(instance, run):
        if was_success(instance, parent, before=run):
            break
        is_continued = is_continued and continues(instance, current, parent)
        succeeded = frozenset(successful_steps(instance, parent, before=run))
        failed.append(FailedAncestor(parent, is_continued, succeeded))
        current = parent
    return failed


def will_retry(run: DagsterRun, *, has_steps_left: bool = True) -> bool:
    """Return whether the daemon is going to re-execute a failed run, and has not done so yet.

    Unless it starts over, it needs steps that are left: Dagster gives up a run whose publish alone failed.
    """
    if not has_steps_left and run.tags.get(_RETRY_STRATEGY) != "ALL_STEPS":
        return False
    return run.tags.get(_WILL_RETRY) == "true" and _RETRIED_AS not in run.tags


def _plan_follows(instance: DagsterInstance, run: DagsterRun, parent: DagsterRun) -> bool:
    """Return whether the run's plan was made from the state of the parent.

    Comparing the plans' steps is not enough: if no step of the parent succeeded, as in every failed job of one step, a
    re-execution from failure has the same steps as one of all steps.
    """
    plan = plan_of(instance, run)
    past = plan.initial_known_state.parent_state if plan and plan.initial_known_state else None
    return past is not None and past.run_id == parent.run_id


def _tag_is_leaked(instance: DagsterInstance, run: DagsterRun, parent: DagsterRun) -> bool:
    """Return whether the tag is certainly leaked. In doubt, return False: a retry that starts over would write twice.

    A retry of failed assets leaves out the steps that succeeded, unless a blocking check failed on their asset.
    """
    if parent.tags.get(ASSET_RESUME_RETRY_TAG) != "true":
        return False
    succeeded = successful_steps(instance, parent)
    return bool(succeeded & planned_steps(instance, run)) and not _a_check_failed(instance, parent)


def _is_strict_part(steps: set[str], of: set[str]) -> bool:
    """Return whether the steps are a proper subset of the other plan's.

    A plan has mapped steps as `step[?]`. A re-execution names each of them, as `step[key]`.
    """
    return {planned_name(step, of) for step in steps} < of


def planned_name(step_key: str, planned: Set[str]) -> str:
    """Return the name that a plan has for a step: that of a mapped step may be `step[?]`."""
    return f"{step_key.split('[')[0]}[?]" if "[" in step_key and step_key not in planned else step_key


def planned_steps(instance: DagsterInstance, run: DagsterRun) -> set[str]:
    """Return the steps that a run is to execute."""
    plan = plan_of(instance, run)
    return set(plan.step_keys_to_execute) if plan else set()


def successful_steps(instance: DagsterInstance, run: DagsterRun, *, before: DagsterRun | None = None) -> set[str]:
    """Return the steps of a run that have succeeded; with `before`, that had when another run was made.

    A run whose worker was taken for dead goes on. Its re-execution does again what it does after that one was made.
    """
    latest = math.inf if before is None else _made_at(instance, before)
    entries = instance.all_logs(run.run_id, of_type=DagsterEventType.STEP_SUCCESS)
    return {entry.step_key for entry in entries if entry.step_key and entry.timestamp <= latest}


def was_success(instance: DagsterInstance, run: DagsterRun, *, before: DagsterRun) -> bool:
    """Return whether a run had ended as a success when another run was made."""
    if not run.is_success:
        return False
    record = instance.get_run_record_by_id(run.run_id)
    return record is None or record.end_time is None or record.end_time <= _made_at(instance, before)


def _made_at(instance: DagsterInstance, run: DagsterRun) -> float:
    """Return when a run was made, as seconds since the epoch; infinity if the instance does not know it."""
    record = instance.get_run_record_by_id(run.run_id)
    return math.inf if record is None else time_made(record).timestamp()


def time_made(record: RunRecord) -> datetime:
    """Return when a run was made. Some storages of runs leave out the zone, which is UTC."""
    timestamp = record.create_timestamp
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def _a_check_failed(instance: DagsterInstance, run: DagsterRun) -> bool:
    entries = instance.all_logs(run.run_id, of_type=DagsterEventType.ASSET_CHECK_EVALUATION)
    return any(not entry.dagster_event.asset_check_evaluation_data.passed for entry in entries if entry.dagster_event)
