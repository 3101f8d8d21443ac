"""Where the values of streams begin: what a scan learns when it reads the types, and uses when it reads the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lake_core.pool.arrow.bodies import Bodies, Positions, read_uvarints, tagged_at
from lake_core.pool.arrow.walk import walk_values
from lake_core.pool.errors import InvalidZng

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lake_core.pool.arrow.bodies import Buffer

Sizes: TypeAlias = "npt.NDArray[np.unsignedinteger[Any]]"
"""How many bytes each value of a frame has, with its id and its tag."""

_MOST_BYTES: Final = 8 << 20


class Outlines:
    """The sizes of values, frame by frame, of streams that are read twice.

    They take a bounded amount of memory: nothing more is kept after that.

    Args:
        most_bytes: How many bytes they take at most.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._left = most_bytes
        self._frames: dict[Hashable, list[Sizes]] = {}

    def frames(self, stream: Hashable) -> list[Sizes]:
        """Return the sizes of the values of the first frames of a stream."""
        return self._frames.get(stream, [])

    def forget(self, stream: Hashable) -> None:
        """Forget the frames of a stream, before it is read again."""
        self._left += sum(sizes.nbytes for sizes in self._frames.pop(stream, []))

    def add(self, stream: Hashable, starts: Positions, end: int) -> None:
        """Keep the sizes of the values of the next frame of a stream: where each begins, and where the last one ends.

        Nothing is kept of a frame after one that had no room.
        """
        sizes = np.diff(starts, append=end)
        sizes = sizes.astype(np.min_scalar_type(int(sizes.max())))
        if sizes.nbytes > self._left:
            self._left = 0
            return
        self._left -= sizes.nbytes
        self._frames.setdefault(stream, []).append(sizes)


def located_values(data: Buffer, end: int, sizes: Sizes | None) -> tuple[Positions, Bodies]:
    """Return the ids and the bodies of consecutive values. Raises InvalidZng.

    Args:
        data: The buffer, which the values are at the start of.
        end: Where the last one ends.
        sizes: How many bytes each has, if that is known. It is verified.
    """
    if sizes is not None:
        located = _of_sizes(data, end, sizes)
        if located is not None:
            return located
    ids, at = read_uvarints(data, walk_values(data[:end]))
    return ids, tagged_at(data, at, end)[0]


def _of_sizes(data: Buffer, end: int, sizes: Sizes) -> tuple[Positions, Bodies] | None:
    """Return the ids and the bodies of values of some sizes; None if the values have other sizes."""
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = ends - sizes
    if not len(ends) or int(ends[-1]) != end:
        return None
    try:
        ids, at = read_uvarints(data, starts)
        bodies, value_ends = tagged_at(data, at, ends)
    except InvalidZng:
        return None
    # The first value begins at the start. So each value that ends where the next is said to begin is where it is.
    return (ids, bodies) if bool((value_ends == ends).all()) else None
