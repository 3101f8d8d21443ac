"""The commits that conflict with a change: their ids, messages, authors and runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from lake_core.errors import LakeError
from lake_core.lake.errors import Conflict, OtherCommit
from lake_core.lake.refs.commit_record import DATASETS_FIELD, changed_datasets
from lake_core.lake.state.content import is_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore

_COMMITS_OF_DATASETS = 1000
_COMMITS_OF_KEYS = 100
"""The most commits to look through for keys.

A commit's metadata lists the datasets that it changed. To find the keys that it changed, its tree must be read.
"""
_MOST = 3
"""The most commits that are named for each dataset or key."""
_OWN_FIELDS = (DATASETS_FIELD, "at", "resolved")


def with_commits(
    repository: Repository, refs: RefsState, head: Commit, base: StateStore, error: Conflict, remedy: str
) -> Conflict:
    """Return the same conflict with the newest commits of the target that changed its datasets and keys."""
    contradictions = []
    for each in error.contradictions:
        is_dataset = each.path in error.datasets
        changes = _of_dataset if is_dataset else _of_key
        commits = changes(repository, refs, head, base, each.path)
        try:
            contradictions.append(replace(each, commits=[_other(commit) for commit in islice(commits, _MOST)]))
        except LakeError:
            contradictions.append(each)  # older states are being collected: report the conflict without commits
    return error.replace(contradictions=contradictions, remedy=remedy)


def _first_parents(refs: RefsState, head: Commit, most: int) -> Iterator[Commit]:
    """Yield the first parents of a head, newest first."""
    for _ in range(most):
        yield head
        if not head.parents or not refs.has_commit(head.parents[0]):
            return
        head = refs.first_parent(head)


def _of_dataset(repository: Repository, refs: RefsState, head: Commit, base: StateStore, path: str) -> Iterator[Commit]:
    """Yield the commits that changed a dataset since the base, newest first."""
    old, prefix = base.view.tree, f"{path}/".encode()
    for commit in _first_parents(refs, head, _COMMITS_OF_DATASETS):
        if path not in changed_datasets(commit):
            continue
        now = repository.commit_state(commit).view
        if next(now.graveler.diff(old, now.tree, prefix), None) is None:
            return
        yield commit


def _of_key(repository: Repository, refs: RefsState, head: Commit, base: StateStore, key: str) -> Iterator[Commit]:
    """Yield the commits that changed a key since the base, newest first."""
    old = base.view.get(key)
    newer: Commit | None = None
    now = None
    for commit in _first_parents(refs, head, _COMMITS_OF_KEYS):
        item = repository.commit_state(commit).view.get(key)
        if newer is not None and not is_same(item, now):
            yield newer
        if is_same(item, old):
            return
        newer, now = commit, item


def _other(commit: Commit) -> OtherCommit:
    metadata = {name: value for name, value in commit.metadata.items() if name not in _OWN_FIELDS}
    return OtherCommit(commit.id, commit.message, commit.committer, commit.creation_date, metadata)
