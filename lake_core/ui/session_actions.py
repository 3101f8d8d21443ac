"""Publishing, abandoning and forking a session."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.lake.errors import Conflict, RefExists
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.lake.session.tasks import unfinished_parts
from lake_core.readable import count_of, listed
from lake_core.ui.action_plan import Plan, differences, needed, outlook_of, value
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.home import state_of
from lake_core.ui.page import url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.lake.refs.session_record import SessionRecord
    from lake_core.ui.visit import Visit

_LEAVE_OUT = "without/"
"""The beginning of the fields that name what a fork leaves out."""
_MOST_CHOICES = 200


def publish_plan(visit: Visit) -> Plan:
    """Say what a publish would do, by the lake's own preview."""
    record = visit.refs.session(needed(visit, "session"))
    problem = _ended(visit, record, "published")
    head = visit.refs.branch(record.branch)
    outlook = outlook_of(lambda: visit.lake.get_session(record.id).preview_publish())
    commits = f"What the session {record.id} holds becomes one commit on {record.branch}, which everybody then reads."
    will = [
        *(() if outlook.changes_nothing else (commits,)),
        *outlook.sentences(record.branch),
        f"The session ends. Processes that still write into it (epoch {record.epoch}) are refused from then on.",
    ]
    if head != record.base:
        will.append(f"{record.branch} has moved since the session began: what both changed is merged by their formats.")
    if record.state == FAILED:
        will.append(
            f"The session has failed: {record.reason or 'no reason is recorded'}. It is published all the same."
        )
    unfinished = sorted({task for task, _ in unfinished_parts(visit.refs.batches(record))})
    if unfinished:
        will.append(f"No end is recorded of {listed(unfinished)}: what was written so far is published all the same.")
    preview = outlook.preview
    if preview is not None and preview.undone:
        will.append(
            f"Before it, {count_of(len(preview.undone), 'compaction')} that conflicts is undone: no row is lost."
        )
    return Plan(
        f"Publish session {record.id}",
        f"Publish on {record.branch}",
        will,
        {"session": record.id},
        f"{record.tree} {record.epoch} {record.state} {head if preview is None else preview.commit}",
        url(f"/session/{record.id}"),
        problem=problem or outlook.problem,
        preview=preview,
        branch=record.branch,
        refusal=outlook.refusal,
        sides=(record.branch, record.id),
        details=differences(visit, record.base, record.id),
        differs="What the session changed since it began",
    )


def publish(visit: Visit) -> str:
    """Publish what the page showed, on the head that it showed."""
    tree, epoch, _, head = visit.form["seen"].split()
    session = visit.lake.get_session(needed(visit, "session"), epoch=int(epoch))
    published = session.publish(expected_tree=tree, expected_head=head)
    return url(f"/commit/{published.commit}")


def abandon_plan(visit: Visit) -> Plan:
    """Say what is lost."""
    record = visit.refs.session(needed(visit, "session"))
    problem = "" if record.state in (OPEN, FAILED) else f"the session is {record.state}: it has ended already"
    will = [
        f"The session {record.id} ends, and what it holds is discarded for good.",
        f"{record.branch} does not change. Processes that still write into the session are refused.",
    ]
    return Plan(
        f"Abandon session {record.id}",
        "Abandon it",
        will,
        {"session": record.id},
        f"{record.tree} {record.epoch} {record.state}",
        url(f"/session/{record.id}"),
        is_dangerous=True,
        problem=problem,
        details=differences(visit, record.base, record.id),
        differs="What would be discarded",
    )


def abandon(visit: Visit) -> str:
    """Abandon the session with the content that the page showed."""
    id = needed(visit, "session")
    visit.lake.get_session(id).abandon(expected_tree=visit.form["seen"].split()[0])
    return url(f"/session/{id}")


def fork_plan(visit: Visit) -> Plan:
    """Say what the new session begins with, and choose what conflicts to be left out."""
    record = visit.refs.session(needed(visit, "session"))
    problem = _ended(visit, record, "forked")
    refusal = None if problem else outlook_of(lambda: visit.lake.get_session(record.id).preview_publish()).refusal
    conflict = refusal if isinstance(refusal, Conflict) else None
    held = differences(visit, record.base, record.id)
    names = _held(held)
    will = [
        f"A new session for {record.branch} begins with what the session {record.id} holds, without what is chosen "
        "below. It is open for 24 hours.",
        f"The session {record.id} stays as it is, and can still be published or abandoned.",
    ]
    if len(names) > _MOST_CHOICES:
        will.append(
            f"Only the first {_MOST_CHOICES} of {len(names):,} can be chosen here: `lake session fork` takes all."
        )
    if conflict is not None:
        will.append(
            f"As it is, the session cannot be published on {record.branch}. What conflicts is chosen to be left out."
        )
    new = value(visit, "new") or f"s-{runtime.uuid4().hex}"  # so that a form that is sent twice forks once
    return Plan(
        f"Fork session {record.id}",
        "Open the new session",
        will,
        {"session": record.id, "new": new},
        record.tree,
        url(f"/session/{record.id}"),
        choices=[(name, conflict is not None and name in conflict.kinds) for name in names[:_MOST_CHOICES]],
        choose="Leave out",
        problem=problem,
        sides=(record.branch, record.id),
        details=held,
        differs="What the session changed since it began",
    )


def fork(visit: Visit) -> str:
    """Fork the session with the content that the page showed."""
    id, tree = needed(visit, "session"), visit.form["seen"]
    without = [name.removeprefix(_LEAVE_OUT) for name in visit.form if name.startswith(_LEAVE_OUT)]
    record = visit.refs.session(id)
    unknown = set(without).difference(_held(differences(visit, record.base, id)))
    if unknown:
        raise InvalidRequest(f"the session has not changed {min(unknown)!r}: it cannot be left out")
    new = needed(visit, "new")
    with suppress(RefExists):  # the form was sent before
        visit.lake.get_session(id).fork(without=without, expected_tree=tree, id=new)
    return url(f"/session/{new}")


def _held(changes: Mapping[str, object]) -> Sequence[str]:
    paths, files = changes["paths"], changes["files"]
    assert isinstance(paths, list | tuple)
    assert isinstance(files, list | tuple)
    return [*paths, *(file.key for file in files)]


def _ended(visit: Visit, record: SessionRecord, what: str) -> str:
    """Return why a session cannot be acted on; empty if it can."""
    state = state_of(visit, record)
    return "" if state in (OPEN, FAILED) else f"the session is {state}: it cannot be {what}"
