"""The grid of chunks that an array is cut into."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def grid_of(shape: Sequence[int], chunk_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the number of chunks along each dimension, 0 where chunks have no cells.

    The last chunks may be cut off.
    """
    return tuple(-(-length // chunk) if chunk else 0 for length, chunk in zip(shape, chunk_shape, strict=True))
