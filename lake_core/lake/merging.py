"""Merge, revert, cherry-pick: one commit's changes, or a branch's, brought onto a branch. All of them are `apply`."""

from __future__ import annotations

from lake_core.graveler import Commit
from lake_core.lake.advance import Change, advance
from lake_core.lake.errors import NothingToApply, RefNotFound
from lake_core.lake.history import is_ancestor, merge_base
from lake_core.lake.refs import RefsState
from lake_core.lake.repository import Repository
from lake_core.lake.session import Published


def merge(repository: Repository, theirs: Commit, name: str, into: str, message: str | None) -> Published:
    """Bring what a commit has and a branch lacks onto the branch, as a commit with two parents. Raises NothingToApply, Conflict."""

    def change(refs: RefsState) -> Change | Published:
        head = refs.commit(refs.branch(into))
        if is_ancestor(refs, theirs, head):
            raise NothingToApply(f"branch {into!r} has all of {name!r} already")
        base = merge_base(refs, theirs, head)
        return Change(
            into,
            repository.commit_state(base, f"the merge base of {name} and {into}"),
            repository.commit_state(theirs, name),
            message or f"Merge {name} into {into}",
            {"merge": theirs.id},
            parents=(theirs.id,),
            is_merge=True,
            makes_commit=True,
        )

    first = change(repository.refs())
    assert isinstance(first, Change)
    return advance(repository, first, recheck=change)


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
    return _advance(repository, change, f"commit {commit.id[:12]} is taken back already")


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
    return _advance(repository, change, f"branch {onto!r} has commit {commit.id[:12]} already")


def _parent(repository: Repository, commit: Commit, number: int, without: str) -> Commit:
    if not commit.parents:
        raise NothingToApply(f"commit {commit.id[:12]} is the first one: {without}")
    if not 1 <= number <= len(commit.parents):
        raise RefNotFound(f"commit {commit.id[:12]} has {len(commit.parents)} parents, so there is no parent {number}")
    return repository.refs().commit(commit.parents[number - 1])


def _advance(repository: Repository, change: Change, nothing: str) -> Published:
    head = repository.refs().branch(change.branch)
    done = advance(repository, change)
    if done.commit == head:
        raise NothingToApply(nothing)
    return done
