"""Merges of branches: the changes of one since its common ancestor with the other become one commit on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import DeleteConflict
from lake_core.pool.heirs import heirs
from lake_core.pool.merge_base import MergeHistory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake_core.pool.commit_store import Change, CommitStore


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
        history = MergeHistory(self.commits, tip, self.child)
        child, parent = self.commits.objects(self.child), self.commits.objects(tip)
        # Both sides have added these since the base: a merge brought them without naming its commit, as those of `zed`,
        # or both sides restored them. They are treated as part of the base.
        both = _added(history.since_bases(tip)) & _added(history.since_bases(self.child))
        base = history.base_objects().keys() | both
        new = child.keys() - base - parent.keys()
        deleted = base & parent.keys() - child.keys()
        gone = base - parent.keys() - child.keys()
        moved = heirs(history.right_changes(), gone, parent.keys()) & new
        moved |= (heirs(history.left_changes(), gone, child.keys()) & parent.keys()) - deleted
        if moved:
            ids = tuple(sorted(gone))
            raise DeleteConflict(
                f"the branch {self.name!r} cannot be merged: both branches deleted or rewrote the data objects "
                f"{', '.join(ids)}; revert the commit on one of them",
                ids,
            )
        return [
            *(DeleteObject(id) for id in parent if id in deleted),
            *(AddObject(each) for id, each in child.items() if id in new),
        ]


def _added(changes: Iterable[Change]) -> set[str]:
    """Return the ids of the data objects that commits add."""
    return {id for change in changes for id in change.added}
