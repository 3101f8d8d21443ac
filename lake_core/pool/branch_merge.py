"""Merges of branches: the changes of one since its common ancestor with the other become one commit on the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import DeleteConflict
from lake_core.pool.heirs import heirs
from lake_core.pool.ksuid import NIL
from lake_core.pool.merge_base import added_until_base, base_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.commit_store import Change, CommitStore


@dataclass(frozen=True, slots=True)
class Side:
    """The commits of a branch since the common ancestor with another one.

    Attributes:
        tip: Its tip.
        changes: The commits, the newest first.
    """

    tip: str
    changes: list[Change] = field(default_factory=list)

    def added(self) -> set[str]:
        """Return the ids of the data objects that its commits add."""
        return {id for change in self.changes for id in change.added}

    def deleted(self) -> set[str]:
        """Return the ids of the data objects that its commits delete."""
        return {id for change in self.changes for id in change.deleted}


@dataclass(frozen=True, slots=True)
class BranchMerge:
    """A merge of a branch, the child, into another one, its parent.

    Attributes:
        commits: The pool's commits.
        child: The tip of the child.
        name: The name of the child.
    """

    commits: CommitStore
    child: str
    name: str

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a merge on top of a tip; none where it contains all of the child already.

        Raises:
            DeleteConflict: Both sides have deleted or rewritten the same data objects.
            DamagedLake: A commit cannot be read.
        """
        parent_side, child_side = sides(self.commits, tip, self.child)
        read = {change.commit.id: change.commit for side in (parent_side, child_side) for change in side.changes}
        base = base_objects(self.commits, tip, self.child, read)
        child, parent = self.commits.objects(self.child), self.commits.objects(tip)
        added = {id: each for id, each in child.items() if id not in base and id not in parent}
        # Objects that the parent once had came with an earlier merge, and it has deleted or rewritten them since. But
        # where that merge brought their deletion too, the child has brought them back after it.
        had = added.keys() & parent_side.added()
        returned = added_until_base(self.commits, tip, self.child, had, read) if had else set()
        new = [each for id, each in added.items() if id not in had or id in returned]
        deleted = [id for id in base if id not in child]
        if heirs(parent_side.changes, returned, child.keys()) & parent.keys() - set(deleted):
            raise self._conflict(returned)
        self._check_deleted({id for id in deleted if id not in parent}, bool(new), parent_side, child_side)
        return [*(DeleteObject(id) for id in deleted if id in parent), *map(AddObject, new)]

    def _check_deleted(self, gone: set[str], has_new: bool, parent_side: Side, child_side: Side) -> None:
        """Raise DeleteConflict unless the parent deleted the objects by merging the child, or no side replaced them."""
        added, deleted = child_side.added(), child_side.deleted()
        for change in parent_side.changes:
            is_merge = added.issuperset(change.added) and deleted.issuperset(change.deleted)
            if is_merge and (change.added or not has_new):
                gone -= set(change.deleted)
        if gone:
            raise self._conflict(gone)

    def _conflict(self, ids: set[str]) -> DeleteConflict:
        listed = tuple(sorted(ids))
        return DeleteConflict(
            f"the branch {self.name!r} cannot be merged: both branches deleted or rewrote the data objects "
            f"{', '.join(listed)}; revert the commit on one of them",
            listed,
        )


def sides(commits: CommitStore, tip: str, other: str) -> tuple[Side, Side]:
    """Return the commits of two branches since their nearest common ancestor. Raises DamagedLake."""
    ours, theirs = Side(tip), Side(other)
    ids_of_sides: tuple[set[str], set[str]] = (set(), set())
    ancestor = NIL
    for pair in zip_longest(commits.changes(tip), commits.changes(other)):
        for side, ids, change in zip((ours, theirs), ids_of_sides, pair, strict=True):
            if change is not None:
                side.changes.append(change)
                ids.add(change.commit.id)
        common = [
            change.commit.id
            for change in pair
            if change is not None and all(change.commit.id in ids for ids in ids_of_sides)
        ]
        if common:
            ancestor = common[0]
            break
    for side in (ours, theirs):
        side.changes[:] = _before(side.changes, ancestor)
    return ours, theirs


def _before(changes: Sequence[Change], ancestor: str) -> list[Change]:
    """Return the commits that are newer than one of them, newest first; all if it is not among them."""
    ids = [change.commit.id for change in changes]
    return list(changes[: ids.index(ancestor)] if ancestor in ids else changes)
