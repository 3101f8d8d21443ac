"""Large objects in parts, so that a copy of one does not hold all of it in memory."""

from __future__ import annotations

import mmap
import tempfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PART: Final = 8 << 20
"""The largest part of an object that is held in memory, in bytes."""


def parts_of(size: int) -> Iterator[tuple[int, int]]:
    """Yield the range of each part of an object of this size, as start and end."""
    for start in range(0, size, PART):
        yield start, min(start + PART, size)


def read_in_parts(size: int, read: Callable[[int, int], bytes]) -> bytes | memoryview:
    """Return the bytes of an object. Those of a large one are in a temporary file, which takes them part by part.

    Args:
        size: The size of the object in bytes.
        read: Returns the bytes of a range, given its start and its end.
    """
    if size <= PART:
        return read(0, size)
    with tempfile.TemporaryFile() as file:
        for start, end in parts_of(size):
            file.write(read(start, end))
        file.flush()
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
