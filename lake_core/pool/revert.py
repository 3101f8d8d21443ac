"""Reverts: a commit undoes the changes of another one."""

from __future__ import annotations

from dataclasses import dataclass

from lake_core.pool.action import Action, AddObject, DeleteObject
from lake_core.pool.commit_store import Change, CommitStore
from lake_core.pool.data_object import data_key
from lake_core.pool.errors import DeleteConflict, NoSuchCommit, ObjectsVacuumed


@dataclass(frozen=True, slots=True)
class Revert:
    """A revert of a commit.

    Attributes:
        commits: The pool's commits.
        commit: The id of the commit that is reverted.
    """

    commits: CommitStore
    commit: str

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a revert on top of a tip; none where the commit is reverted already.

        Raises:
            NoSuchCommit: The commit is not among those of the branch.
            DeleteConflict: Data objects that it added were rewritten since.
            ObjectsVacuumed: Data objects that it deleted are gone from the store.
            DamagedLake: A commit cannot be read.
        """
        reverted, later = self._find(tip)
        objects = self.commits.objects(tip)
        self._check_added(reverted, later)
        added_since = {id for change in later for id in change.added}
        restored = [id for id in reverted.deleted if id not in objects and id not in added_since]
        self._check_restored(restored)
        before = self.commits.objects(reverted.commit.parent) if restored else {}
        deletes = [DeleteObject(id) for id in reverted.added if id in objects]
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
        """Raise DeleteConflict if objects that the commit added were rewritten: other objects hold their values now."""
        added, deleted = set(reverted.added), set(reverted.deleted)
        rewritten = {
            id for change in later if not deleted.issuperset(change.added) for id in change.deleted if id in added
        }  # A commit that adds nothing but what the commit deleted is a revert of it.
        if rewritten:
            ids = tuple(sorted(rewritten))
            raise DeleteConflict(
                f"the commit {self.commit} cannot be reverted: later commits rewrote {', '.join(ids)}, which it added; "
                "revert those first",
                ids,
            )

    def _check_restored(self, restored: list[str]) -> None:
        missing = tuple(id for id in restored if not self.commits.store.exists(data_key(self.commits.folder, id)))
        if missing:
            raise ObjectsVacuumed(
                f"the commit {self.commit} cannot be reverted: {', '.join(missing)}, which it deleted, were vacuumed; "
                "load again",
                missing,
            )
