"""Merges of branches: the changes of one since its common ancestor with the other become one commit on the other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import DamagedLake, DeleteConflict
from lake_core.pool.ksuid import NIL

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from lake_core.pool.commit_store import Change, CommitStore

_CLOCKS_DIFFER: Final = timedelta(days=1)
"""The largest difference between the clocks of writers."""


@dataclass(frozen=True, slots=True)
class Side:
    """The commits of a branch since the common ancestor with another one.

    Attributes:
        tip: Its tip.
        changes: The commits, the newest first.
    """

    tip: str
    changes: list[Change] = field(default_factory=list)

    def positions(self) -> dict[str, int]:
        """Return the number of newer commits, by the id of each commit."""
        return {change.commit.id: number for number, change in enumerate(self.changes)}

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
        parent_side, child_side, ancestor = sides(self.commits, tip, self.child)
        base = self.commits.objects(_merge_base(self.commits, parent_side, child_side) or ancestor)
        child, parent = self.commits.objects(self.child), self.commits.objects(tip)
        # Objects that the parent once had came with an earlier merge. It has deleted or rewritten them since.
        had = parent_side.added()
        new = [each for id, each in child.items() if id not in base and id not in parent and id not in had]
        deleted = [id for id in base if id not in child]
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
            ids = tuple(sorted(gone))
            raise DeleteConflict(
                f"the branch {self.name!r} cannot be merged: both branches deleted or rewrote the data objects "
                f"{', '.join(ids)}; revert the commit on one of them",
                ids,
            )


def sides(commits: CommitStore, tip: str, other: str) -> tuple[Side, Side, str]:
    """Return the commits of two branches since their nearest common ancestor, and its id. Raises DamagedLake."""
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
    return ours, theirs, ancestor


def _before(changes: Sequence[Change], ancestor: str) -> list[Change]:
    """Return the commits that are newer than one of them, newest first; all if it is not among them."""
    ids = [change.commit.id for change in changes]
    return list(changes[: ids.index(ancestor)] if ancestor in ids else changes)


def _merge_base(commits: CommitStore, parent_side: Side, child_side: Side) -> str | None:
    """Return the last commit of one side that was merged into the other; None where neither side has merged one."""
    # The child may have been merged into the parent before, and the parent into the child: the later of the two counts.
    into_parent = _newest_merge(commits, parent_side, child_side)
    into_child = _newest_merge(commits, child_side, parent_side)
    if into_parent is None:
        return None if into_child is None else into_child.source
    if into_child is None:
        return into_parent.source
    positions = parent_side.positions()
    is_later = positions[into_child.source] <= positions[into_parent.commit]
    return into_child.source if is_later else into_parent.source


class _Merged(NamedTuple):
    """A merge of one side into the other.

    Attributes:
        commit: The commit that merged.
        source: The newest commit of the other side that went into it.
    """

    commit: str
    source: str


def _newest_merge(commits: CommitStore, target: Side, source: Side) -> _Merged | None:
    """Return the newest commit of a side that merged one of the other side, also by way of a third branch."""
    positions = source.positions()
    if not positions:
        return None
    since = min(change.commit.date for change in source.changes) - _CLOCKS_DIFFER
    visited = {change.commit.id for change in target.changes}
    for change in target.changes:
        reached = _reached(commits, change.commit.merged, positions, since, visited)
        if reached:
            return _Merged(change.commit.id, min(reached, key=positions.__getitem__))
    return None


def _reached(commits: CommitStore, tip: str, ids: Container[str], since: datetime, visited: set[str]) -> set[str]:
    """Return the first of some commits on each path back from a commit, through parents and merges.

    Args:
        commits: The commits of the pool.
        tip: The id of the commit.
        ids: The ids of the commits to find.
        since: A time before which none of these was made.
        visited: The ids of commits that are not read again. The ones that are read are added.
    """
    reached: set[str] = set()
    pending = [tip]
    while pending:
        id = pending.pop()
        if id in ids:
            reached.add(id)
        elif id != NIL and id not in visited:
            visited.add(id)
            # Earlier versions vacuumed commits that were merged from branches deleted since.
            with suppress(DamagedLake):
                commit = commits.read(id).commit
                pending += [commit.parent, commit.merged] if commit.date >= since else []
    return reached
