"""Footers of Parquet files without the bounds that readers draw wrong conclusions from.

A footer is a Thrift struct in the compact protocol. This walks it, and overwrites some values in place, so that no
length and no offset changes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.store.object_store import ObjectStore

_TRAILER = 8
"""The bytes after a footer: its length, and the magic bytes."""
_MAGIC = b"PAR1"
_GUESS = 1 << 16
"""How many bytes are read first. Most footers are shorter."""

# Types of the compact protocol.
_BOOLEANS, _BYTE, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, 7, 8, (9, 10), 11, 12

# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA, _PHYSICAL_TYPE, _STATISTICS = 4, 1, 3, 1, 12
_BOUNDS = frozenset({1, 2, 5, 6})
"""`max`, `min`, `max_value` and `min_value` of Statistics."""

_NAN_BY_TYPE = {4: struct.pack("<f", float("nan")), 5: struct.pack("<d", float("nan"))}
"""The bytes of a NaN, by the physical type: FLOAT or DOUBLE."""


def read_tail(store: ObjectStore, key: str, size: int) -> bytes:
    """Read the end of a Parquet file, from the first byte of its footer on. Mostly that is one request.

    Raises NotFound and the store's other errors. What is no Parquet file is not noticed.
    """
    read = min(size, _GUESS)
    tail = bytes(store.get(key, size - read, size))
    length = min(int.from_bytes(tail[-_TRAILER:-4], "little") + _TRAILER, size)
    return tail[-length:] if length <= read else bytes(store.get(key, size - length, size))


def without_float_bounds(tail: bytes) -> bytes:
    """Return the end of a Parquet file, with NaN as every bound of floating-point columns.

    Bounds leave NaN out, though some rows may hold it. Readers ignore a bound that is NaN.

    Args:
        tail: The bytes of the file from the first one of the footer to the end.

    Raises:
        OSError: The footer is damaged.
    """
    if not tail.endswith(_MAGIC):
        return tail  # whoever reads the file says what it is
    footer = _Footer(bytearray(tail))
    try:
        footer.blank_file()
    except (IndexError, RecursionError):
        raise OSError("its footer is damaged") from None
    return bytes(footer.data)


class _Footer:
    """A position in the bytes of a footer."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self._position = 0

    def blank_file(self) -> None:
        for field, kind in self._fields():
            if field == _ROW_GROUPS:
                for _ in self._elements():
                    self._blank_row_group()
            else:
                self._skip(kind)

    def _blank_row_group(self) -> None:
        for field, kind in self._fields():
            if field == _COLUMNS:
                for _ in self._elements():
                    self._blank_column()
            else:
                self._skip(kind)

    def _blank_column(self) -> None:
        for field, kind in self._fields():
            if field == _META_DATA:
                self._blank_column_metadata()
            else:
                self._skip(kind)

    def _blank_column_metadata(self) -> None:
        nan = None
        for field, kind in self._fields():
            if field == _PHYSICAL_TYPE:
                nan = _NAN_BY_TYPE.get(_unzigzag(self._varint()))
            elif field == _STATISTICS and nan is not None:
                self._blank_statistics(nan)
            else:
                self._skip(kind)

    def _blank_statistics(self, nan: bytes) -> None:
        for field, kind in self._fields():
            if field in _BOUNDS:
                length = self._varint()
                if length == len(nan):
                    self.data[self._position : self._position + length] = nan
                self._position += length
            else:
                self._skip(kind)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct. The caller moves past its value."""
        field = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            field = field + delta if delta else _unzigzag(self._varint())
            yield field, kind

    def _elements(self) -> Iterator[int]:
        """Yield the type of each element of a list. The caller moves past it."""
        head = self._byte()
        length = head >> 4
        if length == 15:
            length = self._varint()
        for _ in range(length):
            yield head & 15

    def _skip(self, kind: int, *, in_list: bool = False) -> None:
        if kind in _BOOLEANS:
            self._position += in_list  # the type of a field is its value
        elif kind == _BYTE:
            self._position += 1
        elif kind == _DOUBLE:
            self._position += 8
        elif kind == _BINARY:
            length = self._varint()
            self._position += length
        elif kind in _LISTS:
            for element in self._elements():
                self._skip(element, in_list=True)
        elif kind == _MAP:
            if length := self._varint():
                kinds = self._byte()
                for _ in range(length):
                    self._skip(kinds >> 4, in_list=True)
                    self._skip(kinds & 15, in_list=True)
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner)
        else:
            self._varint()

    def _byte(self) -> int:
        value = self.data[self._position]
        self._position += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
