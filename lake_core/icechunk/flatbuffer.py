"""Flatbuffers, read with every offset checked: one table at a time, or the same field of many tables as a column."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.errors import DamagedObject

if TYPE_CHECKING:
    from collections.abc import Iterator

Positions: TypeAlias = npt.NDArray[np.int64]
"""Positions in a buffer, in bytes from its start. 0 stands for absent, as no table or vector can be there."""

_LARGEST_EXPANSION = 16
"""How many bytes of text one byte of a buffer may stand for, as equal texts are stored once."""
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_U64 = struct.Struct("<Q")


class FlatbufferError(Exception):
    """An offset or a length points outside of the flatbuffer, or a required field is absent."""


@contextmanager
def damage_of(path: str) -> Iterator[None]:
    """Raise DamagedObject for the object at `path` where its flatbuffer is not valid."""
    try:
        yield
    except FlatbufferError as error:
        raise DamagedObject(path, str(error)) from None
    except UnicodeDecodeError:
        raise DamagedObject(path, "a text in it is not UTF-8") from None


def check_total(size: int, buffer: bytes) -> None:
    """Raise FlatbufferError if texts that share their bytes would take much more memory than their buffer."""
    if size > _LARGEST_EXPANSION * len(buffer):
        raise FlatbufferError(f"its texts stand for {size} bytes, more than a file of its size can hold")


class Table:
    """One table in a buffer."""

    __slots__ = ("_vtable", "_vtable_length", "buffer", "position")

    def __init__(self, buffer: bytes, position: int) -> None:
        self.buffer = buffer
        self.position = position
        self._vtable = position - _unpack(_I32, buffer, position)
        self._vtable_length = _unpack(_U16, buffer, self._vtable)

    @classmethod
    def root(cls, buffer: bytes) -> Table:
        """Return the table that a buffer begins with."""
        return cls(buffer, _unpack(_U32, buffer, 0))

    def field(self, slot: int) -> int:
        """Return the position of a field, or 0 if it is absent."""
        entry = 4 + 2 * slot
        if entry + 2 > self._vtable_length:
            return 0
        offset = _unpack(_U16, self.buffer, self._vtable + entry)
        return self.position + offset if offset else 0

    def uint8(self, slot: int) -> int:
        """Return a byte; 0 by default."""
        position = self.field(slot)
        return self.structure(slot, 1)[0] if position else 0

    def uint16(self, slot: int) -> int:
        """Return a number of 2 bytes; 0 by default."""
        position = self.field(slot)
        return _unpack(_U16, self.buffer, position) if position else 0

    def uint32(self, slot: int) -> int:
        """Return a number of 4 bytes; 0 by default."""
        position = self.field(slot)
        return _unpack(_U32, self.buffer, position) if position else 0

    def uint64(self, slot: int) -> int:
        """Return a number of 8 bytes; 0 by default."""
        position = self.field(slot)
        return _unpack(_U64, self.buffer, position) if position else 0

    def structure(self, slot: int, size: int) -> bytes:
        """Return the bytes of a required inline struct."""
        position = self.field(slot)
        if not position or position + size > len(self.buffer):
            raise FlatbufferError(f"field {slot} of a table is absent or lies outside of the file")
        return self.buffer[position : position + size]

    def optional_structure(self, slot: int, size: int) -> bytes | None:
        """Return the bytes of an inline struct, or None if it is absent."""
        return self.structure(slot, size) if self.field(slot) else None

    def table(self, slot: int) -> Table:
        """Return a required table."""
        return Table(self.buffer, self._target(slot))

    def vector(self, slot: int, stride: int, *, required: bool = True) -> tuple[int, int]:
        """Return the position of a vector's first element, and the number of elements.

        `stride`: bytes of one element.
        """
        if not required and not self.field(slot):
            return 0, 0
        position = self._target(slot)
        count = _unpack(_U32, self.buffer, position)
        if position + 4 + count * stride > len(self.buffer):
            raise FlatbufferError(f"a vector of {count} elements extends past the end of the file")
        return position + 4, count

    def blob(self, slot: int) -> bytes:
        """Return a required vector of bytes."""
        start, count = self.vector(slot, 1)
        return self.buffer[start : start + count]

    def string(self, slot: int) -> str:
        """Return a required text."""
        return self.blob(slot).decode()

    def optional_string(self, slot: int) -> str | None:
        """Return a text, or None if it is absent."""
        return self.string(slot) if self.field(slot) else None

    def optional_blob(self, slot: int) -> bytes | None:
        """Return a vector of bytes, or None if it is absent."""
        return self.blob(slot) if self.field(slot) else None

    def texts(self, slot: int) -> list[str]:
        """Return a required vector of texts."""
        start, count = self.vector(slot, 4)
        texts = []
        total = 0
        for position in range(start, start + 4 * count, 4):
            target = position + _unpack(_U32, self.buffer, position)
            length = _unpack(_U32, self.buffer, target)
            if target + 4 + length > len(self.buffer):
                raise FlatbufferError("a text extends past the end of the file")
            total += length
            check_total(total, self.buffer)
            texts.append(self.buffer[target + 4 : target + 4 + length].decode())
        return texts

    def array(self, slot: int, dtype: npt.DTypeLike, *, required: bool = True) -> npt.NDArray[Any]:
        """Return a vector of numbers or structs, not copied."""
        kind = np.dtype(dtype)
        start, count = self.vector(slot, kind.itemsize, required=required)
        return np.frombuffer(self.buffer, kind, count, start if count else 0)

    def tables(self, slot: int, *, required: bool = True) -> Tables:
        """Return a vector of tables."""
        start, count = self.vector(slot, 4, required=required)
        positions = start + 4 * np.arange(count, dtype=np.int64)
        return Tables(self.buffer, positions + np.frombuffer(self.buffer, "<u4", count, start if count else 0))

    def nth(self, start: int, number: int) -> Table:
        """Return one table of a vector that begins at `start`: `vector` has checked that it is there."""
        position = start + 4 * number
        return Table(self.buffer, position + _unpack(_U32, self.buffer, position))

    def _target(self, slot: int) -> int:
        position = self.field(slot)
        if not position:
            raise FlatbufferError(f"the required field {slot} of a table is absent")
        return position + _unpack(_U32, self.buffer, position)


class Tables:
    """Several tables of one kind in a buffer, read column by column."""

    __slots__ = ("_vtable_lengths", "_vtables", "buffer", "positions")

    def __init__(self, buffer: bytes, positions: Positions) -> None:
        self.buffer = buffer
        self.positions = positions
        self._vtables = positions - self._read("<i4", positions)
        self._vtable_lengths = self._read("<u2", self._vtables)

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, number: int) -> Table:
        return Table(self.buffer, int(self.positions[number]))

    def fields(self, slot: int) -> Positions:
        """Return the position of a field in each table."""
        entry = 4 + 2 * slot
        present = self._vtable_lengths >= entry + 2
        offsets = self._read("<u2", np.where(present, self._vtables + entry, self._vtables))
        return np.where(present & (offsets != 0), self.positions + offsets, 0)

    def numbers(self, slot: int, dtype: str) -> npt.NDArray[Any]:
        """Return a number of each table; 0 by default."""
        fields = self.fields(slot)
        return np.where(fields != 0, self._read(dtype, fields), 0).astype(dtype)

    def structures(self, slot: int, size: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
        """Return which tables have an inline struct, and its bytes: shape (tables, `size`), zeros if absent."""
        fields = self.fields(slot)
        present = fields != 0
        structures: npt.NDArray[np.uint8] = (
            self._read(f"V{size}", fields).reshape(-1, 1).view(np.uint8).reshape(len(self), size)
        )
        structures[~present] = 0
        return present, structures

    def required_structures(self, slot: int, size: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of an inline struct that every table must have: shape (tables, `size`)."""
        present, structures = self.structures(slot, size)
        if not present.all():
            raise FlatbufferError(f"the required field {slot} of a table is absent")
        return structures

    def vectors(self, slot: int, stride: int, *, required: bool = False) -> tuple[Positions, Positions]:
        """Return the position of each table's first vector element (0 if absent), and the numbers of elements."""
        fields = self.fields(slot)
        present = fields != 0
        if required and not present.all():
            raise FlatbufferError(f"the required field {slot} of a table is absent")
        targets = np.where(present, fields + self._read("<u4", fields), 0)
        counts = np.where(present, self._read("<u4", targets), 0).astype(np.int64)
        if len(counts) and int((targets + 4 + counts * stride).max()) > len(self.buffer):
            raise FlatbufferError("a vector extends past the end of the file")
        return np.where(present, targets + 4, 0), counts

    def _read(self, dtype: str, positions: Positions) -> npt.NDArray[Any]:
        kind = np.dtype(dtype)
        if not len(positions):
            return np.empty(0, kind)
        if int(positions.min()) < 0 or int(positions.max()) + kind.itemsize > len(self.buffer):
            raise FlatbufferError("an offset leads outside of the file")
        # A view of the buffer that begins a number at every byte: fields need not be aligned.
        every_byte: npt.NDArray[Any] = np.ndarray(
            (len(self.buffer) - kind.itemsize + 1,), kind, self.buffer, strides=(1,)
        )
        return every_byte[positions]


def _unpack(kind: struct.Struct, buffer: bytes, position: int) -> int:
    if position < 0 or position + kind.size > len(buffer):
        raise FlatbufferError("an offset leads outside of the file")
    return int(kind.unpack_from(buffer, position)[0])
