"""Conflicts between the changes of a session and a commit that came first."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class ConflictType(Enum):
    """The kind of a conflict. `ours` are the changes of the session, `theirs` those of the commit."""

    NewNodeConflictsWithExistingNode = "both created a node at the same path"
    NewNodeInInvalidGroup = "one created a node in a group that the other deleted, or replaced by an array"
    ZarrMetadataDoubleUpdate = "both changed the metadata of the same node"
    ZarrMetadataUpdateOfDeletedArray = "ours changed the metadata of an array that theirs deleted"
    ZarrMetadataUpdateOfDeletedGroup = "ours changed the metadata of a group that theirs deleted"
    ChunkDoubleUpdate = "both wrote or erased the same chunks"
    ChunksUpdatedInDeletedArray = "ours wrote chunks of an array that theirs deleted"
    ChunksUpdatedInUpdatedArray = "ours wrote chunks of an array whose metadata theirs changed"
    DeleteOfUpdatedArray = "ours deleted an array that theirs changed"
    DeleteOfUpdatedGroup = "ours deleted a group that theirs changed"
    MoveOperationCannotBeRebased = "theirs moved nodes, over which no changes can be rebased"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One conflict. `coordinates` holds the chunks of a `ChunkDoubleUpdate`: shape (chunks, dimensions)."""

    conflict_type: ConflictType
    path: str
    coordinates: npt.NDArray[np.uint32] | None = field(default=None, compare=False)

    @property
    def conflicted_chunks(self) -> list[list[int]] | None:
        """Return the coordinates as lists; None where the conflict is not about single chunks."""
        return None if self.coordinates is None else self.coordinates.tolist()

    def __str__(self) -> str:
        chunks = "" if self.coordinates is None else f" ({len(self.coordinates)} chunks)"
        return f"{self.path}: {self.conflict_type.value}{chunks}"
