"""The grid of chunks that an array is cut into."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

ChunkRuns: TypeAlias = tuple[tuple[int, int], ...]
"""The lengths of the chunks along a dimension: a length, and how many chunks in a row have it."""


def grid_of(shape: Sequence[int], chunk_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the number of chunks along each dimension, 0 where chunks have no cells.

    The last chunks may be cut off.
    """
    return tuple(-(-length // chunk) if chunk else 0 for length, chunk in zip(shape, chunk_shape, strict=True))


def keeps_chunks(before: Sequence[ChunkRuns], after: Sequence[ChunkRuns]) -> bool:
    """Return whether the chunks of two rectilinear grids have the same bounds, but for the last ones of the smaller."""
    return len(before) == len(after) and all(map(_is_prefix, before, after))


def _is_prefix(before: ChunkRuns, after: ChunkRuns) -> bool:
    common = min(sum(count for _, count in runs) for runs in (before, after)) - 1
    return _first(before, common) == _first(after, common)


def _first(runs: ChunkRuns, count: int) -> ChunkRuns:
    """Return the lengths of the first chunks, in runs of different lengths."""
    first: list[tuple[int, int]] = []
    for size, length in runs:
        taken = min(length, count - sum(number for _, number in first))
        if taken <= 0:
            continue
        if first and first[-1][0] == size:
            first[-1] = (size, first[-1][1] + taken)
        else:
            first.append((size, taken))
    return tuple(first)
