"""The merge bases of two commits: the newest commits that both contain, through parents and merges."""

from __future__ import annotations

import heapq
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, Final

from lake_core.pool.errors import DamagedLake
from lake_core.pool.ksuid import NIL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.pool.commit import Commit
    from lake_core.pool.commit_store import CommitStore
    from lake_core.pool.data_object import DataObject

_LEFT: Final = 1
_RIGHT: Final = 2
_BOTH: Final = _LEFT | _RIGHT


def base_objects(
    commits: CommitStore, left: str, right: str, read: Mapping[str, Commit] | None = None
) -> dict[str, DataObject]:
    """Return the data objects with which a merge of two commits compares both.

    Two branches that were merged into one another at the same time have several merge bases. Then these are the objects
    of all bases, without those that one base has deleted.

    Args:
        commits: The commits of the pool.
        left: The id of a commit.
        right: The id of another one.
        read: Commits that need not be read again, by their ids.

    Raises:
        DamagedLake: The objects of a merge base cannot be read.
    """
    by_base = {base: commits.objects(base) for base in merge_bases(commits, left, right, read or {})}
    objects = {id: each for objects in by_base.values() for id, each in objects.items()}
    for one, other in combinations(by_base, 2):
        for id in base_objects(commits, one, other):
            if id not in by_base[one] or id not in by_base[other]:
                objects.pop(id, None)
    return objects


def added_until_base(
    commits: CommitStore, left: str, right: str, ids: set[str], read: Mapping[str, Commit]
) -> set[str]:
    """Return which data objects were added by the merge bases of two commits, or by commits that these contain.

    Args:
        commits: The commits of the pool.
        left: The id of a commit.
        right: The id of another one.
        ids: The ids of the data objects.
        read: Commits that need not be read again, by their ids.
    """
    added: set[str] = set()
    pending = merge_bases(commits, left, right, read)
    visited = {NIL, *pending}
    while pending and len(added) < len(ids):
        # Earlier versions vacuumed commits that were merged from branches deleted since.
        with suppress(DamagedLake):
            change = commits.read(pending.pop())
            added.update(ids.intersection(change.added))
            before = {change.commit.parent, change.commit.merged} - visited
            visited |= before
            pending += before
    return added


def merge_bases(commits: CommitStore, left: str, right: str, read: Mapping[str, Commit]) -> list[str]:
    """Return the ids of the commits that two commits contain, and that no other such commit contains.

    Where clocks differ, there may be others among them, which are older and contained in one of these.
    """
    history = _History(commits, read)
    history.reach(left, _LEFT)
    history.reach(right, _RIGHT)
    while (commit := history.next()) is not None:
        for id in (commit.parent, commit.merged):
            history.reach(id, history.sides[commit.id])
    common = [id for id, side in history.sides.items() if side == _BOTH]
    older = {id for each in common for id in history.before(each)}
    return sorted(set(common) - older)


class _History:
    """The commits that two tips contain, read from the newest until the rest is common to both."""

    def __init__(self, commits: CommitStore, read: Mapping[str, Commit]) -> None:
        self._commits = commits
        self._read = dict(read)
        self._pending: list[tuple[float, str]] = []
        self.sides: dict[str, int] = {}
        """Which of the tips contain each commit."""

    def reach(self, id: str, side: int) -> None:
        """Record that tips contain a commit, which has to be visited if this is new."""
        if id == NIL or self.sides.get(id, 0) | side == self.sides.get(id):
            return
        if id not in self._read:
            # Earlier versions vacuumed commits that were merged from branches deleted since.
            with suppress(DamagedLake):
                self._read[id] = self._commits.read(id).commit
        if id in self._read:
            self.sides[id] = self.sides.get(id, 0) | side
            heapq.heappush(self._pending, (-self._read[id].date.timestamp(), id))

    def next(self) -> Commit | None:
        """Return the newest commit that has not been visited; None if all of them are common to both tips."""
        if all(self.sides[id] == _BOTH for _, id in self._pending):
            return None
        return self._read[heapq.heappop(self._pending)[1]]

    def before(self, id: str) -> tuple[str, str]:
        """Return the ids of the commits that a commit directly follows."""
        return self._read[id].parent, self._read[id].merged
