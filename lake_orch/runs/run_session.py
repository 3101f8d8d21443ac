"""Which session of a lake a run writes into.

A run opens a session of its own, unless it carries on what a failed run began: then it resumes that run's session, whose epoch rises, so
that whatever is left of the failed run can write no more. The session stands in the run's tags, where its steps find it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from lake_core.lake.errors import SessionClosed, SessionNotFound
from lake_core.lake.refs.session_record import FAILED, MOST_EXPIRY, OPEN, PUBLISHED
from lake_orch.errors import InvalidDefinition, SessionLost
from lake_orch.runs.lineage import MAX_ANCESTORS, continues
from lake_orch.tags import (
    EPOCH_TAG,
    GATE_TAG,
    HELD_GATE_TAG,
    JOB_GATE_TAG,
    JOB_SCOPE_TAG,
    OWNER_TAG,
    PUBLISHER_TAG,
    ROOT_TAG,
    RUN,
    SCOPE_TAG,
    SESSION_TAG,
)

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

    from lake_core.lake import Lake
    from lake_core.lake.refs.session_record import SessionRecord

PublishScope: TypeAlias = Literal["asset", "run"]
Gate: TypeAlias = Literal["blocking", "error", "none"]
Publisher: TypeAlias = Literal["executor", "testing", "op", "teardown"]

GATES: tuple[Gate, ...] = ("blocking", "error", "none")

BACKFILL_TAG = "dagster/backfill"

EXPIRY = MOST_EXPIRY
"""How long a session lives without a write into it: a step may work for days before it writes. Sessions of runs that have ended are failed,
and kept for as long as the resource says, by the executor, a sensor or the reaper.
"""


@dataclass(frozen=True, slots=True)
class RunSession:
    """A run's share of a session."""

    id: str
    epoch: int
    resumed: bool = False
    """Whether it was begun by a run that failed."""

    @property
    def tags(self) -> dict[str, str]:
        """Its form on the run."""
        return {SESSION_TAG: self.id, EPOCH_TAG: str(self.epoch)}


def session_of(instance: DagsterInstance, run_id: str) -> RunSession | None:
    """Find the session of a run, by its tags as they are now: what a step was started with may be older than they are."""
    run = instance.get_run_by_id(run_id)
    return None if run is None else from_tags(run)


def from_tags(run: DagsterRun) -> RunSession | None:
    """Read the session that a run's tags name, if they are its own and not copied from the run that it re-executes."""
    tags = run.tags
    id, epoch, owner = tags.get(SESSION_TAG), tags.get(EPOCH_TAG, ""), tags.get(OWNER_TAG)
    # Who gives a run its tags before it has an id cannot name it.
    is_own_tag = owner == run.run_id or (owner is None and run.parent_run_id is None)
    return RunSession(id, int(epoch)) if is_own_tag and id and epoch.isdecimal() else None


def gate_of(tags: Mapping[str, str], default: Gate) -> Gate:
    """Return which checks gate a run with these tags. Raises InvalidDefinition for a tag that names no gate."""
    return gate_named(tags.get(GATE_TAG, tags.get(JOB_GATE_TAG, default)))


def gate_named(name: str) -> Gate:
    """Return the gate of this name. Raises InvalidDefinition for any other."""
    for gate in GATES:
        if name == gate:
            return gate
    raise InvalidDefinition(f"tag {GATE_TAG} is {name!r}: use 'blocking', 'error' or 'none'")


def scope_of(tags: Mapping[str, str], default: PublishScope) -> PublishScope:
    """Return what a run with these tags publishes together. Raises InvalidDefinition for a tag that names no scope."""
    name = tags.get(SCOPE_TAG, tags.get(JOB_SCOPE_TAG, default))
    if name == "run":
        return "run"
    if name == "asset":
        return "asset"
    raise InvalidDefinition(f"tag {SCOPE_TAG} is {name!r}: use 'run' or 'asset'")


def held_gate(tags: Mapping[str, str], default: Gate) -> Gate:
    """Return the gate that the session of a run with these tags is to pass, whoever publishes it. Raises InvalidDefinition."""
    return gate_named(tags.get(GATE_TAG, tags.get(HELD_GATE_TAG, tags.get(JOB_GATE_TAG, default))))


def session_id(run_id: str) -> str:
    """Return the id of the session that a run opens."""
    return f"run-{run_id}"


def backfill_branch(backfill: str) -> str:
    """Return the branch on which the runs of a backfill gather."""
    return f"backfill-{backfill}"


def open_run_session(
    instance: DagsterInstance, run: DagsterRun, lake: Lake, *, branch: str, root: str, publisher: Publisher, gate: Gate, resume: bool = True
) -> RunSession:
    """Open the session of a run, or resume the one that it carries on, and note it in the run's tags.

    Raises SessionLost where the run leaves out steps whose work was in a session that is gone, SessionClosed for a run whose session was
    published already, RefNotFound for a branch that does not exist. Without `resume`, a session that other steps of this very run
    opened is joined as it is.
    """
    run_session = from_tags(_stored(instance, run))
    inherited = None if run_session else inherited_session(instance, run, lake)
    id = run_session.id if run_session else inherited or session_id(run.run_id)
    record = _record(lake, id)
    handle = lake.open_session(
        branch if record is None else record.branch,
        id=id,
        expires_in=EXPIRY,
        message=f"{run.job_name} (run {run.run_id})" if record is None else "",
        metadata={RUN: run.run_id} if record is None else {},
        resume=resume,
    )
    opened = RunSession(handle.id, handle.epoch, resumed=record is not None)
    instance.add_run_tags(run.run_id, {**opened.tags, OWNER_TAG: run.run_id, PUBLISHER_TAG: publisher, ROOT_TAG: root, HELD_GATE_TAG: gate})
    return opened


def inherited_session(instance: DagsterInstance, run: DagsterRun, lake: Lake) -> str | None:
    """Return the session of the run that this one carries on, as long as it is not published.

    Raises SessionLost, and SessionClosed where another run has carried it on and published it: what is left to do was done there.
    """
    parent = _carried_on(instance, run)
    parent_session = from_tags(parent) if parent is not None else None
    if parent is None or parent_session is None:
        return None
    record = _record(lake, parent_session.id)
    if record is not None and record.state in (OPEN, FAILED):
        return parent_session.id
    if record is not None and record.state == PUBLISHED and record.epoch > parent_session.epoch:
        raise SessionClosed(
            f"run {run.run_id} carries on run {parent.run_id}, but another run has done that and published session {parent_session.id}: "
            f"doing it again would double it. To do so nevertheless, start a new run, or re-execute that other one",
            state=record.state,
        )
    if record is not None and (record.state == PUBLISHED or not record.batches):
        return None
    reason = "is no longer on record" if record is None else f"has ended ({record.state})"
    raise SessionLost(
        f"run {run.run_id} carries on run {parent.run_id} and leaves out its successful steps, but their work was in session "
        f"{parent_session.id}, which {reason}: start a new run of all steps"
    )


def publisher_of_parent(instance: DagsterInstance, run: DagsterRun) -> Publisher:
    """Return who publishes a session without an executor: an op of the job, if one did so in the run that this one carries on."""
    parent = _carried_on(instance, run)
    return "op" if parent is not None and parent.tags.get(PUBLISHER_TAG) == "op" else "teardown"


def _carried_on(instance: DagsterInstance, run: DagsterRun) -> DagsterRun | None:
    """Find the run with a session that this one carries on: its parent, or what that carried on without ever getting to a session."""
    current = run
    for _ in range(MAX_ANCESTORS):
        parent = instance.get_run_by_id(current.parent_run_id) if current.parent_run_id else None
        if parent is None or not continues(instance, current, parent):
            return None
        if from_tags(parent) is not None:
            return parent
        current = parent
    return None


def _stored(instance: DagsterInstance, run: DagsterRun) -> DagsterRun:
    """Return the run with its tags as they are now."""
    return instance.get_run_by_id(run.run_id) or run


def _record(lake: Lake, id: str) -> SessionRecord | None:
    try:
        return lake.get_session(id).record
    except SessionNotFound:
        return None
