"""Runs without a session, each of whose outputs is published by itself: what keeps the processes of a failed one out.

Dagster marks a run failed whose worker does not answer. A process of it, or one that a step has started, may go on
unseen, while another run does its work again. So a run that begins to write is marked by a tag, and any run that begins
after it has failed fences it. What it has published before that is known by its commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from dagster import DagsterEventType, DagsterRunStatus, RunsFilter

from lake_core.lake.errors import SessionClosed, StaleEpoch
from lake_core.lake.refs.session_record import PUBLISHED
from lake_core.readable import listed
from lake_orch.dagster.runs.lineage import CLOCKS_APART, planned_name, planned_steps, time_made
from lake_orch.tags import RUN, STEP, WRITES_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake import Lake
    from lake_orch.dagster.runs.lineage import FailedAncestor

ENDED_UNSUCCESSFULLY = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)

_MAY_PUBLISH, _FENCED = "may publish", "fenced"
_FAILED_EVENTS = {DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED}


def mark_as_publishing(instance: DagsterInstance, run: DagsterRun, lake: Lake) -> None:
    """Mark a run as one that publishes to a lake. Raises StaleEpoch if Dagster has it as failed or canceled.

    The mark comes first. So a run that begins later either finds it, or this process finds out that it has failed.
    """
    instance.add_run_tags(run.run_id, {_tag(lake): _MAY_PUBLISH})
    if _has_ended(instance, run) or _has_failed(instance, run):
        raise _stale(run)


def check_not_revived(instance: DagsterInstance, run: DagsterRun) -> None:
    """Raise StaleEpoch for a run that was marked failed or canceled before its worker began.

    The event of the start makes it a started one again, though others may do its work by then.
    """
    if not _has_ended(instance, run) and _has_failed(instance, run):
        raise _stale(run)


def _has_ended(instance: DagsterInstance, run: DagsterRun) -> bool:
    stored = instance.get_run_by_id(run.run_id)
    return stored is not None and stored.status in ENDED_UNSUCCESSFULLY


def _has_failed(instance: DagsterInstance, run: DagsterRun) -> bool:
    return bool(instance.all_logs(run.run_id, of_type=_FAILED_EVENTS))


def _stale(run: DagsterRun) -> StaleEpoch:
    return StaleEpoch(
        f"Dagster has had run {run.run_id} as failed or canceled, and another run may do its work by now. "
        "So this process of it publishes nothing: re-execute the run"
    )


def fence_failed(instance: DagsterInstance, lake: Lake) -> None:
    """Keep runs that have failed or were canceled from publishing to a lake later."""
    may_publish = RunsFilter(tags={_tag(lake): _MAY_PUBLISH}, statuses=list(ENDED_UNSUCCESSFULLY))
    ids = [run.run_id for run in instance.get_runs(may_publish)]
    lake.fence(*ids)
    for id in ids:
        instance.add_run_tags(id, {_tag(lake): _FENCED})


@dataclass(frozen=True, slots=True)
class UnseenPublish:
    """A commit of a step that Dagster has as unsuccessful."""

    run_id: str
    step_key: str
    commit: str
    committed_at: datetime


def repeated_publishes(
    instance: DagsterInstance,
    run: DagsterRun,
    failed: Sequence[FailedAncestor],
    lake: Lake,
    branch: str,
    *,
    in_session: bool,
) -> list[UnseenPublish]:
    """Return what failed runs have published to a branch in steps that a run does again, newest first.

    Without a session, a step that goes on where it failed skips what it has published. In a session, it does not.

    Raises:
        SessionClosed: Whoever launched the run could not know of it, because it was published after Dagster had the
            failed run as failed; or the run is to do the rest of the failed one, and would repeat it.
    """
    repeated = _unseen_publishes(instance, run, failed, lake, branch, in_session=in_session)
    continued = {each.run.run_id for each in failed if each.is_continued}
    for each in repeated:
        if each.run_id in continued:
            raise SessionClosed(
                f"run {run.run_id} is to do the rest of run {each.run_id} in one session, but step {each.step_key} of "
                f"that one has published commit {each.commit[:12]} by itself before it failed: appended rows would be "
                "there twice. Re-execute it with the tag lake/scope: asset, which skips what was published",
                state=PUBLISHED,
            )
        if _is_after_failure(instance, each):
            raise SessionClosed(
                f"run {run.run_id} repeats step {each.step_key} of run {each.run_id}, which has failed. A process of "
                f"that run has published commit {each.commit[:12]} since: rows that it appends would be there twice. "
                f"Re-execute run {each.run_id} from failure, which skips what was published, unless it has ended as a "
                "success since. To repeat it nevertheless, launch a new run",
                state=PUBLISHED,
            )
    return repeated


def _unseen_publishes(
    instance: DagsterInstance,
    run: DagsterRun,
    failed: Sequence[FailedAncestor],
    lake: Lake,
    branch: str,
    *,
    in_session: bool,
) -> list[UnseenPublish]:
    succeeded: frozenset[str] = frozenset()
    succeeded_by_run: dict[str, frozenset[str]] = {}
    """The steps that had succeeded in each run, or in one that re-executed it: their publishes were seen."""
    since = None
    for ancestor in failed:
        succeeded |= ancestor.succeeded
        record = instance.get_run_record_by_id(ancestor.run.run_id)
        if record is not None and (in_session or not ancestor.is_continued):
            succeeded_by_run[ancestor.run.run_id] = succeeded
            since = time_made(record) - CLOCKS_APART
    if since is None:
        return []
    planned, unseen = planned_steps(instance, run), []
    for commit in lake.log(branch, first_parent=True, since=since):
        run_id, step_key = commit.metadata.get(RUN), commit.metadata.get(STEP)
        if run_id is None or step_key is None or run_id not in succeeded_by_run:
            continue  # not a commit of a step of these runs
        if step_key not in succeeded_by_run[run_id] and planned_name(step_key, planned) in planned:
            committed_at = datetime.fromisoformat(commit.metadata["at"])
            unseen.append(UnseenPublish(run_id, step_key, commit.id, committed_at))
    return unseen


def warning_of_repeats(publishes: Sequence[UnseenPublish]) -> str:
    """Return what to log about publishes that steps of a run are about to repeat."""
    steps = listed(sorted({each.step_key for each in publishes}))
    runs = listed(sorted({each.run_id for each in publishes}))
    commits = [each.commit[:12] for each in publishes]
    return (
        f"{steps} starts over, and had published {listed(commits)} in run {runs}, which failed. If it appends rows, "
        "they are there twice now. A re-execution from failure skips what was published; `lake revert` takes a commit "
        "back, the newest one first"
    )


def _is_after_failure(instance: DagsterInstance, publish: UnseenPublish) -> bool:
    """Return whether Dagster had a run as failed before it published. It may have ended again, even as a success."""
    events = instance.all_logs(publish.run_id, of_type=_FAILED_EVENTS)
    return any(event.timestamp < publish.committed_at.timestamp() for event in events)


def _tag(lake: Lake) -> str:
    # A copy of a lake has the same id.
    return WRITES_TAG + sha256(f"{lake.id} {lake.url}".encode()).hexdigest()[:16]
