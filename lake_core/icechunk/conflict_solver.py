"""Solvers, which resolve the conflicts of a rebase."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lake_core.icechunk.conflict import Conflict, ConflictType
from lake_core.icechunk.manifest import ChunkIndex, is_in

if TYPE_CHECKING:
    from lake_core.icechunk.change_set import ChangeSet
    from lake_core.icechunk.conflict_detector import RebaseStep


class ConflictSolver(Protocol):
    """A solver, which rebases the changes of a session onto a commit that came first."""

    def solve(self, step: RebaseStep) -> ChangeSet:
        """Return the changes to apply on top of the commit. The changes of the step are not modified.

        Raises:
            RebaseFailedError: A conflict is not resolved.
        """


class VersionSelection(Enum):
    """The side that wins."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2


@dataclass(frozen=True, slots=True)
class BasicConflictSolver:
    """A solver that chooses a side where both wrote the same chunks. It may delete nodes that the other side changed.

    All other conflicts fail the rebase.
    """

    on_chunk_conflict: VersionSelection = VersionSelection.UseOurs
    fail_on_delete_of_updated_array: bool = False
    fail_on_delete_of_updated_group: bool = False

    def solve(self, step: RebaseStep) -> ChangeSet:
        """Return the changes without the chunks for which theirs wins.

        Raises RebaseFailedError for conflicts that are not resolved.
        """
        conflicts = step.conflicts()
        if not all(self._resolves(conflict, step) for conflict in conflicts):
            raise step.failed()
        if self.on_chunk_conflict is not VersionSelection.UseTheirs:
            return step.changes
        chunks, columns = dict(step.changes.chunks), dict(step.changes.columns)
        for conflict in conflicts:
            if conflict.coordinates is not None:
                node_id = step.base.nodes[conflict.path].node_id
                theirs = _indexes(conflict)
                chunks[node_id] = {
                    index: chunk for index, chunk in chunks.get(node_id, {}).items() if index not in theirs
                }
                if node_id in columns:
                    dropped = np.array(sorted(theirs), np.uint32).T
                    columns[node_id] = [part.take(~is_in(part.index, dropped)) for part in columns[node_id]]
        return replace(step.changes, chunks=chunks, columns=columns)

    def _resolves(self, conflict: Conflict, step: RebaseStep) -> bool:
        match conflict.conflict_type:
            case ConflictType.DeleteOfUpdatedArray:
                return not self.fail_on_delete_of_updated_array
            case ConflictType.DeleteOfUpdatedGroup:
                return not self.fail_on_delete_of_updated_group
            case ConflictType.ChunkDoubleUpdate if self.on_chunk_conflict is VersionSelection.UseTheirs:
                # Chunks that ours cut off cannot be brought back one by one.
                node_id = step.base.nodes[conflict.path].node_id
                return not any(step.changes.is_gone(node_id, index) for index in _indexes(conflict))
            case ConflictType.ChunkDoubleUpdate:
                return self.on_chunk_conflict is VersionSelection.UseOurs
        return False


def _indexes(conflict: Conflict) -> set[ChunkIndex]:
    return set(map(tuple, conflict.conflicted_chunks or []))
