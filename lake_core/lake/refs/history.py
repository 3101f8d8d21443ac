"""The log of commits."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lake_core.lake.refs.commit_record import changed_datasets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lake_core.graveler import Commit
    from lake_core.lake.refs.refs_state import RefsState


def newest_first(commit: Commit) -> tuple[int, float, str]:
    """Return the sort key of a history: descendants first, then by time, then by id."""
    return -commit.generation, -commit.creation_date.timestamp(), commit.id


class History:
    """A walk from some commits to their ancestors, newest first. It ends where older commits were collected."""

    def __init__(self, refs: RefsState, starts: Iterable[str], *, first_parent: bool = False) -> None:
        self._refs, self._first_parent = refs, first_parent
        self._queue: list[tuple[int, float, str]] = []
        self._queued: dict[str, Commit] = {}
        self._listed: set[str] = set()
        self._waiting: Sequence[str] = ()
        """The parents of the last commit. Nobody needs them, who stops there: they may be in the archive."""
        for id in starts:
            self._push(id)

    def _push(self, id: str) -> None:
        if id not in self._listed and self._refs.has_commit(id):
            self._listed.add(id)
            commit = self._queued[id] = self._refs.commit(id)
            heapq.heappush(self._queue, newest_first(commit))

    def __iter__(self) -> Iterator[Commit]:
        return self

    def __next__(self) -> Commit:
        self._push_waiting()
        if not self._queue:
            raise StopIteration
        commit = self._queued.pop(heapq.heappop(self._queue)[2])
        self._waiting = commit.parents[:1] if self._first_parent else commit.parents
        return commit

    def _push_waiting(self) -> None:
        for parent in self._waiting:
            self._push(parent)
        self._waiting = ()

    @property
    def rest(self) -> list[str]:
        """Return the commits at which another walk goes on, newest first."""
        self._push_waiting()
        return [id for _, _, id in sorted(self._queue)]


def log(refs: RefsState, start: Commit, *, first_parent: bool = False, dataset: str | None = None) -> Iterator[Commit]:
    """Yield a commit and its ancestors, newest first, or only those that changed `dataset`."""
    for commit in History(refs, [start.id], first_parent=first_parent):
        if dataset is None or dataset in changed_datasets(commit):
            yield commit


def ahead_and_behind(refs: RefsState, head: str, base: str, most: int) -> tuple[int, int, bool]:
    """Count the commits that only one of two heads has among its ancestors.

    Returns how many `head` has, how many `base` has, and whether these are all. Counting ends after `most` of a side.
    """
    sides = {head: 1}
    sides[base] = sides.get(base, 0) | 2
    queue = [(-(link.generation if (link := refs.link(id)) is not None else 0), id) for id in sides]
    heapq.heapify(queue)
    open_ids = {id for id, side in sides.items() if side != 3}
    counts = [0, 0, 0, 0]
    while open_ids:
        id = heapq.heappop(queue)[1]
        side = sides[id]
        open_ids.discard(id)
        counts[side] += 1
        if max(counts[1], counts[2]) > most:
            return min(counts[1], most), min(counts[2], most), False
        link = refs.link(id)
        for parent in () if link is None else link.parents:
            known = sides.get(parent)
            sides[parent] = (known or 0) | side
            if known is None:
                above = refs.link(parent)
                heapq.heappush(queue, (-(0 if above is None else above.generation), parent))
            if sides[parent] == 3:
                open_ids.discard(parent)
            else:
                open_ids.add(parent)
    return counts[1], counts[2], True
