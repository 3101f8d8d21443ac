"""Moves chunks within their arrays, by their references: no data is read or copied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lake_core.icechunk.errors import InvalidChunkIndex
from lake_core.icechunk.manifest import is_in, sorted_references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from lake_core.icechunk.manifest import ChunkReferences
    from lake_core.icechunk.session_state import SessionState
    from lake_core.icechunk.snapshot import ArrayNode

    ChunkMap: TypeAlias = Callable[[Iterable[int]], Iterable[int] | None]
    """Maps the index of a chunk to another one, or to None for none."""


def shift_chunks(session: SessionState, path: str, chunk_offset: Sequence[int]) -> None:
    """Move all chunks of an array by an offset. Those that leave the array are erased, and none takes their place.

    Raises NodeNotFound; InvalidChunkIndex if the offset does not fit the array.
    """
    array = _regular(session, path)
    offset = np.array(list(chunk_offset))
    if offset.shape != (len(array.shape),) or (offset.size and offset.dtype.kind not in "iu"):
        raise InvalidChunkIndex(
            f"the offset of {path} must be {len(array.shape)} whole numbers, one for each dimension, not {chunk_offset}"
        )
    references = session.references(array)
    moved = references.index.astype(np.int64) + offset.astype(np.int64).reshape(-1, 1)
    grid = np.array(array.grid, np.int64).reshape(-1, 1)
    stays: npt.NDArray[np.bool_] = np.all((moved >= 0) & (moved < grid), axis=0)
    _replace(session, path, references, replace(references.take(stays), index=moved[:, stays].astype(np.uint32)))


def reindex_chunks(session: SessionState, path: str, forward: ChunkMap, backward: ChunkMap | None = None) -> None:
    """Move the chunks of an array to where a function says.

    Args:
        session: A writable session.
        path: The path of the array.
        forward: Maps the index of a chunk to its new one, or to None if it stays. Of two chunks that come to one index,
            the later one is kept.
        backward: The inverse of `forward`. With it, a chunk is erased if no chunk comes to its index. Without it, it
            stays also there.

    Raises:
        NodeNotFound: There is no such array.
        InvalidChunkIndex: A function returns an index that the array does not have.
    """
    array = _regular(session, path)
    references = session.references(array)
    indexes = [tuple(index) for index in references.index.T.tolist()]
    targets = [forward(list(index)) for index in indexes]
    moves = np.array([target is not None for target in targets], bool)
    chosen = [tuple(target) for target in targets if target is not None]
    dimensions = len(array.shape)
    outside = next((target for target in chosen if not _is_inside(target, array.grid)), None)
    if outside is not None:
        raise InvalidChunkIndex(f"the chunk {outside} lies outside of the array {path}, which has {array.grid} chunks")
    moved = replace(references.take(moves), index=np.array(chosen, np.uint32).reshape(-1, dimensions).T)
    vacated = np.zeros(len(references), bool)
    if backward is not None:
        occupied = set(indexes)
        sources = [backward(list(index)) for index in indexes]
        vacated = np.array([source is None or tuple(source) not in occupied for source in sources], bool)
    _replace(session, path, references.take(vacated), moved)


def _is_inside(index: tuple[int, ...], grid: tuple[int, ...]) -> bool:
    return len(index) == len(grid) and all(0 <= place < end for place, end in zip(index, grid, strict=True))


def _regular(session: SessionState, path: str) -> ArrayNode:
    array = session.array(path)
    session.check_editable()
    if array.chunk_runs is not None:
        raise InvalidChunkIndex(f"chunks of {path} have several shapes, so that a chunk has no other place in it")
    return array


def _replace(session: SessionState, path: str, old: ChunkReferences, new: ChunkReferences) -> None:
    """Set references, and erase old ones that none of them replaces."""
    if len(new):
        session.set_references(path, sorted_references(new))
    kept = is_in(old.index, new.index)
    for index in old.index.T[~kept].tolist():
        session.erase_chunk(path, tuple(index))
