"""Deletions: of data objects, by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake_core.pool.action import Action, DeleteObject
from lake_core.pool.commit_store import CommitStore
from lake_core.pool.errors import DeleteConflict


@dataclass(frozen=True, slots=True)
class ObjectDeletion:
    """Plans commits that delete data objects.

    Attributes:
        commits: The pool's commits.
        ids: The ids of the data objects.
    """

    commits: CommitStore
    ids: Sequence[str]

    def plan(self, tip: str) -> list[Action]:
        """Return the actions of a deletion on top of a tip. Raises DeleteConflict, DamagedLake."""
        objects = self.commits.objects(tip)
        missing = tuple(id for id in self.ids if id not in objects)
        if missing:
            raise DeleteConflict(f"other writers deleted or rewrote {', '.join(missing)}, which were to be deleted; delete again", missing)
        return [DeleteObject(id) for id in self.ids]
