"""Where chunks come to that move within their array. Only their references change: no data is read or copied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lake_core.icechunk.change_set import is_inside
from lake_core.icechunk.errors import InvalidChunkIndex
from lake_core.icechunk.manifest import is_in, sorted_references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from lake_core.icechunk.manifest import ChunkReferences

    ChunkMap: TypeAlias = Callable[[Iterable[int]], Iterable[int] | None]
    """Maps the index of a chunk to another one, or to None for none."""


def shifted(
    references: ChunkReferences, grid: tuple[int, ...], chunk_offset: Sequence[int]
) -> tuple[ChunkReferences, npt.NDArray[np.uint32]]:
    """Move chunks by an offset. Return those that stay in the array, and the indexes that no chunk comes to.

    Args:
        references: All chunks of the array.
        grid: The number of chunks along each dimension.
        chunk_offset: The offset, in chunks.

    Returns:
        The references that are to be set, and the indexes, of shape (chunks, dimensions), that are to be erased.

    Raises InvalidChunkIndex if the offset has another number of dimensions.
    """
    offset = np.array(list(chunk_offset))
    if offset.shape != (len(grid),) or (offset.size and offset.dtype.kind not in "iu"):
        raise InvalidChunkIndex(
            f"the offset of an array of {len(grid)} dimensions must be as many whole numbers, not {chunk_offset}"
        )
    targets = references.index.astype(np.int64) + offset.astype(np.int64).reshape(-1, 1)
    ends = np.array(grid, np.int64).reshape(-1, 1)
    stays: npt.NDArray[np.bool_] = np.all((targets >= 0) & (targets < ends), axis=0)
    moved = replace(references.take(stays), index=targets[:, stays].astype(np.uint32))
    return moved, references.index.T[~is_in(references.index, moved.index)]


def reindexed(
    references: ChunkReferences, grid: tuple[int, ...], forward: ChunkMap, backward: ChunkMap | None = None
) -> tuple[ChunkReferences, npt.NDArray[np.uint32]]:
    """Move chunks to where a function says. Return those that move, and the indexes that no chunk comes to.

    Args:
        references: All chunks of the array.
        grid: The number of chunks along each dimension.
        forward: Maps the index of a chunk to its new one, or to None if it stays. Of two chunks that come to one index,
            the later one is kept.
        backward: The inverse of `forward`. Without it, a chunk stays also at its old index.

    Returns:
        The references that are to be set, and the indexes, of shape (chunks, dimensions), that are to be erased.

    Raises InvalidChunkIndex for an index that the array does not have.
    """
    indexes = [tuple(index) for index in references.index.T.tolist()]
    targets = [forward(list(index)) for index in indexes]
    chosen = [tuple(target) for target in targets if target is not None]
    outside = next((target for target in chosen if min(target, default=0) < 0 or not is_inside(target, grid)), None)
    if outside is not None:
        raise InvalidChunkIndex(f"the chunk {outside} lies outside of the array, which has {grid} chunks")
    moves = np.array([target is not None for target in targets], bool)
    moved = replace(references.take(moves), index=np.array(chosen, np.uint32).reshape(-1, len(grid)).T)
    vacated = np.zeros(len(references), bool)
    if backward is not None:
        occupied = set(indexes)
        sources = [backward(list(index)) for index in indexes]
        vacated = np.array([source is None or tuple(source) not in occupied for source in sources], bool)
    return sorted_references(moved), references.index.T[vacated & ~is_in(references.index, moved.index)]
