"""The graph of commits: log, ancestors, merge base."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lake_core.lake.errors import ContentGone, RefNotFound
from lake_core.lake.refs.commit_record import changed_datasets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.graveler import Commit
    from lake_core.lake.refs.commit_link import CommitLink
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


def is_ancestor(refs: RefsState, older: Commit, newer: Commit) -> bool:
    """Return whether one commit is an ancestor of another one, or the same commit.

    Commits whose content was collected lead to their parents as well.
    """
    queue = [newer.id]
    queued = {newer.id}
    while queue:
        id = queue.pop()
        if id == older.id:
            return True
        link = refs.link(id)
        if link is None or link.generation <= older.generation:
            continue
        queue += (parent for parent in link.parents if parent not in queued)
        queued.update(link.parents)
    return False


def merge_base(refs: RefsState, left: Commit, right: Commit) -> Commit:
    """Find the newest common ancestor of two commits, by generation.

    Raises RefNotFound if they have none. Raises ContentGone if its content was collected: an older one in its place
    would bring back what was changed since.
    """
    queue: list[tuple[int, float, str]] = []
    sides: dict[str, int] = {}
    links: dict[str, CommitLink] = {}
    unknown: list[tuple[int, str]] = []
    """Commits without a link, because an earlier release collected them, with the highest generation of each."""

    def push(id: str, side: int, highest: int) -> None:
        before = sides.get(id, 0)
        if before | side == before:
            return
        sides[id] = before | side
        link = links.get(id) or refs.link(id)
        if link is None:
            unknown.append((highest, id))
        else:
            links[id] = link
            heapq.heappush(queue, (-link.generation, -link.date.timestamp(), id))

    push(left.id, 1, left.generation)
    push(right.id, 2, right.generation)
    while queue:
        id = heapq.heappop(queue)[2]
        link = links[id]
        if sides[id] == 3:
            _check_known(unknown, link)
            return refs.commit_for(f"the merge base of {left.id[:12]} and {right.id[:12]}", id)
        for parent in link.parents:
            push(parent, sides[id], link.generation - 1)
    _check_known(unknown, None)
    raise RefNotFound(
        f"commits {left.id[:12]} and {right.id[:12]} have no commit in common, so they cannot be merged: "
        "copy what you need into a session"
    )


def _check_known(unknown: list[tuple[int, str]], base: CommitLink | None) -> None:
    """Raise ContentGone if a commit that the lake does not know may be a newer common ancestor."""
    for generation, id in unknown:
        if base is None or generation >= base.generation:
            raise ContentGone(id, "between the two commits and their merge base", None)
