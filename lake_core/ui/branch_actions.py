"""Merging a ref into a branch, and undoing or picking a commit there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.ui.action_plan import Plan, commit_at, differences, needed, outlook_of, value
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.merge import STRATEGIES, preview_of, strategy_of, what_a_strategy_loses
from lake_core.ui.page import title_of, url
from lake_core.ui.settings import without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.graveler import Commit
    from lake_core.ui.visit import Visit


def merge_plan(visit: Visit) -> Plan:
    """Say what the merge would do, by the lake's own preview."""
    ref, into, strategy = needed(visit, "ref"), value(visit, "into", "main"), value(visit, "strategy")
    squash = value(visit, "squash")
    strategy_of(strategy)
    target, incoming = commit_at(visit, "into", "main"), commit_at(visit, "ref")
    outlook = outlook_of(lambda: preview_of(visit, ref, into, strategy))
    preview = outlook.preview
    will = [*outlook.sentences(into), f"{ref} does not change."]
    if preview is not None and preview.resolved:
        will.append(f"Conflicts are decided, {STRATEGIES[strategy]}: {', '.join(sorted(preview.resolved))}.")
        will.append(what_a_strategy_loses(ref, into, strategy))
    if squash:
        will.append(f"The commits of {ref} are not listed in the history of {into}.")
    return Plan(
        f"Merge {ref} into {into}",
        f"Merge into {into}",
        will,
        {"ref": ref, "into": into, "strategy": strategy, "squash": squash},
        f"{target.commit.id} {incoming.commit.id}",
        url("/merge", ref=ref, into=into, strategy=strategy),
        {"message": ("Message of the commit", f"Merge {ref} into {into}")},
        problem=outlook.problem,
        preview=preview,
        branch=into,
        refusal=outlook.refusal,
        sides=(target.commit.id, incoming.commit.id),
        details=None if preview is None else differences(visit, preview.base, incoming.pin),
        differs="" if preview is None else f"What {ref} changed since {preview.base[:12]}",
    )


def merge(visit: Visit) -> str:
    """Merge the commit that the page showed, into the head that it showed."""
    ref, into = needed(visit, "ref"), value(visit, "into", "main")
    target, incoming = visit.form["seen"].split()
    published = visit.lake.merge(
        incoming,
        into=into,
        message=value(visit, "message") or f"Merge {ref} into {into}",
        strategy=strategy_of(value(visit, "strategy")),
        squash=bool(value(visit, "squash")),
        expected_head=target,
    )
    return url(f"/commit/{published.commit}")


def revert_plan(visit: Visit) -> Plan:
    """Say what the revert would undo, by the lake's own preview."""
    commit, branch = commit_at(visit, "commit").commit, value(visit, "branch", "main")
    parent = _parent(visit, commit)
    head = visit.refs.branch(branch)
    outlook = outlook_of(lambda: visit.lake.preview_revert(commit.id, branch=branch, parent=parent))
    preview = outlook.preview
    return Plan(
        f"Revert “{title_of(commit.message)}”",
        f"Revert on {branch}",
        [
            f"A new commit on {branch} undoes what commit {commit.id[:12]} changed since its {_which(commit, parent)}.",
            *outlook.sentences(branch),
            "Later changes stay.",
        ],
        {"commit": commit.id, "branch": branch, "parent": str(parent)},
        f"{commit.id} {head if preview is None else preview.commit}",
        url(f"/commit/{commit.id}"),
        {"message": ("Message of the commit", _revert_message(commit))},
        looks={"branch": ("On the branch", branch), **_parent_look(commit, parent)},
        problem=outlook.problem,
        preview=preview,
        branch=branch,
        refusal=outlook.refusal,
        sides=(commit.id, head),
        details=_changed(visit, commit, parent),
        differs=f"What the commit changed since its {_which(commit, parent)}",
    )


def revert(visit: Visit) -> str:
    """Revert the commit on the head that the page showed."""
    commit, head = visit.form["seen"].split()
    offered = _revert_message(visit.refs.commit(commit))
    published = visit.lake.revert(
        commit,
        branch=value(visit, "branch", "main"),
        parent=int(value(visit, "parent", "1")),
        message=_changed_message(visit, offered),
        expected_head=head,
    )
    return url(f"/commit/{published.commit}")


def cherry_pick_plan(visit: Visit) -> Plan:
    """Say what the commit would bring, by the lake's own preview."""
    commit, onto = commit_at(visit, "commit").commit, value(visit, "onto", "main")
    parent = _parent(visit, commit)
    head = visit.refs.branch(onto)
    outlook = outlook_of(lambda: visit.lake.preview_cherry_pick(commit.id, onto=onto, parent=parent))
    preview = outlook.preview
    return Plan(
        f"Cherry-pick “{title_of(commit.message)}” onto {onto}",
        f"Apply it to {onto}",
        [
            f"A new commit on {onto} brings what commit {commit.id[:12]} changed since its {_which(commit, parent)}.",
            *outlook.sentences(onto),
            "A later merge of its branch brings the rest.",
        ],
        {"commit": commit.id, "onto": onto, "parent": str(parent)},
        f"{commit.id} {head if preview is None else preview.commit}",
        url(f"/commit/{commit.id}"),
        {"message": ("Message of the commit", _pick_message(commit))},
        looks={"onto": ("Onto the branch", onto), **_parent_look(commit, parent)},
        problem=outlook.problem,
        preview=preview,
        branch=onto,
        refusal=outlook.refusal,
        sides=(head, commit.id),
        details=_changed(visit, commit, parent),
        differs=f"What the commit changed since its {_which(commit, parent)}",
    )


def cherry_pick(visit: Visit) -> str:
    """Apply the commit to the head that the page showed."""
    commit, head = visit.form["seen"].split()
    offered = _pick_message(visit.refs.commit(commit))
    published = visit.lake.cherry_pick(
        commit,
        onto=value(visit, "onto", "main"),
        parent=int(value(visit, "parent", "1")),
        message=_changed_message(visit, offered),
        expected_head=head,
    )
    return url(f"/commit/{published.commit}")


def _revert_message(commit: Commit) -> str:
    return f"Revert {_pick_message(commit)}"


def _pick_message(commit: Commit) -> str:
    """Return what the field for a message offers: one line, without secrets."""
    return without_secrets(title_of(commit.message))


def _changed_message(visit: Visit, offered: str) -> str | None:
    """Return the message of a form. None for the lake's own, if the visitor left what the field offered."""
    message = value(visit, "message")
    return None if message in ("", offered) else message


def _parent(visit: Visit, commit: Commit) -> int:
    """Return the number of the parent since which a commit is taken. Raises InvalidRequest."""
    text = value(visit, "parent", "1")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= max(1, len(commit.parents)):
        raise InvalidRequest(f"parent must be a number from 1 to {max(1, len(commit.parents))}, not {text!r}")
    return int(text)


def _parent_look(commit: Commit, parent: int) -> Mapping[str, tuple[str, str]]:
    if len(commit.parents) < 2:
        return {}
    return {"parent": (f"Since its parent, 1 to {len(commit.parents)}", str(parent))}


def _which(commit: Commit, parent: int) -> str:
    return "parent" if len(commit.parents) < 2 else f"parent {parent} of {len(commit.parents)}"


def _changed(visit: Visit, commit: Commit, parent: int) -> Mapping[str, object] | None:
    """Return what a commit changed. None if it has no parent, or that was collected."""
    if not commit.parents or not visit.refs.has_commit(commit.parents[parent - 1]):
        return None
    return differences(visit, commit.parents[parent - 1], commit.id)
