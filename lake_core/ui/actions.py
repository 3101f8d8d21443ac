"""Acting on sessions, branches and tags: a page that says what will happen, and the form that does it.

Each form names the state that its page showed. If that has moved in the meantime, nothing is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse

from lake_core.lake.errors import Conflict, NothingToApply, UnexpectedHead
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.readable import count_of
from lake_core.ui.commit import changes_of
from lake_core.ui.errors import InvalidRequest, NoSuchPage, ReadOnlyPages, RefusedRequest
from lake_core.ui.home import state_of
from lake_core.ui.merge import STRATEGIES, preview_of, strategy_of
from lake_core.ui.page import Page, url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.responses import Response

    from lake_core.ui.visit import Visit

_MOST_LISTED = 20
"""Datasets and files whose names a sentence lists."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an action will do."""

    title: str
    button: str
    will: list[str]
    """Sentences, in order."""
    fields: Mapping[str, str]
    """What the form sends along."""
    seen: str
    """The state that the page showed, by its ids."""
    back: str
    """Where to go instead."""
    inputs: Mapping[str, tuple[str, str]]
    """Fields to fill in: label and value by name."""
    is_dangerous: bool = False
    problem: str = ""
    """Why it cannot be done; empty if it can."""
    details: Mapping[str, Any] | None = None
    """What differs, as a page of a comparison shows it."""
    differs: str = ""
    """Between what it differs, if that is not what will change."""


def action_page(visit: Visit) -> Page | Response:
    """Show what an action will do; if the form was sent, do it."""
    if not visit.settings.writes:
        raise ReadOnlyPages("these pages only read: start them with `lake ui --write` to act on the lake")
    kind = visit.path["kind"]
    if kind not in _ACTIONS:
        raise NoSuchPage(f"there is no action {kind!r}: there are {', '.join(_ACTIONS)}")
    plan_of, run = _ACTIONS[kind]
    plan = plan_of(visit)
    if not visit.is_order:
        return _shown(kind, plan)
    if visit.form.get("seen", "") != plan.seen:
        raise RefusedRequest("what the page showed has changed in the meantime: nothing was done. Look at it again")
    if plan.problem:
        raise InvalidRequest(plan.problem)
    try:
        return RedirectResponse(run(visit), 303)
    except UnexpectedHead as error:
        raise RefusedRequest(f"{error}. Nothing was done") from None
    except Conflict as error:
        return _shown(kind, plan, status=409, conflict=error)


def _shown(kind: str, plan: Plan, status: int = 200, conflict: Conflict | None = None) -> Page:
    details = {"paths": [], "files": [], "changes": [], "before": "", "after": ""} | dict(plan.details or {})
    return Page("action.html", {"kind": kind, "plan": plan, "conflict": conflict, **details}, None, status)


def _value(visit: Visit, name: str, default: str = "") -> str:
    """Return a value of the form, or of the address if no form was sent."""
    return (visit.form.get(name, default) if visit.is_order else visit.get(name, default)).strip() or default


def _differences(visit: Visit, before: str, after: str) -> Mapping[str, Any]:
    old, new = visit.revision(before), visit.revision(after)
    return changes_of(visit, old, new, 1) | {"before": old.pin, "after": new.pin}


def _needed(visit: Visit, name: str) -> str:
    text = _value(visit, name)
    if not text:
        raise InvalidRequest(f"{name} is missing")
    return text


def _publish_plan(visit: Visit) -> Plan:
    record = visit.refs.session(_needed(visit, "session"))
    state = state_of(visit, record)
    problem = "" if state in (OPEN, FAILED) else f"the session is {state}: it cannot be published"
    head = visit.refs.branch(record.branch)
    will = [
        f"What the session {record.id} holds becomes one commit on {record.branch}, which everybody then reads.",
        f"The session ends. Processes that still write into it (epoch {record.epoch}) are refused from then on.",
    ]
    if head != record.base:
        will.append(
            f"{record.branch} has moved since the session began: what both changed is merged by the rules of each "
            "format. If that conflicts, nothing is published, and the session is kept."
        )
    if record.state == FAILED:
        will.append(
            f"The session has failed: {record.reason or 'no reason is recorded'}. It is published all the same."
        )
    return Plan(
        f"Publish session {record.id}",
        f"Publish on {record.branch}",
        will,
        {"session": record.id},
        f"{record.tree} {record.epoch} {record.state} {head}",
        url(f"/session/{record.id}"),
        {},
        problem=problem,
        details=_differences(visit, record.base, record.id),
    )


def _publish(visit: Visit) -> str:
    tree, epoch, *_ = visit.form["seen"].split()
    session = visit.lake.get_session(_needed(visit, "session"), epoch=int(epoch))
    published = session.publish(expected_tree=tree)
    return url(f"/commit/{published.commit}")


def _abandon_plan(visit: Visit) -> Plan:
    record = visit.refs.session(_needed(visit, "session"))
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
        {},
        is_dangerous=True,
        problem=problem,
        details=_differences(visit, record.base, record.id),
    )


def _abandon(visit: Visit) -> str:
    id = _needed(visit, "session")
    visit.lake.get_session(id).abandon(expected_tree=visit.form["seen"].split()[0])
    return url(f"/session/{id}")


def _merge_plan(visit: Visit) -> Plan:
    ref, into, strategy = _needed(visit, "ref"), _value(visit, "into", "main"), _value(visit, "strategy")
    squash = _value(visit, "squash")
    strategy_of(strategy)
    target, incoming = visit.revision(into), visit.revision(ref)
    will, problem, details, differs = [], "", None, ""
    try:
        preview = preview_of(visit, ref, into, strategy)
        will = [
            f"{count_of(len(preview.datasets), 'dataset')} and {count_of(len(preview.keys), 'file')} of {into} change, "
            f"in one commit{_listed([*preview.datasets, *preview.keys])}.",
            f"{ref} does not change.",
        ]
        if preview.resolved:
            will.append(f"Conflicts are decided, {STRATEGIES[strategy]}: {', '.join(sorted(preview.resolved))}.")
        if squash:
            will.append(f"The commits of {ref} are not listed in the history of {into}.")
        details = _differences(visit, preview.base, incoming.pin)
        differs = f"What {ref} changed since {preview.base[:12]}"
    except (Conflict, NothingToApply) as error:
        problem = str(error)
    return Plan(
        f"Merge {ref} into {into}",
        f"Merge into {into}",
        will,
        {"ref": ref, "into": into, "strategy": strategy, "squash": squash},
        f"{target.commit.id} {incoming.commit.id}",
        url("/merge", ref=ref, into=into, strategy=strategy),
        {"message": ("Message of the commit", f"Merge {ref} into {into}")},
        problem=problem,
        details=details,
        differs=differs,
    )


def _listed(names: Sequence[str]) -> str:
    """Return the first names after a colon; nothing if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ": " + ", ".join(sorted(names)[:_MOST_LISTED]) + more


def _merge(visit: Visit) -> str:
    ref, into = _needed(visit, "ref"), _value(visit, "into", "main")
    target, incoming = visit.form["seen"].split()
    published = visit.lake.merge(
        incoming,
        into=into,
        message=_value(visit, "message") or f"Merge {ref} into {into}",
        strategy=strategy_of(_value(visit, "strategy")),
        squash=bool(_value(visit, "squash")),
        expected_head=target,
    )
    return url(f"/commit/{published.commit}")


def _revert_plan(visit: Visit) -> Plan:
    commit = visit.revision(_needed(visit, "commit")).commit
    branch = _value(visit, "branch", "main")
    head = visit.refs.branch(branch)
    problem = "" if commit.parents else "the first commit of a lake cannot be reverted"
    return Plan(
        f"Revert “{(commit.message or commit.id[:12]).splitlines()[0]}”",
        f"Revert on {branch}",
        [
            f"A new commit on {branch} undoes what commit {commit.id[:12]} changed since its first parent, as below.",
            "Later changes stay. If one of them has read or rewritten what the commit wrote, nothing is done.",
        ],
        {"commit": commit.id, "branch": branch},
        f"{commit.id} {head}",
        url(f"/commit/{commit.id}"),
        {},
        problem=problem,
        details=_differences(visit, commit.parents[0], commit.id) if commit.parents else None,
    )


def _revert(visit: Visit) -> str:
    commit, head = visit.form["seen"].split()
    published = visit.lake.revert(commit, branch=_value(visit, "branch", "main"), expected_head=head)
    return url(f"/commit/{published.commit}")


def _name_plan(visit: Visit, what: str, sentence: str) -> Plan:
    revision = visit.revision(_value(visit, "at", "main"))
    return Plan(
        f"Create a {what} at {revision.commit.id[:12]}",
        f"Create the {what}",
        [f"The {what} names the commit “{(revision.commit.message or '(no message)').splitlines()[0]}”. {sentence}"],
        {"at": revision.commit.id},
        revision.commit.id,
        url(f"/commit/{revision.commit.id}"),
        {"name": ("Name", _value(visit, "name"))},
    )


def _tag_plan(visit: Visit) -> Plan:
    return _name_plan(visit, "tag", "It always will: a tag does not move, and its name is never used again.")


def _tag(visit: Visit) -> str:
    return url(f"/commit/{visit.lake.create_tag(_needed(visit, 'name'), at=_needed(visit, 'at'))}")


def _branch_plan(visit: Visit) -> Plan:
    return _name_plan(visit, "branch", "Nothing is copied, and no other branch changes.")


def _branch(visit: Visit) -> str:
    name = _needed(visit, "name")
    visit.lake.create_branch(name, at=_needed(visit, "at"))
    return url("/history", ref=name)


def _delete_plan(visit: Visit) -> Plan:
    name = _needed(visit, "name")
    head = visit.refs.branch(name)
    main = visit.lake.repository.format.branch
    problem = f"{name} is checked out: it cannot be deleted" if name == main else ""
    return Plan(
        f"Delete branch {name}",
        f"Delete {name}",
        [
            f"The name {name} goes. Commits that no other branch, tag or session reaches are kept for the retention, "
            "and then collected.",
            "Below is what it has and main does not, or otherwise.",
        ],
        {"name": name},
        head,
        url("/history", ref=name),
        {},
        is_dangerous=True,
        problem=problem,
        details=None if problem else _differences(visit, main, name),
    )


def _delete(visit: Visit) -> str:
    name = _needed(visit, "name")
    if not visit.lake.delete_branch(name, at=visit.form.get("seen", "")):
        raise RefusedRequest(f"{name} has moved in the meantime: it was not deleted")
    return "/"


_ACTIONS: Mapping[str, tuple[Callable[[Visit], Plan], Callable[[Visit], str]]] = {
    "publish": (_publish_plan, _publish),
    "abandon": (_abandon_plan, _abandon),
    "merge": (_merge_plan, _merge),
    "revert": (_revert_plan, _revert),
    "tag": (_tag_plan, _tag),
    "branch": (_branch_plan, _branch),
    "delete-branch": (_delete_plan, _delete),
}
