"""Flatbuffers, written from front to back: a table comes before the data that it refers to.

Many tables of one layout are one block.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE_IDENTIFIER = b"Ichk"
_LARGEST = 2**31 - 1
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The positions of the fields in a table."""

    vtable: bytes
    """The bytes of the vtable."""
    size: int
    """The size of the table in bytes, without the data that it refers to."""


def table_layout(size: int, slots: Sequence[int]) -> TableLayout:
    """Return the layout of tables of `size` bytes with fields at the offsets `slots`; 0 for an absent field."""
    return TableLayout(struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), size, *slots), size)


class FlatbufferWriter:
    """A flatbuffer that grows at its end."""

    def __init__(self) -> None:
        self.buffer = bytearray(struct.pack("<I", 0) + FILE_IDENTIFIER)
        self._vtables: dict[bytes, int] = {}

    def vtable(self, layout: TableLayout) -> int:
        """Return the position of a layout's vtable, which is written once."""
        position = self._vtables.get(layout.vtable)
        if position is None:
            position = self.align()
            self.buffer += layout.vtable
            self._vtables[layout.vtable] = position
        return position

    def align(self) -> int:
        """Pad to a multiple of 8 bytes. Return the next position."""
        self.buffer += bytes(-len(self.buffer) % _ALIGNMENT)
        return len(self.buffer)

    def table(self, layout: TableLayout) -> int:
        """Begin a table, all zeros. Return its position."""
        vtable = self.vtable(layout)
        position = self.align()
        self.buffer += struct.pack("<i", position - vtable) + bytes(layout.size - 4)
        return position

    def root(self, layout: TableLayout) -> int:
        """Begin the root table. Return its position."""
        position = self.table(layout)
        struct.pack_into("<I", self.buffer, 0, position)
        return position

    def put(self, position: int, value: bytes) -> None:
        """Write an inline field."""
        self.buffer[position : position + len(value)] = value

    def link(self, field: int, target: int | None = None) -> None:
        """Set an offset field to the next position in the file, or to `target`, which must come after the field."""
        struct.pack_into("<I", self.buffer, field, (len(self.buffer) if target is None else target) - field)

    def blob(self, field: int, value: bytes) -> None:
        """Write a vector of bytes, or a text, that a field refers to."""
        self._pad(4)
        self.link(field)
        # A zero terminates a text.
        self.buffer += struct.pack("<I", len(value)) + value + b"\0"

    def vector(self, field: int, values: npt.NDArray[Any]) -> int:
        """Write a vector of numbers or structs that a field refers to. Return the position of its first element."""
        # Elements of 8 bytes are aligned. Their count comes before them.
        self._pad(_ALIGNMENT, 4)
        self.link(field)
        self.buffer += struct.pack("<I", len(values))
        position = len(self.buffer)
        self.buffer += np.ascontiguousarray(values).tobytes()
        return position

    def offsets(self, field: int, count: int) -> int:
        """Write a vector of offsets, yet to be linked, that a field refers to. Return the position of the first."""
        self._pad(_ALIGNMENT, 4)
        self.link(field)
        position = len(self.buffer) + 4
        self.buffer += struct.pack("<I", count) + bytes(4 * count)
        return position

    def block(self, values: npt.NDArray[Any]) -> int:
        """Write many tables at once. Return the position of the first."""
        position = self.align()
        self.buffer += values.tobytes()
        return position

    def finish(self) -> bytearray:
        """Return the whole buffer."""
        self.align()
        if len(self.buffer) > _LARGEST:
            raise ValueError(
                f"a flatbuffer of {len(self.buffer)} bytes: the format ends at {_LARGEST}. Split manifests "
                "(ManifestSplittingConfig)"
            )
        return self.buffer

    def _pad(self, alignment: int, before: int = 0) -> None:
        self.buffer += bytes(-(len(self.buffer) + before) % alignment)
