"""Entries of many records at once: sizes, etags and times, or addresses, without an object for each.

Entries of the usual shape are decoded by columns: fields in ascending order, an identity of 32 bytes, lengths of up to
two bytes, and no metadata. Others are decoded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from lake_core.graveler.entry import AddressType, Entry
from lake_core.graveler.record import split_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_SIZE_BYTES = 9
"""The most bytes of a number that fits 63 bits."""
_LAST_SECOND = 253_402_300_799


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """The properties of entries, in the order of their records."""

    sizes: list[int]
    """In bytes."""
    etags: list[str]
    modified: list[int]
    """Microseconds since the epoch."""


def entry_columns(values: Sequence[bytes]) -> EntryColumns:
    """Decode the entries of joined values. Raises CorruptTable."""
    if not values:
        return EntryColumns([], [], [])
    reader = _Reader(values)
    reader.skip_identity()
    reader.octets(1)
    seconds, nanoseconds = reader.timestamp(2)
    sizes = reader.number(3)
    etag_starts, etag_ends = reader.octets(4)
    reader.number(6)
    reader.octets(7)
    usual = reader.usual()
    data = reader.data
    bounds = zip(etag_starts.tolist(), etag_ends.tolist(), strict=True)
    try:
        etags = [data[start:end].decode() for start, end in bounds]
    except UnicodeDecodeError:
        usual, etags = np.zeros(len(values), np.bool_), [""] * len(values)
    columns = EntryColumns(sizes.tolist(), etags, (seconds * 1_000_000 + nanoseconds // 1000).tolist())
    for index in np.flatnonzero(~usual).tolist():
        entry = Entry.decode(split_value(values[index])[1])
        columns.sizes[index] = entry.size
        columns.etags[index] = entry.etag
        columns.modified[index] = entry.last_modified // 1000
    return columns


def relative_addresses(values: Sequence[bytes]) -> list[str | None]:
    """Return the address of each entry of the usual shape that is relative to the root, and None for the others.

    The others are to be decoded one by one. This raises no error for those that are damaged.
    """
    if not values:
        return []
    reader = _Reader(values)
    reader.skip_identity()
    starts, ends = reader.octets(1)
    reader.timestamp(2)
    reader.number(3)
    reader.octets(4)
    types = reader.number(6)
    reader.octets(7)
    usual = reader.usual() & (types == AddressType.RELATIVE)
    data = reader.data
    rows = zip(starts.tolist(), ends.tolist(), usual.tolist(), strict=True)
    try:
        return [data[start:end].decode() if is_usual else None for start, end, is_usual in rows]
    except UnicodeDecodeError:
        return [None] * len(values)


class _Reader:
    """Reads the same field of all values, one field after the other."""

    def __init__(self, values: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.data = b"".join(values)
        # Reading past the end of a value is noticed afterwards, so there must be bytes to read.
        self._bytes = np.frombuffer(self.data + bytes(2), np.uint8)
        self._last = len(self.data)
        self._ends = np.cumsum(lengths)
        self._at: _Numbers = self._ends - lengths
        self._is_usual: _Flags = np.ones(len(values), np.bool_)

    def skip_identity(self) -> None:
        """Skip an identity of 32 bytes, and find the end of the entry from its length."""
        self._check(self._byte() == 64)
        self._at = self._at + 33
        doubled = self._varint(np.ones(len(self._at), np.bool_), 2)
        self._check((self._at + (doubled >> 1) <= self._ends) & (doubled & 1 == 0))
        self._ends = self._at + (doubled >> 1)

    def octets(self, field: int) -> tuple[_Numbers, _Numbers]:
        """Return where a field of bytes starts and ends in `data`. An absent field starts where it ends."""
        present = self._tag(field, 2)
        length = self._varint(present, 2)
        start = self._at
        self._at = start + length
        self._check(self._at <= self._ends)
        return np.minimum(start, self._last), np.minimum(self._at, self._last)

    def number(self, field: int) -> _Numbers:
        """Return a number, or 0 where it is absent."""
        return self._varint(self._tag(field, 0), _SIZE_BYTES)

    def timestamp(self, field: int) -> tuple[_Numbers, _Numbers]:
        """Return seconds and nanoseconds, or 0 where they are absent."""
        present = self._tag(field, 2)
        length = self._varint(present, 1)
        outer, self._ends = self._ends, np.where(present, self._at + length, self._at)
        self._check(self._ends <= outer)
        seconds, nanoseconds = self.number(1), self.number(2)
        self._check((self._at == self._ends) & (seconds <= _LAST_SECOND) & (nanoseconds < 1_000_000_000))
        self._ends = outer
        return seconds, nanoseconds

    def usual(self) -> _Flags:
        """Return which values have the usual shape: only fields that were read, in this order."""
        self._check(self._at == self._ends)
        return self._is_usual

    def _check(self, holds: _Flags) -> None:
        self._is_usual &= holds

    def _byte(self) -> npt.NDArray[np.uint8]:
        return self._bytes[np.minimum(self._at, self._last)]

    def _tag(self, field: int, kind: Literal[0, 2]) -> _Flags:
        """Skip the tag of a field, and return which values have the field."""
        present: _Flags = (self._byte() == field << 3 | kind) & (self._at < self._ends)
        self._at = self._at + present
        return present

    def _varint(self, present: _Flags, max_bytes: int) -> _Numbers:
        """Read a number of up to `max_bytes` bytes where it is present."""
        value: _Numbers = np.zeros(len(present), np.int64)
        more = present
        for byte_index in range(max_bytes):
            byte = self._byte()
            value |= np.where(more, byte & 0x7F, 0).astype(np.int64) << (7 * byte_index)
            self._at = self._at + more
            more = more & (byte >= 0x80)
            if not more.any():
                return value
        self._check(~more)
        return value
