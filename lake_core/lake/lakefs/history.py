"""The commits of an export without history."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.lake.refs.history import newest_first

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState


def joined_commits(refs: RefsState, named: Iterable[str]) -> list[Commit]:
    """Return the named commits, and those in which their histories meet, with the next of these as parents.

    So any two of them have the merge base that they have in the lake.
    """
    kept, order = _meeting_points(refs, set(named))
    nearest: dict[str, tuple[str, ...]] = {}
    commits: list[Commit] = []
    for id in reversed(order):
        commit = refs.commit(id)
        parents = tuple(dict.fromkeys(each for parent in commit.parents for each in nearest.get(parent, ())))
        nearest[id] = (id,) if id in kept else parents
        if id in kept:
            commits.append(replace(commit, parents=parents))
    return commits


def _meeting_points(refs: RefsState, named: set[str]) -> tuple[set[str], list[str]]:
    """Return the commits to keep, and all commits of the history, each before its parents.

    A commit that is reached from several kept ones, with none between, is kept.
    """
    queue: list[tuple[int, float, str]] = []
    above: dict[str, set[str]] = {}

    def push(id: str, descendants: set[str]) -> None:
        if not refs.has_commit(id):
            return
        if id not in above:
            above[id] = set()
            heapq.heappush(queue, newest_first(refs.commit(id)))
        above[id] |= descendants

    for id in named:
        push(id, set())
    kept: set[str] = set()
    order: list[str] = []
    while queue:
        id = heapq.heappop(queue)[2]
        order.append(id)
        descendants = above.pop(id)
        if id in named or len(descendants) > 1:
            kept.add(id)
            descendants = {id}
        for parent in refs.commit(id).parents:
            push(parent, descendants)
    return kept, order
