"""The report of an unpublished session on a failed run's page. It says how to read, continue or publish the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster import DagsterExecutionInterruptedError, DagsterRunStatus, MetadataValue

from lake_core.lake.errors import Conflict
from lake_core.lake.refs.session_record import FAILED
from lake_orch._dagster import EngineEventData
from lake_orch.dagster.runs.gate import failed_checks
from lake_orch.dagster.runs.run_session import Gate, held_gate
from lake_orch.dagster.runs.steps import StepStates
from lake_orch.errors import GateFailed, StepsLeftOut
from lake_orch.tags import SESSION_TAG
from lake_pipes.metadata import BRANCH

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake.refs.session_record import SessionRecord

RESUME = "correct the cause and re-execute this run from failure, which resumes the session"
START_OVER = "re-execute all steps, which then start from what the branch has now"
CORRECT_DATA = (
    "correct the data, then re-execute the steps that wrote the checked assets and all steps after them. "
    "'From failure' alone does not help if the check is a step of its own, which would read the same rows again"
)
PASS_GATE = f"{CORRECT_DATA}. To publish the data as it is, run the job lake_recover with the session and another gate"
RECOVER = "every step succeeded, so run the job lake_recover to publish the session"
PUBLISH = "every step succeeded, so run the job lake_recover with the session to publish it, or re-execute all steps"


def advice_after(error: BaseException | None, *, checks_failed: bool = False) -> str:
    """Return advice after a publish that raised an error, or after failed steps or checks."""
    if isinstance(error, GateFailed):
        return PASS_GATE
    if isinstance(error, Conflict | StepsLeftOut):
        return START_OVER
    if isinstance(error, DagsterExecutionInterruptedError):
        return PUBLISH
    if error is not None:
        return RECOVER
    return CORRECT_DATA if checks_failed else RESUME


def prospects(instance: DagsterInstance, session: str, last: DagsterRun, gate: Gate) -> tuple[bool, bool]:
    """Return whether the session of an ended run can be published as it is, and whether checks alone prevent it.

    Args:
        instance: The Dagster instance.
        session: The session.
        last: The last run that wrote into it.
        gate: The default for a run whose tags name none.
    """
    publishable = last.status is not DagsterRunStatus.CANCELED and not StepStates(instance, session).unfinished()
    return publishable, publishable and bool(failed_checks(instance, session, held_gate(last.tags, gate)))


def advice_on(instance: DagsterInstance, session: str, publishable: bool, held_back: bool) -> str:
    """Return advice about a session by its `prospects`, for which no error of its publish is known."""
    if publishable:
        return PASS_GATE if held_back else RECOVER
    if not StepStates(instance, session).unfinished():
        return PUBLISH
    return CORRECT_DATA if failed_checks(instance, session, "blocking") else RESUME


def unpublished_message(record: SessionRecord, advice: str) -> str | None:
    """Return the report of a failed session, or None for a session in another state."""
    if record.state != FAILED:
        return None
    id, branch = record.id, record.branch
    return (
        f"Nothing of this run is published: branch {branch} is unchanged. "
        f"Session {id} is kept until {record.expires:%Y-%m-%d %H:%M} UTC: read it with lake.at('{id}'), "
        f"or compare it with `lake diff {branch} {id}`. To go on, {advice}."
    )


def unpublished_metadata(record: SessionRecord) -> dict[str, Any]:
    """Return metadata with the session, its branch, its expiry, and the reason of the failure."""
    metadata: dict[str, Any] = {
        SESSION_TAG: record.id,
        BRANCH: record.branch,
        "lake/kept_until": MetadataValue.timestamp(record.expires),
    }
    return metadata | ({"lake/reason": record.reason} if record.reason else {})


def report_unpublished(instance: DagsterInstance, run: DagsterRun, record: SessionRecord, advice: str) -> None:
    """Report the unpublished session on the page of a run that has ended without a report."""
    message = unpublished_message(record, advice)
    if message is not None:
        instance.report_engine_event(message, run, EngineEventData(unpublished_metadata(record)))
