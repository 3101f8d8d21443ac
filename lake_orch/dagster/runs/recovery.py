"""Recovery of sessions whose runs ended without publishing: killed workers, canceled runs, failed publishes.

`settle` updates the record of a finished run's session: it is failed, kept for a while, then expired. `recover`
publishes a session whose steps all succeeded. Neither changes what is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from dagster import DagsterRunStatus, RunsFilter

from lake_core.errors import LakeError
from lake_core.lake.errors import StaleEpoch
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.lineage import will_retry
from lake_orch.dagster.runs.observations import materialized
from lake_orch.dagster.runs.published_state import evaluate_again
from lake_orch.dagster.runs.publishing import publish_session
from lake_orch.dagster.runs.run_session import Gate, RunSession, from_tags, held_gate, is_resumed
from lake_orch.dagster.runs.steps import StepStates
from lake_orch.dagster.runs.unpublished import advice_on, prospects, report_unpublished
from lake_orch.dagster.runs.upstream import made_elsewhere
from lake_orch.errors import NothingToRecover
from lake_orch.tags import SESSION_TAG

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake import Lake
    from lake_core.lake.publish.published import Published
    from lake_core.lake.refs.session_record import SessionRecord

_PAGE = 1000
"""The number of runs in one query."""
_TRIES = 3
"""How often a publish is tried again because others have taken the session over from its run."""


@dataclass(frozen=True, slots=True)
class SessionOutcome:
    """The state of a session after it was settled."""

    session: str
    run: str | None
    """The last run that wrote into it."""
    outcome: Literal["running", "retrying", "failed", "expired", "kept", "elsewhere", "published"]
    """`running`: its run is in progress.

    `retrying`: its run will be retried. `failed`, `expired`: its new state. `kept`: it had failed before. `elsewhere`:
    it has no run in this instance. `published`: somebody has published it in the meantime.
    """
    reason: str = ""
    publishable: bool = False
    """True if all steps succeeded and only the publish failed. Then `recover` can publish the session."""
    held_back: bool = False
    """True if checks prevent publishing."""


def settle(
    instance: DagsterInstance, lake: Lake, *, keep_failed_for: timedelta, gate: Gate = "blocking"
) -> list[SessionOutcome]:
    """Settle every open or failed session: fail those of ended runs, and expire those past their time.

    `gate` is the default for runs whose tags name none.
    """
    return [
        settle_session(instance, lake, record, keep_failed_for=keep_failed_for, gate=gate)
        for record in lake.list_sessions()
    ]


def settle_session(
    instance: DagsterInstance, lake: Lake, record: SessionRecord, *, keep_failed_for: timedelta, gate: Gate = "blocking"
) -> SessionOutcome:
    """Settle one session. `gate` is the default for a run whose tags name none."""
    record = lake.get_session(record.id).record
    runs = runs_of(instance, record.id)
    last = runs[-1] if runs else None
    if record.state not in (OPEN, FAILED):
        return SessionOutcome(record.id, last.run_id if last else None, "expired", record.reason)
    if last is None:
        return SessionOutcome(record.id, None, "elsewhere")
    if is_resumed(record, last):
        # The run that has resumed it may have ended before it could say so in its tags.
        last = instance.get_run_by_id(record.owner) or last
    if not last.is_finished or is_resumed(record, last):
        return SessionOutcome(record.id, last.run_id, "running")
    publishable, held_back = prospects(instance, record.id, last, gate)
    if will_retry(last, has_steps_left=not publishable):
        return SessionOutcome(record.id, last.run_id, "retrying")
    if record.state == FAILED:
        return SessionOutcome(record.id, last.run_id, "kept", record.reason, publishable, held_back)
    reason = f"its run {last.run_id} ended as {last.status.value.lower()} and left it open"
    handle = lake.get_session(record.id, epoch=record.epoch)
    if record.owner == last.run_id and not last.is_success:
        # A worker that is only taken for dead must not publish what its run's page says is not published.
        handle.fence()
    handle.fail(reason, keep=keep_failed_for)
    settled = lake.get_session(record.id).record
    if settled.is_published:
        return SessionOutcome(record.id, last.run_id, "published")
    report_unpublished(instance, last, settled, advice_on(instance, record.id, publishable, held_back))
    evaluate_again(instance, lake, record.id)
    return SessionOutcome(record.id, last.run_id, "failed", reason, publishable, held_back)


def recoverable(instance: DagsterInstance, lake: Lake) -> list[str]:
    """List the unpublished sessions whose steps all succeeded: the publish failed, or its process was killed."""
    return [session for session, obstacle in _obstacles(instance, lake).items() if obstacle is None]


def _obstacles(instance: DagsterInstance, lake: Lake) -> dict[str, str | None]:
    """Return why each unpublished session cannot be recovered; None for one that can."""
    records = (lake.get_session(record.id).record for record in lake.list_sessions())
    return {record.id: _obstacle(instance, record) for record in records}


def recover(
    instance: DagsterInstance,
    lake: Lake,
    session: str,
    *,
    gate: Gate,
    keep_failed_for: timedelta,
    lift_gate: Gate | None = None,
) -> Published:
    """Publish the session of a run whose steps all succeeded. A repeated call has the same result.

    `gate` is the default for a run whose tags name none. `lift_gate` overrides both, to publish in spite of the checks.

    Raises NothingToRecover if steps failed or are running, or if a later run did the same work, and the errors of
    publishing.
    """
    for is_last in (*[False] * _TRIES, True):
        handle = lake.get_session(session)  # a run that resumes it from now on refuses the publish
        obstacle = None if handle.record.is_published else _obstacle(instance, handle.record, asked=True)
        if obstacle is not None:
            raise NothingToRecover(obstacle)
        runs = runs_of(instance, session)
        own_gate = lift_gate or (held_gate(runs[-1].tags, gate) if runs else gate)
        own = RunSession(session, handle.epoch)
        try:
            return publish_session(instance, lake, own, gate=own_gate, keep_failed_for=keep_failed_for)
        except StaleEpoch:
            # A run of the branch, or a sensor, has taken the session over from its own run.
            if is_last:
                raise
    raise AssertionError("the last try returns or raises")


def recover_all(
    instance: DagsterInstance,
    lake: Lake,
    *,
    gate: Gate,
    keep_failed_for: timedelta,
    pass_over: Callable[[str, str], object] = lambda session, obstacle: None,
) -> dict[str, Published | LakeError]:
    """Publish every session that can be published, and return those that cannot with their errors.

    `pass_over` is called with each session that is not to be recovered, and the reason.
    """
    outcome: dict[str, Published | LakeError] = {}
    for session, obstacle in _obstacles(instance, lake).items():
        if obstacle is not None:
            pass_over(session, obstacle)
            continue
        try:
            outcome[session] = recover(instance, lake, session, gate=gate, keep_failed_for=keep_failed_for)
        except LakeError as error:
            outcome[session] = error
    return outcome


def _obstacle(instance: DagsterInstance, record: SessionRecord, *, asked: bool = False) -> str | None:
    """Return the reason not to recover a session, or None. `asked`: whether somebody has named it."""
    session = record.id
    if record.state not in (OPEN, FAILED):
        return f"session {session} has ended ({record.state}): what it held is gone, so start a new run of all steps"
    runs = runs_of(instance, session)
    if not runs:
        return f"session {session} has no run in this Dagster instance: publish it with `lake publish {session}`"
    last = runs[-1]
    if not last.is_finished:
        return f"run {last.run_id} still writes into session {session}: wait for its end"
    is_canceled = last.status is DagsterRunStatus.CANCELED
    if StepStates(instance, session).unfinished():
        why = f"run {last.run_id} was canceled" if is_canceled else f"steps of run {last.run_id} failed"
        return f"{why}: re-execute it from failure, which resumes session {session}"
    if is_canceled and not asked:
        return f"run {last.run_id} was canceled after its last step: name session {session} to publish it nevertheless"
    later = _started_over(instance, runs)
    if later:
        return f"run {later[0].run_id} has repeated the work of session {session}: publishing both would duplicate it"
    for key, run_id in made_elsewhere(instance, materialized(instance, session), {run.run_id for run in runs}):
        return (
            f"run {run_id} has made {key.to_user_string()} again after session {session}: publishing both could "
            f"duplicate rows. If both shall count, publish it with `lake publish {session}`"
        )
    return None


def _started_over(instance: DagsterInstance, runs: Sequence[DagsterRun]) -> Sequence[DagsterRun]:
    """Return the runs that re-executed one of these runs but have another session, or no session."""
    session, ids = runs[0].tags[SESSION_TAG], {run.run_id for run in runs}
    first = instance.get_run_record_by_id(runs[0].run_id)
    # There is no filter by tags, because re-executions through the Python API have none.
    later = RunsFilter(created_after=first.create_timestamp if first else None)
    runs_after: list[DagsterRun] = []
    page = instance.get_runs(later, limit=_PAGE)
    while page:
        runs_after += [
            run
            for run in page
            if run.parent_run_id in ids and ((run_session := from_tags(run)) is None or run_session.id != session)
        ]
        page = instance.get_runs(later, cursor=page[-1].run_id, limit=_PAGE)
    return runs_after
