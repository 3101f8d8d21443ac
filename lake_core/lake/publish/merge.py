"""Merge, revert, cherry-pick: one commit's changes, or a branch's, brought onto a branch. All of them are `apply`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lake_core.graveler import Commit
from lake_core.lake.errors import NothingToApply, RefNotFound
from lake_core.lake.publish.change import Change, check_protected
from lake_core.lake.publish.commit_to_branch import apply_change, commit_to_branch
from lake_core.lake.publish.published import Published
from lake_core.lake.publish.tree_update import DatasetUpdate, Strategy
from lake_core.lake.refs.history import is_ancestor, merge_base
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.repository import Repository
from lake_core.lake.state.content import item_of
from lake_core.lake.state.dataset_record import dataset_above
from lake_core.lake.state.view import RESERVED
from lake_core.readable import count_of


@dataclass(frozen=True, slots=True)
class MergePreview:
    """What a merge would do."""

    commit: str
    """The branch's head, which the merge would follow."""
    base: str
    """The commit that both come from."""
    theirs: str
    """The commit that would be merged."""
    datasets: Mapping[str, DatasetUpdate]
    """The datasets that would change, with their new versions."""
    keys: Mapping[str, Literal["put", "deleted"]]
    """The plain files that would change."""
    resolved: Mapping[str, str]
    """The datasets and keys that conflict, and of which the strategy would take one side; with the kinds of the conflicts."""
    skipped: Sequence[str] = ()
    """Datasets whose writes the branch has already, by their markers (the same application's, at this version or a later one)."""


def merge(repository: Repository, theirs: Commit, name: str, into: str, message: str | None, strategy: Strategy | None) -> Published:
    """Bring what a commit has and a branch lacks onto the branch, as a commit with two parents. Raises NothingToApply, Conflict."""

    def change(refs: RefsState) -> Change:
        return _merge_change(repository, refs, theirs, name, into, message, strategy)[0]

    return commit_to_branch(repository, change(repository.refs()), recheck=change)


def preview_merge(repository: Repository, theirs: Commit, name: str, into: str, strategy: Strategy | None) -> MergePreview:
    """Tell what `merge` would do now, and write nothing. Raises as `merge`."""
    refs = repository.refs()
    change, base = _merge_change(repository, refs, theirs, name, into, None, strategy)
    check_protected(refs, change)
    head = refs.commit(refs.branch(into))
    target = repository.commit_state(head, into)
    applied = apply_change(repository, refs, change, target, head, dry_run=True)
    items = applied.items
    if applied.taken:
        changed = repository.graveler.diff(target.view.tree, applied.onto)
        items = {each.key.decode(): None if each.after is None else item_of(each.after) for each in changed}
    registered = {**target.registered(), **change.theirs.registered()}
    keys: dict[str, Literal["put", "deleted"]] = {
        key: "deleted" if item is None else "put"
        for key, item in sorted(items.items())
        if not key.startswith(RESERVED) and dataset_above(key, registered) is None
    }
    return MergePreview(head.id, base.id, theirs.id, applied.datasets, keys, applied.resolved, applied.skipped)


def _merge_change(
    repository: Repository, refs: RefsState, theirs: Commit, name: str, into: str, message: str | None, strategy: Strategy | None
) -> tuple[Change, Commit]:
    """Make a merge a change onto its branch, and find the merge base. Raises NothingToApply, RefNotFound."""
    if strategy not in (None, "ours", "theirs"):
        raise ValueError(f"a merge's strategy is 'ours' or 'theirs', not {strategy!r}")
    head = refs.commit(refs.branch(into))
    if is_ancestor(refs, theirs, head):
        raise NothingToApply(f"branch {into!r} has all of {name!r} already")
    base = merge_base(refs, theirs, head)
    change = Change(
        into,
        repository.commit_state(base, f"the merge base of {name} and {into}"),
        repository.commit_state(theirs, name),
        message or f"Merge {name} into {into}",
        {"merge": theirs.id} | ({} if strategy is None else {"strategy": strategy}),
        parents=(theirs.id,),
        strategy=strategy,
        remedy=(
            f"Nothing was merged: merge with strategy='theirs' to take what {name} has of these, with strategy='ours' to keep what {into} "
            f"has of them, or do the work again on a new branch of {into}"
        ),
        is_merge=True,
        makes_commit=True,
    )
    return change, base


def revert(repository: Repository, commit: Commit, branch: str, parent: int, message: str | None) -> Published:
    """Take back what a commit did, against its `parent`-th parent, as a new commit. Raises NothingToApply, Conflict."""
    before = _parent(repository, commit, parent, "there is nothing before it")
    change = Change(
        branch,
        repository.commit_state(commit),
        repository.commit_state(before),
        message or f"Revert {commit.message or commit.id[:12]}",
        {"revert": commit.id},
    )
    return _commit(repository, change, f"commit {commit.id[:12]} is taken back already")


def cherry_pick(repository: Repository, commit: Commit, onto: str, parent: int, message: str | None) -> Published:
    """Do on a branch what a commit did to its `parent`-th parent. Raises NothingToApply, Conflict."""
    before = _parent(repository, commit, parent, "it changed nothing")
    change = Change(
        onto,
        repository.commit_state(before),
        repository.commit_state(commit),
        message or commit.message,
        {"cherry-pick-origin": commit.id, "cherry-pick-committer": commit.committer},
    )
    return _commit(repository, change, f"branch {onto!r} has commit {commit.id[:12]} already")


def _parent(repository: Repository, commit: Commit, number: int, without: str) -> Commit:
    if not commit.parents:
        raise NothingToApply(f"commit {commit.id[:12]} is the first one: {without}")
    if not 1 <= number <= len(commit.parents):
        raise RefNotFound(f"commit {commit.id[:12]} has {count_of(len(commit.parents), 'parent')}, so there is no parent {number}")
    return repository.refs().commit(commit.parents[number - 1])


def _commit(repository: Repository, change: Change, nothing: str) -> Published:
    head = repository.refs().branch(change.branch)
    published = commit_to_branch(repository, change)
    if published.commit == head:
        raise NothingToApply(nothing)
    return published
