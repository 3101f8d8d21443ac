"""The merge bases of two commits: the newest commits that both contain, through parents and merges."""

from __future__ import annotations

import heapq
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, Final

from lake_core.pool.errors import DamagedLake
from lake_core.pool.ksuid import NIL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake_core.pool.commit_store import Change, CommitStore
    from lake_core.pool.data_object import DataObject

_LEFT: Final = 1
_RIGHT: Final = 2
_BOTH: Final = _LEFT | _RIGHT


class MergeHistory:
    """The history of two tips, read back to their merge bases.

    A tip contains a commit if the commit is the tip itself, or one that the tip was built on or has merged.

    Attributes:
        bases: The ids of the merge bases. These are the commits that both tips contain, without those that another
            of these commits contains. If the clocks of writers differ, some of those may be left among them.

    Args:
        commits: The commits of the pool.
        left: The id of a tip.
        right: The id of the other one.
        known: Commits that need not be read again.
    """

    def __init__(self, commits: CommitStore, left: str, right: str, known: Iterable[Change] = ()) -> None:
        self._commits = commits
        self._changes = {change.commit.id: change for change in known}
        self._pending: list[tuple[float, str]] = []
        self._sides: dict[str, int] = {}
        """Which of the tips contain each commit."""
        self._reach(left, _LEFT)
        self._reach(right, _RIGHT)
        # The newest commit first, until the rest is common to both tips.
        while any(self._sides[id] != _BOTH for _, id in self._pending):
            _, id = heapq.heappop(self._pending)
            for before in self._before(id):
                self._reach(before, self._sides[id])
        common = {id for id, side in self._sides.items() if side == _BOTH}
        self.bases = sorted(common - {before for id in common for before in self._before(id)})

    def base_objects(self) -> dict[str, DataObject]:
        """Return the data objects with which a merge of the tips compares both. Raises DamagedLake.

        Two branches that were merged into one another at the same time have several merge bases. Then these are the
        objects of all bases, without those that one base has deleted.
        """
        by_base = {base: self._commits.objects(base) for base in self.bases}
        objects = {id: each for objects in by_base.values() for id, each in objects.items()}
        for one, other in combinations(by_base, 2):
            for id in MergeHistory(self._commits, one, other, self._changes.values()).base_objects():
                if id not in by_base[one] or id not in by_base[other]:
                    objects.pop(id, None)
        return objects

    def left_changes(self) -> list[Change]:
        """Return the commits that the left tip contains and the right one does not, in no order."""
        return [self._changes[id] for id, side in self._sides.items() if side == _LEFT]

    def right_changes(self) -> list[Change]:
        """Return the commits that the right tip contains and the left one does not, in no order."""
        return [self._changes[id] for id, side in self._sides.items() if side == _RIGHT]

    def since_bases(self, tip: str) -> list[Change]:
        """Return the commits of a branch since it has contained all merge bases, the newest first.

        Args:
            tip: One of the two tips.
        """
        chain = self._chain(tip)
        contained: set[str] = set()
        for number in range(len(chain) - 1, -1, -1):
            self._contain(chain[number].commit.id, contained)
            if self.bases and contained.issuperset(self.bases):
                return chain[:number]
        return chain

    def _chain(self, tip: str) -> list[Change]:
        """Return a commit and those before it, without the commits that merges brought."""
        chain = []
        while tip in self._sides:
            chain.append(self._changes[tip])
            tip = chain[-1].commit.parent
        return chain

    def _contain(self, tip: str, contained: set[str]) -> None:
        """Add a commit and all commits that it contains to a set.

        A commit that is in the set is skipped: what it contains is in the set, too.
        """
        pending = [tip]
        while pending:
            id = pending.pop()
            if id in self._sides and id not in contained:
                contained.add(id)
                pending += self._before(id)

    def _reach(self, id: str, side: int) -> None:
        """Record that tips contain a commit, which has to be visited if this is new."""
        if id == NIL or self._sides.get(id, 0) | side == self._sides.get(id):
            return
        if id not in self._changes:
            # Earlier versions vacuumed commits that were merged from branches deleted since.
            with suppress(DamagedLake):
                self._changes[id] = self._commits.read(id)
        if id in self._changes:
            self._sides[id] = self._sides.get(id, 0) | side
            heapq.heappush(self._pending, (-self._changes[id].commit.date.timestamp(), id))

    def _before(self, id: str) -> tuple[str, str]:
        """Return the ids of the commits that a commit directly follows."""
        commit = self._changes[id].commit
        return commit.parent, commit.merged
