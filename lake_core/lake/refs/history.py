"""The log of commits."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lake_core.lake.refs.commit_record import changed_datasets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState


def newest_first(commit: Commit) -> tuple[int, float, str]:
    """Return the sort key of a history: descendants first, then by time, then by id."""
    return -commit.generation, -commit.creation_date.timestamp(), commit.id


def log(refs: RefsState, start: Commit, *, first_parent: bool = False, dataset: str | None = None) -> Iterator[Commit]:
    """Yield a commit and its ancestors, newest first, or only those that changed `dataset`.

    The history ends where older commits were collected.
    """
    queue: list[tuple[int, float, str]] = []
    queued: dict[str, Commit] = {}
    listed: set[str] = set()

    def push(id: str) -> None:
        if id not in listed and refs.has_commit(id):
            listed.add(id)
            commit = queued[id] = refs.commit(id)
            heapq.heappush(queue, newest_first(commit))

    push(start.id)
    while queue:
        commit = queued.pop(heapq.heappop(queue)[2])
        if dataset is None or dataset in changed_datasets(commit):
            yield commit
        for parent in commit.parents[:1] if first_parent else commit.parents:
            push(parent)
