"""The kept session of a failed run that another run completes without re-executing it.

Dagster counts an asset as materialized when its step has ended, also in a run that failed and published nothing. So a
backfill that is re-executed from failure, or somebody in the UI, asks for the other assets of the failed run alone, by
a run that has no parent. It goes on in the session that the failed run left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.gathering import is_backfilled_again
from lake_orch.dagster.runs.lineage import will_retry
from lake_orch.dagster.runs.observations import materialized
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.dagster.runs.run_session import find_record
from lake_orch.dagster.runs.steps import StepStates
from lake_orch.dagster.runs.upstream import made_elsewhere, newest_materializations
from lake_orch.tags import BRANCH_TAG, RUN

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagster import AssetKey, DagsterInstance, DagsterRun

    from lake_core.lake import Lake
    from lake_core.lake.refs.session_record import SessionRecord

_PARTITION_TAGS = (
    "dagster/partition",
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
)


def completed_session(
    instance: DagsterInstance, run: DagsterRun, lake: Lake, branch: str, reads: Collection[AssetKey]
) -> str | None:
    """Return the kept session that a run without a parent completes, or None.

    `reads` are the assets that the run reads and does not make.

    These are its conditions: it has the branch and the partitions of the run, and the same steps, of the same code
    location. The run executes all of them that did not succeed, or some of them if it is of a re-executed backfill, and
    none that did. What the session holds is still the newest that Dagster has of these assets. Nothing else that the
    run reads was made since: the session has what there was when it was opened.
    """
    if run.parent_run_id is not None:
        return None
    kept = [record for record in lake.list_sessions() if record.branch == branch and RUN in record.metadata]
    plan = plan_of(instance, run) if kept else None
    planned = set(plan.step_keys_to_execute) if plan else set()
    for record in sorted(kept, key=lambda record: record.opened, reverse=True):
        # It may be past its time, which is recorded when somebody looks.
        if _is_completed(instance, run, planned, record, reads) and _is_kept(lake, record.id):
            return record.id
    return None


def _is_kept(lake: Lake, session: str) -> bool:
    record = find_record(lake, session)
    return record is not None and record.state in (OPEN, FAILED)


def _is_completed(
    instance: DagsterInstance,
    run: DagsterRun,
    planned: set[str],
    record: SessionRecord,
    reads: Collection[AssetKey],
) -> bool:
    runs = runs_of(instance, record.id)
    last = runs[-1] if runs else None
    if last is None or last.run_id == run.run_id or not last.is_finished or will_retry(last):
        return False
    if any(run.tags.get(tag) != last.tags.get(tag) for tag in (*_PARTITION_TAGS, BRANCH_TAG)):
        return False
    states = StepStates(instance, record.id)
    unfinished = set(states.unfinished())
    # Dagster may make several runs of what one run of the first backfill lacked.
    is_enough = bool(planned & unfinished) if is_backfilled_again(instance, run, last) else unfinished <= planned
    if not unfinished or not is_enough or planned & states.succeeded():
        return False
    if not _are_same_steps(instance, run, last, planned & unfinished):
        return False
    ids = {each.run_id for each in runs}
    held = materialized(instance, record.id)
    if not held:
        return False
    partition = run.tags.get(_PARTITION_TAGS[0])
    for key in set(reads) - {output.key for output in held}:
        # Of an upstream asset with other partitions, any may be one that the run reads.
        same = newest_materializations(instance, key, [partition]) if partition else {}
        newest = [*(same or newest_materializations(instance, key, None)).values()]
        if any(each.timestamp > record.opened.timestamp() for each in newest):
            return False
    return not any(made_elsewhere(instance, held, ids))


def _are_same_steps(instance: DagsterInstance, run: DagsterRun, other: DagsterRun, steps: Collection[str]) -> bool:
    """Return whether two runs have the same steps. Other code locations, and other jobs, may use the same keys."""
    here, there = run.remote_job_origin, other.remote_job_origin
    if here is not None and there is not None and here.location_name != there.location_name:
        return False
    return _shapes(instance, run, steps) == _shapes(instance, other, steps)


def _shapes(
    instance: DagsterInstance, run: DagsterRun, steps: Collection[str]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return the assets that steps make, and the names of their op's inputs, by the key of the step."""
    plan = plan_of(instance, run)
    job = instance.get_job_snapshot(run.job_snapshot_id) if run.job_snapshot_id else None
    ops = {op.name: op for op in job.node_defs_snapshot.op_def_snaps} if job else {}
    shapes = {}
    for step in plan.steps if plan else ():
        if step.key in steps:
            op = ops.get(step.node_handle_id.rpartition(".")[2])
            assets = [str(output.properties.asset_key) for output in step.outputs if output.properties is not None]
            shapes[step.key] = sorted(assets), sorted(each.name for each in op.input_def_snaps) if op else []
    return shapes
