"""The session of a lake that a run writes into.

A run opens a new session, unless it continues a failed run. Then it resumes that run's session at a higher epoch, so
that remaining processes of the failed run cannot write. The run's tags name the session, and its steps find it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dagster import RunsFilter

from lake_core.lake.errors import SessionClosed, SessionNotFound
from lake_core.lake.refs.session_record import FAILED, MOST_EXPIRY, OPEN
from lake_orch.dagster.runs.lineage import ancestors, continues, failed_ancestors, planned_steps
from lake_orch.dagster.runs.single_publishes import (
    ENDED_UNSUCCESSFULLY,
    check_not_revived,
    fence_failed,
    repeated_publishes,
    warning_of_repeats,
)
from lake_orch.dagster.runs.title import title_of
from lake_orch.errors import InvalidDefinition, SessionLost
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
    from lake_orch.dagster.runs.lineage import FailedAncestor
    from lake_orch.dagster.runs.single_publishes import UnseenPublish

PublishScope: TypeAlias = Literal["asset", "run"]
Gate: TypeAlias = Literal["blocking", "error", "none"]
Publisher: TypeAlias = Literal["executor", "testing", "op", "teardown"]

GATES: tuple[Gate, ...] = ("blocking", "error", "none")

EXPIRY = MOST_EXPIRY
"""How long a session lives without a write into it: a step may work for days before it writes.

Sessions of runs that have ended are failed, and kept for as long as the resource says, by the executor, a sensor or the
reaper.
"""


@dataclass(frozen=True, slots=True)
class RunSession:
    """The session of a run, at the epoch of the run."""

    id: str
    epoch: int
    resumed: bool = False
    """True if a failed run opened it."""

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of the run that name the session."""
        return {SESSION_TAG: self.id, EPOCH_TAG: str(self.epoch)}


def session_of(instance: DagsterInstance, run_id: str) -> RunSession | None:
    """Return the session of a run by its current tags. The tags that a step was started with may be older."""
    run = instance.get_run_by_id(run_id)
    return None if run is None else from_tags(run)


def from_tags(run: DagsterRun) -> RunSession | None:
    """Return the session in a run's tags, unless Dagster copied them from the run that it re-executes."""
    tags = run.tags
    id, epoch, owner = tags.get(SESSION_TAG), tags.get(EPOCH_TAG, ""), tags.get(OWNER_TAG)
    # Tags that are set before the run has an id cannot name the run.
    is_own_tag = owner == run.run_id or (owner is None and run.parent_run_id is None)
    return RunSession(id, int(epoch)) if is_own_tag and id and epoch.isdecimal() else None


def gate_of(tags: Mapping[str, str], default: Gate) -> Gate:
    """Return the gate of a run with these tags. Raises InvalidDefinition for an invalid tag."""
    return gate_named(tags.get(GATE_TAG, tags.get(JOB_GATE_TAG, default)))


def gate_named(name: str) -> Gate:
    """Return the gate of this name. Raises InvalidDefinition for any other."""
    for gate in GATES:
        if name == gate:
            return gate
    raise InvalidDefinition(f"tag {GATE_TAG} is {name!r}: use 'blocking', 'error' or 'none'")


def scope_of(tags: Mapping[str, str], default: PublishScope) -> PublishScope:
    """Return the scope of a run with these tags. Raises InvalidDefinition for an invalid tag."""
    name = tags.get(SCOPE_TAG, tags.get(JOB_SCOPE_TAG, default))
    if name == "run":
        return "run"
    if name == "asset":
        return "asset"
    raise InvalidDefinition(f"tag {SCOPE_TAG} is {name!r}: use 'run' or 'asset'")


def held_gate(tags: Mapping[str, str], default: Gate) -> Gate:
    """Return the gate that the session of a run with these tags must pass, for every publisher.

    Raises InvalidDefinition.
    """
    return gate_named(tags.get(GATE_TAG, tags.get(HELD_GATE_TAG, tags.get(JOB_GATE_TAG, default))))


def session_id(run_id: str) -> str:
    """Return the id of the session that a run opens."""
    return f"run-{run_id}"


def open_run_session(
    instance: DagsterInstance,
    run: DagsterRun,
    lake: Lake,
    *,
    branch: str,
    root: str,
    publisher: Publisher,
    gate: Gate,
    continued: str | None = None,
) -> RunSession:
    """Open the session of a run, or resume the one that it continues, and add it to the run's tags.

    `continued` is the session that it goes on in if it re-executes no other run. A session that other processes of the
    same run opened is joined at its epoch. Raises SessionLost if the run leaves out steps whose work was in a session
    that no longer exists, SessionClosed for a run that was published already, or that repeats all of one that was
    published before it failed, RefNotFound for a branch that does not exist, StaleEpoch for a run that failed before it
    began.
    """
    run_session = from_tags(_stored(instance, run))
    if run_session is None:
        check_not_revived(instance, run)
    inherited = None if run_session else inherited_session(instance, run, lake, root) or continued
    if run_session is None and inherited is None:
        fence_ended_runs(instance, lake, branch)
        if repeated := check_repeats(instance, run, lake, root, branch, in_session=True):
            instance.report_engine_event(warning_of_repeats(repeated), run)
    id = run_session.id if run_session else inherited or session_id(run.run_id)
    record = find_record(lake, id)
    handle = lake.open_session(
        branch if record is None else record.branch,
        id=id,
        expires_in=EXPIRY,
        message=title_of(run) if record is None else "",
        metadata={RUN: run.run_id} if record is None else {},
        owner=run.run_id,
    )
    opened = RunSession(handle.id, handle.epoch, resumed=record is not None)
    instance.add_run_tags(
        run.run_id,
        {**opened.tags, OWNER_TAG: run.run_id, PUBLISHER_TAG: publisher, ROOT_TAG: root, HELD_GATE_TAG: gate},
    )
    return opened


def is_in_lake(run: DagsterRun, session: RunSession, lake: Lake | None, root: str) -> bool:
    """Return whether the session of a run is one of a lake. One that is lost is looked for where the run opened it."""
    if lake is not None and find_record(lake, session.id) is not None:
        return True
    opened_in = run.tags.get(ROOT_TAG)
    return lake is not None and (opened_in is None or opened_in.rstrip("/") == root.rstrip("/"))


def inherited_session(instance: DagsterInstance, run: DagsterRun, lake: Lake, root: str) -> str | None:
    """Return the session of the run that this one continues, unless it is published, or in another lake.

    Raises SessionLost, and SessionClosed if another run continued the session and published it.
    """
    parent = _carried_on(instance, run)
    parent_session = from_tags(parent) if parent is not None else None
    if parent is None or parent_session is None or not is_in_lake(parent, parent_session, lake, root):
        return None
    record = find_record(lake, parent_session.id)
    if record is not None and record.state in (OPEN, FAILED):
        return parent_session.id
    if record is not None and record.is_published and is_resumed(record, parent):
        raise SessionClosed(
            f"run {run.run_id} continues run {parent.run_id}, but another run has continued it and published session "
            f"{parent_session.id}: repeating it would duplicate the data. To repeat it nevertheless, start a new run, "
            "or re-execute that other one",
            state=record.state,
        )
    if record is not None and (record.is_published or not record.batches):
        return None
    reason = "no longer exists" if record is None else f"has ended ({record.state})"
    raise SessionLost(
        f"run {run.run_id} continues run {parent.run_id} and leaves out its successful steps, "
        f"but their work was in session {parent_session.id}, which {reason}: start a new run of all steps"
    )


def check_repeats(
    instance: DagsterInstance, run: DagsterRun, lake: Lake, root: str, branch: str, *, in_session: bool
) -> list[UnseenPublish]:
    """Check that a run repeats nothing that a failed run has published unseen: its worker was killed, perhaps.

    Whoever asks for steps of a failed run, be it a person or a retry strategy, takes it for one that has published
    nothing. A run that does the rest of one that was refused for this is refused as well.

    Return what it repeats that its page showed: the publishes of steps which then failed.

    Raises SessionClosed.
    """
    failed = failed_ancestors(instance, run)
    _check_not_published(instance, run, failed, lake, root, branch)
    return repeated_publishes(instance, run, failed, lake, branch, in_session=in_session)


def _check_not_published(
    instance: DagsterInstance, run: DagsterRun, failed: Sequence[FailedAncestor], lake: Lake, root: str, branch: str
) -> None:
    """Check that a run repeats no session of a failed run that is published on the branch. Raises SessionClosed."""
    planned, is_rest = planned_steps(instance, run), True
    for ancestor in failed:
        parent = ancestor.run
        is_rest = is_rest and ancestor.is_continued and planned.isdisjoint(ancestor.succeeded)
        session = from_tags(parent)
        if is_rest or session is None or not is_in_lake(parent, session, lake, root):
            continue
        # Its worker may only be taken for dead, and be about to publish.
        record = _fenced(lake, parent, session)
        if record is not None and record.is_published and record.branch == branch:
            raise SessionClosed(
                f"run {run.run_id} repeats steps of run {parent.run_id}, which has failed, but session {session.id} of "
                "it is published: appended rows would be there twice. Re-execute it from failure, which skips what was "
                "published. To repeat it nevertheless, launch a new run",
                state=record.state,
            )


def is_resumed(record: SessionRecord, run: DagsterRun) -> bool:
    """Return whether another run has resumed the session of a run."""
    session = from_tags(run)
    return session is not None and record.epoch > session.epoch and record.owner != run.run_id


def fence_ended_runs(instance: DagsterInstance, lake: Lake, branch: str) -> None:
    """Keep the workers of failed runs from publishing on a branch.

    Dagster marks a run failed whose worker does not answer. What it has written may be written again, by a run that
    nobody told of it. So the worker must not publish when it goes on.
    """
    fence_failed(instance, lake)
    open_here = (record for record in lake.list_sessions() if record.state == OPEN and record.branch == branch)
    owners = sorted({record.owner for record in open_here if record.owner})
    for run in instance.get_runs(RunsFilter(run_ids=owners, statuses=list(ENDED_UNSUCCESSFULLY))) if owners else ():
        session = from_tags(run)
        if session is not None:
            _fenced(lake, run, session)


def _fenced(lake: Lake, run: DagsterRun, session: RunSession) -> SessionRecord | None:
    """Return the record of the session of a run. Of a failed run, no process publishes the session later."""
    record = find_record(lake, session.id)
    if record is None or record.state != OPEN or record.epoch > session.epoch or record.owner != run.run_id:
        return record
    if run.status not in ENDED_UNSUCCESSFULLY:
        return record
    lake.get_session(session.id, epoch=session.epoch).fence()
    return find_record(lake, session.id)


def publisher_of_parent(instance: DagsterInstance, run: DagsterRun) -> Publisher:
    """Return the publisher of a session without an executor: an op of the job if it was one in the parent run."""
    parent = _carried_on(instance, run)
    return "op" if parent is not None and parent.tags.get(PUBLISHER_TAG) == "op" else "teardown"


def _carried_on(instance: DagsterInstance, run: DagsterRun) -> DagsterRun | None:
    """Return the nearest ancestor with a session, whose session this run continues, or None."""
    current = run
    for parent in ancestors(instance, run):
        if not continues(instance, current, parent):
            return None
        if from_tags(parent) is not None:
            return parent
        current = parent
    return None


def _stored(instance: DagsterInstance, run: DagsterRun) -> DagsterRun:
    """Return the run with its current tags."""
    return instance.get_run_by_id(run.run_id) or run


def is_published(lake: Lake | None, run: DagsterRun) -> bool:
    """Return whether what a run wrote is published. Without a session, each step publishes by itself."""
    session = from_tags(run)
    if session is None:
        return True
    record = None if lake is None else find_record(lake, session.id)
    return record is not None and record.is_published


def find_record(lake: Lake, id: str) -> SessionRecord | None:
    """Return the record of a session, or None if the lake does not know it any longer."""
    try:
        return lake.get_session(id).record
    except SessionNotFound:
        return None
