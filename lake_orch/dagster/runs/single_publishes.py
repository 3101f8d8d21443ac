"""Runs without a session, each of whose outputs is published by itself: what keeps the processes of a failed one out.

Dagster marks a run failed whose worker does not answer. A process of it, or one that a step has started, may go on
unseen, while another run does its work again. So a run that begins to write is marked by a tag, and any run that begins
after it has failed fences it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dagster import DagsterRunStatus, RunsFilter

from lake_core.lake.errors import StaleEpoch
from lake_orch.dagster.runs.lineage import ancestors, had_succeeded, step_lineage, time_made
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.tags import RUN, STEP, WRITES_TAG

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dagster import DagsterInstance, DagsterRun

    from lake_core.graveler import Commit
    from lake_core.lake import Lake

ENDED_UNSUCCESSFULLY = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)

_MAY_PUBLISH, _FENCED = "may publish", "fenced"


def begin(instance: DagsterInstance, run: DagsterRun, lake: Lake) -> None:
    """Mark a run as one that publishes to a lake. Raises StaleEpoch if Dagster has it as failed or canceled.

    The mark comes first. So a run that begins later either finds it, or this process finds out that it has failed.
    """
    instance.add_run_tags(run.run_id, {_tag(lake): _MAY_PUBLISH})
    stored = instance.get_run_by_id(run.run_id)
    if stored is not None and stored.status in ENDED_UNSUCCESSFULLY:
        raise StaleEpoch(
            f"Dagster has run {run.run_id} as {stored.status.value.lower()}, and another run may do its work by now. "
            "So this process of it publishes nothing: re-execute the run"
        )


def fence_failed(instance: DagsterInstance, lake: Lake) -> None:
    """Keep runs that have failed or were canceled from publishing to a lake later."""
    may_publish = RunsFilter(tags={_tag(lake): _MAY_PUBLISH}, statuses=list(ENDED_UNSUCCESSFULLY))
    ids = [run.run_id for run in instance.get_runs(may_publish)]
    lake.fence(*ids)
    for id in ids:
        instance.add_run_tags(id, {_tag(lake): _FENCED})


def published_late(
    instance: DagsterInstance, run: DagsterRun, failed: DagsterRun, lake: Lake, branch: str
) -> Commit | None:
    """Return a commit of a failed run that was made after Dagster had it as failed, in a step that a run repeats.

    Whoever launched the run could not know of it. What the failed run had published before then, its page shows.
    """
    record, plan = instance.get_run_record_by_id(failed.run_id), plan_of(instance, run)
    if record is None or record.end_time is None or plan is None:
        return None
    ended = datetime.fromtimestamp(record.end_time, UTC)
    commits = _commits_of(failed, plan.step_keys_to_execute, lake, branch, since=ended)
    return next((commit for commit in commits if datetime.fromisoformat(commit.metadata["at"]) > ended), None)


def published_in_part(
    instance: DagsterInstance, run: DagsterRun, step_key: str, lake: Lake, branch: str
) -> Commit | None:
    """Return a commit of a step that a run does again from its beginning, since it failed in the run before."""
    parent = next(ancestors(instance, run), None)
    if parent is None or step_lineage(instance, run, step_key) != run.run_id:
        return None
    record = instance.get_run_record_by_id(parent.run_id)
    if record is None or had_succeeded(instance, parent, step_key, before=run):
        return None
    return next(_commits_of(parent, [step_key], lake, branch, since=time_made(record)), None)


def _commits_of(
    run: DagsterRun, step_keys: Collection[str], lake: Lake, branch: str, *, since: datetime
) -> Iterator[Commit]:
    """Yield what these steps of a run have published since, newest first."""
    for commit in lake.log(branch, first_parent=True, since=since.replace(microsecond=0)):
        if commit.metadata.get(RUN) == run.run_id and commit.metadata.get(STEP) in step_keys:
            yield commit


def _tag(lake: Lake) -> str:
    return f"{WRITES_TAG}{lake.id}"
