"""Reverts: a commit undoes the changes of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.errors import DeleteConflict, NoSuchCommit
from lake_core.pool.heirs import heirs
from lake_core.pool.merge_base import MergeHistory
from lake_core.pool.pins import check_objects_remain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from lake_core.pool.commit_store import Change, CommitStore


@dataclass(frozen=True, slots=True)
class Revert:
    """A revert of a commit.

    Attributes:
        commits: The pool's commits.
        commit: The id of the commit that is reverted.
        pin: Pins a commit, so that no vacuum deletes what is brought back.
    """

    commits: CommitStore
    commit: str
    pin: Callable[[str], None]

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a revert on top of a tip; none where the commit is already reverted.

        Raises:
            NoSuchCommit: The commit is not among those of the branch.
            DeleteConflict: Data objects that it added have been deleted or rewritten since. Or it was reverted, and
                that revert was reverted too.
            ObjectsVacuumed: Data objects that it deleted are gone from the store.
            DamagedLake: A commit cannot be read.
        """
        reverted, later = self._find(tip)
        objects = self.commits.objects(tip)
        self._check_added(reverted, later)
        added_since = {id for change in later for id in change.added}
        absent = [id for id in reverted.deleted if id not in objects]
        restored = [id for id in absent if id not in added_since]
        deletes = [DeleteObject(id) for id in reverted.added if id in objects]
        if deletes and len(restored) < len(absent):
            self._refuse(
                [id for id in absent if id in added_since], "deleted", "which an earlier revert of it brought back"
            )
        before = {}
        if restored:
            history = MergeHistory(self.commits, tip, reverted.commit.parent, [reverted, *later])
            self._check_not_rewritten(reverted, history, restored, objects.keys() - set(reverted.added))
            self.pin(reverted.commit.parent)
            check_objects_remain(self.commits, restored, f"the commit {self.commit} cannot be reverted")
            before = self.commits.objects(reverted.commit.parent)
        return [*deletes, *(AddObject(before[id]) for id in restored)]

    def _find(self, tip: str) -> tuple[Change, list[Change]]:
        """Return the commit, and those after it."""
        later: list[Change] = []
        for change in self.commits.changes(tip):
            if change.commit.id == self.commit:
                return change, later
            later.append(change)
        raise NoSuchCommit(f"the branch has no commit {self.commit}; `log` lists those that can be reverted")

    def _check_added(self, reverted: Change, later: list[Change]) -> None:
        """Raise DeleteConflict where objects that the commit added were deleted or rewritten.

        Rewritten values are in other objects now. Deleted ones may be in objects that the commit deleted, and would
        return with these.
        """
        added = set(reverted.added)
        gone = {id for change in later if not _undoes(change, reverted) for id in change.deleted if id in added}
        if gone:
            self._refuse(sorted(gone), "deleted or rewrote", "which it added")

    def _check_not_rewritten(
        self, reverted: Change, history: MergeHistory, restored: Sequence[str], kept: Set[str]
    ) -> None:
        """Raise DeleteConflict where values of the objects to restore are in others, which a merge brought."""
        if rewritten := heirs(history.left_changes(), set(restored), frozenset(reverted.added)) & kept:
            self._refuse(sorted(rewritten), "brought", "which have values that it deleted")

    def _refuse(self, ids: Sequence[str], verb: str, which: str) -> NoReturn:
        raise DeleteConflict(
            f"the commit {self.commit} cannot be reverted: later commits {verb} {', '.join(ids)}, {which}; "
            "revert those commits first",
            tuple(ids),
        )


def _undoes(change: Change, reverted: Change) -> bool:
    """Return whether a later commit adds nothing but what a commit deleted, and some of that if it deleted anything."""
    return set(reverted.deleted).issuperset(change.added) and bool(change.added or not reverted.deleted)
