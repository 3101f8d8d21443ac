"""Publishing of a run's session: the gate, the publish, and the reports in the UI.

The executor, `lake_orch.testing`, recoveries and ops all publish through this module.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dagster import DagsterExecutionInterruptedError, DagsterRunStatus, MetadataValue

from lake_core.lake.errors import Conflict, UnfinishedTasks
from lake_core.readable import listed
from lake_orch._dagster import EngineEventData
from lake_orch.dagster.runs.gate import FailedCheck, failed_checks, runs_of
from lake_orch.dagster.runs.observations import report_published
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.dagster.runs.published_state import evaluate_again
from lake_orch.dagster.runs.run_session import Gate, RunSession
from lake_orch.dagster.runs.steps import StepStates
from lake_orch.errors import GateFailed, StepsLeftOut
from lake_orch.runs.run import publish_standing
from lake_orch.tags import SESSION_TAG
from lake_pipes.metadata import BRANCH, COMMIT

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake import Lake
    from lake_core.lake.publish.published import Published

_LOG = logging.getLogger(__name__)

_REMEDY = "Nothing is published: re-execute all steps, or choose these as well"
_TRIES = 5
"""How often the steps are looked at again because one of them has written in between."""


def check_gate(instance: DagsterInstance, session: str, gate: Gate) -> None:
    """Raise GateFailed if a check prevents publishing a session."""
    failed = failed_checks(instance, session, gate)
    if failed:
        raise GateFailed(_gate_message(session, failed), checks=[str(check) for check in failed])


def check_still_runs(instance: DagsterInstance, run_id: str) -> None:
    """Check that a run that is about to publish has not been ended from outside, by run monitoring or a person.

    Raises DagsterExecutionInterruptedError, for which Dagster leaves the run as it is: it does not call it a success.
    """
    run = instance.get_run_by_id(run_id)
    if run is None or is_ended(run):
        raise DagsterExecutionInterruptedError(f"its run is {run.status.value.lower() if run else 'gone'}")


def is_ended(run: DagsterRun) -> bool:
    """Return whether a run was ended from outside, if its worker still asks that.

    A run whose steps run elsewhere may be called a success before the resources of its last step are torn down.
    """
    return run.status in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED, DagsterRunStatus.CANCELING)


def publish_session(
    instance: DagsterInstance,
    lake: Lake,
    session: RunSession,
    *,
    gate: Gate,
    keep_failed_for: timedelta,
    by: DagsterRun | None = None,
) -> Published:
    """Publish a run's session unless a check prevents it, and report each of its assets.

    What was written by tries at steps that do not count any longer is left out. A repeated call has the same result.

    After a failed gate or a conflict the session is failed. It can be read and resumed for `keep_failed_for`.

    Args:
        instance: The Dagster instance.
        lake: The lake.
        session: The session.
        gate: The checks that must not fail.
        keep_failed_for: How long a failed session is kept.
        by: The run one of whose steps publishes the session, if it is not over yet.

    Raises:
        GateFailed: A check prevents the publish.
        StepsLeftOut: Steps of the session have not succeeded.
        Conflict: Others have published conflicting changes.
        StaleEpoch: Another process has resumed the session.
        SessionClosed: The session was abandoned, or has expired.
        PublishTimeout: Too many others publish at the same time.
    """
    try:
        if not lake.get_session(session.id).record.is_published:
            check_gate(instance, session.id, gate)
        published = _publish_standing(instance, lake, session, by, keep_failed_for)
    except Conflict as error:
        # Another try would fail in the same way, and a re-execution from failure has no step to run.
        remedy = "Nothing was published: re-execute all steps, which then start from what the branch has now"
        raise error.replace(remedy=remedy) from error.__cause__
    except Exception as error:
        lake.get_session(session.id, epoch=session.epoch).fail(str(error), keep=keep_failed_for)
        raise
    try:
        report_published(instance, lake, session, published)
        evaluate_again(instance, lake, session.id)
    except Exception:
        # It is published: an error now would make the run look unpublished. The sensors report the assets later.
        _LOG.warning("session %s is published, but reporting its assets failed", session.id, exc_info=True)
    return published


def _publish_standing(
    instance: DagsterInstance, lake: Lake, session: RunSession, by: DagsterRun | None, keep: timedelta
) -> Published:
    """Publish what the last tries at the steps of a session wrote."""
    left_out: set[str] = set()
    for is_last in (*[False] * _TRIES, True):
        handle = lake.get_session(session.id, epoch=session.epoch)
        if handle.record.is_published:
            return handle.publish()
        states = StepStates(instance, session.id)
        planned = plan_of(instance, by) if by else None
        check_steps(f"session {session.id}", states.left_out(planned.step_keys_to_execute if planned else ()))
        try:
            # A step that succeeded has written all, though the writer of its table does not end its block.
            return publish_standing(handle, states, left_out, half_written="publish", keep=keep)
        except UnfinishedTasks:
            # A step has written in the meantime.
            if is_last:
                raise
        finally:
            _report_left_out(instance, session, {states.name(task) for task in left_out})
            left_out.clear()
    raise AssertionError("the last try returns or raises")


def check_steps(owner: str, steps: Collection[str], *, remedy: str = _REMEDY) -> None:
    """Raise StepsLeftOut if there are steps of a session or run that nobody has done, and nobody is to execute."""
    if steps:
        raise StepsLeftOut(
            f"{owner} has steps that did not succeed, and that this run leaves out: {listed(sorted(steps))}. Dagster "
            "leaves out mapped steps that had not begun, and those that a choice of steps does not name. " + remedy
        )


def _report_left_out(instance: DagsterInstance, session: RunSession, names: Collection[str]) -> None:
    """Report, on the page of the last run of a session, what of it is not published."""
    if not names:
        return
    shown = listed(sorted(names))
    message = f"Left out of session {session.id}, because later tries at the steps did not write it again: {shown}"
    for run in runs_of(instance, session.id)[-1:]:
        instance.report_engine_event(message, run, EngineEventData({SESSION_TAG: session.id}))


def published_metadata(session: RunSession, branch: str, published: Published, *, resumed: bool) -> dict[str, Any]:
    """Describe a publish for the run's log."""
    versions = [f"- `{path}`: version {version}" for path, version in sorted(published.versions.items())]
    metadata: dict[str, Any] = {
        SESSION_TAG: session.id,
        BRANCH: branch,
        COMMIT: published.commit,
        "lake/datasets": len(published.versions),
    }
    if versions:
        metadata["lake/versions"] = MetadataValue.md("\n".join(versions))
    if resumed:
        metadata["lake/resumed"] = True
    if not published.is_checked_out:
        metadata["lake/checked_out"] = False
    return metadata


def _gate_message(session: str, failed: Sequence[FailedCheck]) -> str:
    names = ", ".join(str(check) for check in failed[:10]) + (
        f" and {len(failed) - 10} more" if len(failed) > 10 else ""
    )
    return (
        f"session {session} is not published: {names} failed. Its branch is as before, and the session "
        f"can be read as {session!r}. Correct the data and re-execute the steps of those assets and what follows them. "
        "Or publish it as it is: job lake_recover with the session and another gate"
    )
