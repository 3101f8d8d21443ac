"""Runs without a session, each of whose outputs is published by itself: what keeps the processes of a failed one out.

Dagster marks a run failed whose worker does not answer. A process of it, or one that a step has started, may go on
unseen, while another run does its work again. So a run that begins to write is marked by a tag, and any run that begins
after it has failed fences it. What it has published before that is known by its commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from dagster import DagsterEventType, DagsterRunStatus, RunsFilter

from lake_core.lake.errors import SessionClosed, StaleEpoch
from lake_core.lake.refs.session_record import PUBLISHED
from lake_core.readable import listed
from lake_orch.dagster.runs.lineage import ancestors, continues, successful_steps, time_made, was_success
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.tags import RUN, STEP, WRITES_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake import Lake

ENDED_UNSUCCESSFULLY = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)

CLOCKS_APART = timedelta(hours=1)
"""The largest difference between the clocks of machines that is allowed for."""

_MAY_PUBLISH, _FENCED = "may publish", "fenced"
_FAILED_EVENTS = {DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_CANCELED}


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


@dataclass(frozen=True, slots=True)
class UnseenPublish:
    """A commit of a step that Dagster has as unsuccessful."""

    run_id: str
    step_key: str
    commit: str
    made: datetime


def repeated_publishes(
    instance: DagsterInstance, run: DagsterRun, lake: Lake, branch: str, *, in_session: bool
) -> list[UnseenPublish]:
    """Return what failed runs have published to a branch in steps that a run does again, newest first.

    Without a session, a step that goes on where it failed skips what it has published. In a session, it does not.

    Raises:
        SessionClosed: Whoever launched the run could not know of it, because it was published after Dagster had the
            failed run as failed; or the run is to do the rest of the failed one, and would repeat it.
    """
    plan = plan_of(instance, run)
    planned = set(plan.step_keys_to_execute) if plan else set()
    seen: set[str] = set()
    unseen_steps: dict[str, frozenset[str]] = {}
    """The steps that had succeeded by the time that the run was made, by the failed run and those after it."""
    continued: set[str] = set()
    current, is_rest, since = run, True, None
    for failed in ancestors(instance, run):
        if was_success(instance, failed, before=run):
            break
        seen |= successful_steps(instance, failed, before=run)
        is_rest = is_rest and continues(instance, current, failed)
        current = failed
        if is_rest:
            continued.add(failed.run_id)
        record = instance.get_run_record_by_id(failed.run_id)
        if record is not None and (in_session or not is_rest):
            unseen_steps[failed.run_id] = frozenset(seen)
            since = time_made(record) - CLOCKS_APART
    if since is None:
        return []
    found = []
    for commit in lake.log(branch, first_parent=True, since=since):
        run_id, step_key = commit.metadata.get(RUN, ""), commit.metadata.get(STEP, "")
        if run_id in unseen_steps and step_key not in unseen_steps[run_id] and _is_planned(step_key, planned):
            made = datetime.fromisoformat(commit.metadata["at"])
            found.append(UnseenPublish(run_id, step_key, commit.id, made))
    for each in found:
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
    return found


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


def _is_planned(step_key: str, planned: set[str]) -> bool:
    """Return whether a step is among those of a plan, which has mapped steps that are not known yet as `step[?]`."""
    return step_key in planned or ("[" in step_key and f"{step_key.split('[')[0]}[?]" in planned)


def _is_after_failure(instance: DagsterInstance, publish: UnseenPublish) -> bool:
    """Return whether Dagster had a run as failed before it published. It may have ended again, even as a success."""
    events = instance.all_logs(publish.run_id, of_type=_FAILED_EVENTS)
    return any(event.timestamp < publish.made.timestamp() for event in events)


def _tag(lake: Lake) -> str:
    # A copy of a lake has the same id.
    return WRITES_TAG + sha256(f"{lake.id} {lake.url}".encode()).hexdigest()[:16]
