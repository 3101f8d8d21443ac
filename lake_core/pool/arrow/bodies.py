"""The bodies of many values in one buffer, as positions and sizes: the input of the column readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.pool.arrow.arrays import Integers, Mask, integers
from lake_core.pool.errors import InvalidZng

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Positions: TypeAlias = npt.NDArray[np.int64]
Buffer: TypeAlias = npt.NDArray[np.uint8]

PADDING: Final = bytes(16)
"""Zeros after the end of a buffer. They allow numbers to be read at every position."""
_COPIED_TOGETHER: Final = 1 << 18
"""How many bodies of several columns are copied at once, at most: few enough for a processor's cache."""


class Bodies:
    """Bodies of values of one type, in the order of their positions.

    Args:
        data: The buffer, followed by PADDING.
        starts: Where each body begins, in bytes from the start of the buffer. Meaningless for null.
        sizes: How many bytes each has; -1 for null.
    """

    __slots__ = ("_at", "_extremes", "_sizes", "_starts", "_tags", "data")

    def __init__(self, data: Buffer, starts: Positions, sizes: Positions) -> None:
        self.data = data
        self._at = starts
        self._starts: Positions | None = starts
        self._sizes: Positions | None = sizes
        self._tags: Buffer | None = None
        self._extremes: tuple[int, int] | None = None

    @classmethod
    def tagged(cls, data: Buffer, at: Positions, tags: Buffer) -> Bodies:
        """Return the bodies of values whose tags take one byte. A wide record has many, which take less memory so.

        Args:
            data: The buffer.
            at: The positions of the tags.
            tags: The tags.
        """
        bodies = cls(data, at, at)
        bodies._starts = bodies._sizes = None
        bodies._tags = tags
        return bodies

    def __len__(self) -> int:
        return len(self._at)

    @property
    def starts(self) -> Positions:
        """Return where each body begins, in bytes from the start of the buffer. Meaningless for null."""
        if self._starts is None:
            self._starts = self._at + 1
        return self._starts

    @property
    def sizes(self) -> Positions:
        """Return how many bytes each body has; -1 for null."""
        if self._sizes is None:
            assert self._tags is not None
            self._sizes = self._tags.astype(np.int64)
            self._sizes -= 1
        return self._sizes

    @property
    def end(self) -> int:
        """Return where the buffer ends, without its padding."""
        return len(self.data) - len(PADDING)

    def bounds_into(self, starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]) -> None:
        """Write where each body begins and ends into arrays. A null begins and ends at 0."""
        if self._tags is None:
            starts[:], ends[:] = self.starts, self.sizes
            ends += starts
        else:
            starts[:] = self._at
            np.add(starts, self._tags, out=ends)
            starts += 1
        if self.has_nulls():
            is_null = ~self.valid()
            starts[is_null] = ends[is_null] = 0

    def valid(self) -> Mask:
        """Return which values are not null."""
        return self.sizes >= 0 if self._tags is None else self._tags > 0

    def bitmap(self) -> pa.Buffer | None:
        """Return the bitmap of the values that are not null; None if no value is null."""
        return validity(self.valid()) if self.has_nulls() else None

    def select(self, rows: Positions | Mask) -> Bodies:
        """Return some of the bodies."""
        if self._tags is None:
            return Bodies(self.data, self.starts[rows], self.sizes[rows])
        return Bodies.tagged(self.data, self._at[rows], self._tags[rows])

    def spread(self, rows: Mask) -> Bodies:
        """Return the bodies at the rows where a mask is true, with nulls at the other rows."""
        at = np.zeros(len(rows), np.int64)
        at[rows] = self._at
        if self._tags is None:
            sizes = np.full(len(rows), -1, np.int64)
            sizes[rows] = self.sizes
            return Bodies(self.data, at, sizes)
        tags = np.zeros(len(rows), np.uint8)
        tags[rows] = self._tags
        return Bodies.tagged(self.data, at, tags)

    @property
    def extremes(self) -> tuple[int, int]:
        """Return the smallest and the largest size; (0, -1) if there are no values."""
        if self._extremes is None:
            if not len(self):
                self._extremes = 0, -1
            elif self._tags is None:
                self._extremes = int(np.minimum.reduce(self.sizes)), int(np.maximum.reduce(self.sizes))
            else:
                self._extremes = int(np.minimum.reduce(self._tags)) - 1, int(np.maximum.reduce(self._tags)) - 1
        return self._extremes

    def largest(self) -> int:
        """Return the largest size; -1 if all values are null."""
        return self.extremes[1]

    def has_nulls(self) -> bool:
        """Return whether a value is null."""
        return self.extremes[0] < 0

    def numbers(self, dtype: str) -> npt.NDArray[Any]:
        """Return the number at the start of each body. For a shorter body, it includes the bytes after it."""
        kind = np.dtype(dtype)
        if self.largest() < 0:
            return np.zeros(len(self), kind)
        every_byte: npt.NDArray[Any] = np.ndarray((len(self.data) - kind.itemsize + 1,), kind, self.data, strides=(1,))
        return every_byte[np.where(self.sizes < 0, 0, self.starts) if self.has_nulls() else self.starts]

    def binary(self) -> pa.Array:
        """Return the bodies as a binary array, without the bytes between them."""
        return pa.Array.from_buffers(pa.binary(), len(self), next(binary_columns([self])))


def binary_columns(columns: Sequence[Bodies]) -> Iterator[tuple[pa.Buffer | None, pa.Buffer, pa.Buffer]]:
    """Yield the buffers of columns as binary arrays, without the bytes between the bodies.

    Consecutive columns share the buffer of their bytes.

    Args:
        columns: Fields of the same records, in the order of the fields. Their bodies are in one buffer.
    """
    if not columns:
        return
    rows = len(columns[0])
    together = max(1, _COPIED_TOGETHER // max(rows, 1))
    for first in range(0, len(columns), together):
        group = columns[first : first + together]
        # In a wide record, many fields have no bytes in any of the rows.
        have_bytes = [column.largest() > 0 for column in group]
        used = [column for column, has_bytes in zip(group, have_bytes, strict=True) if has_bytes]
        no_offsets = pa.py_buffer(bytes(4 * (rows + 1)))
        offsets, data = _copied(used).buffers()[1:] if used else (no_offsets, pa.py_buffer(b""))
        at = 0
        for column, has_bytes in zip(group, have_bytes, strict=True):
            if has_bytes:
                yield column.bitmap(), offsets.slice(at, 4 * (rows + 1)), data
                at += 4 * rows
            else:
                yield column.bitmap(), no_offsets, data


def _copied(columns: Sequence[Bodies]) -> pa.Array:
    """Return the bodies of columns, one column after another, as a binary array. Nulls become empty."""
    rows, count = len(columns[0]), len(columns)
    starts, ends = np.empty((2, count, rows), np.int32)
    for number, column in enumerate(columns):
        column.bounds_into(starts[number], ends[number])
    # Every second element is a body, row by row; the elements between them are the bytes between two bodies.
    offsets = np.empty(2 * rows * count + 1, np.int32)
    bounds = offsets[:-1].reshape(rows, count, 2)
    bounds[:, :, 0], bounds[:, :, 1] = starts.T, ends.T
    if any(column.has_nulls() for column in columns):
        # A null is empty, where the body before it ends.
        np.maximum.accumulate(offsets[:-1], out=offsets[:-1])
    offsets[-1] = offsets[-2]
    elements = pa.Array.from_buffers(
        pa.binary(), 2 * rows * count, [None, pa.py_buffer(offsets), pa.py_buffer(columns[0].data)]
    )
    by_column = np.arange(0, 2 * rows * count, 2, dtype=np.int32).reshape(rows, count).T.ravel()
    return elements.take(integers(by_column))


def buffer_of(*pieces: bytes | pa.Buffer) -> Buffer:
    """Return bytes as a buffer with padding. Joins several pieces."""
    return np.frombuffer(b"".join([*pieces, PADDING]), np.uint8)


def validity(valid: Mask) -> pa.Buffer | None:
    """Return the bitmap of the valid values; None if no value is null."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def read_uvarints(data: Buffer, at: Positions) -> tuple[Positions, Positions]:
    """Return the numbers at some positions, and the positions after them.

    Raises InvalidZng for numbers of more than 62 bits.
    """
    first = data[at]
    numbers = first.astype(np.int64)
    ends = at + 1
    if not len(at) or first.max() < 0x80:
        return numbers, ends
    rows = np.flatnonzero(first >= 0x80)
    numbers[rows] &= 0x7F
    shift = 7
    while len(rows):
        if shift > 55:
            raise InvalidZng("a tag or type id has more than 62 bits")
        positions = ends[rows]
        if int(positions.max()) >= len(data):
            raise InvalidZng("a tag or type id is cut short")
        bytes_ = data[positions]
        numbers[rows] |= (bytes_ & 0x7F).astype(np.int64) << shift
        ends[rows] += 1
        rows = rows[bytes_ >= 0x80]
        shift += 7
    return numbers, ends


def distinct(numbers: Integers) -> Integers:
    """Return the distinct numbers in ascending order. Fast where all are the same, as the ids of types mostly are."""
    return numbers[:1] if bool((numbers == numbers[:1]).all()) else np.unique(numbers)


def positions_by_number(numbers: Integers) -> Iterator[tuple[int, Positions]]:
    """Yield the distinct numbers in ascending order, each with the positions at which it occurs."""
    found = distinct(numbers)
    if len(found) < 2:
        yield from ((int(number), np.arange(len(numbers))) for number in found)
        return
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], found)
    yield from zip(found.tolist(), np.split(order, bounds[1:]), strict=True)


def occurrences(numbers: Integers) -> list[tuple[int, int]]:
    """Return each distinct number and how often it occurs, in the order in which they occur first."""
    if len(distinct(numbers)) < 2:
        return [(int(number), len(numbers)) for number in numbers[:1]]
    unique, firsts, counts = np.unique(numbers, return_index=True, return_counts=True)
    return [(int(unique[each]), int(counts[each])) for each in np.argsort(firsts)]


def tagged_at(data: Buffer, at: Positions, limits: Positions | int) -> tuple[Bodies, Positions]:
    """Return the bodies of the tagged values at some positions, and the positions after them.

    Args:
        data: The buffer.
        at: The positions of the tags.
        limits: Where the container of each value ends.

    Raises:
        InvalidZng: A value extends past its limit.
    """
    tags, starts = read_uvarints(data, at)
    sizes = tags - 1
    ends = starts + np.maximum(sizes, 0)
    if bool((ends > limits).any()):
        ends_early = bool((at >= limits).any())
        raise InvalidZng(
            "a container ends before its last value" if ends_early else "a value extends past the end of its container"
        )
    return Bodies(data, starts, sizes), ends


def split_records(records: Bodies, count: int, *, exact: bool) -> list[Bodies]:
    """Return the bodies of the first fields of records. The fields of a null record are null.

    Args:
        records: The records.
        count: How many fields to return.
        exact: Whether the records must have exactly this many fields.

    Raises:
        InvalidZng: A record has fewer fields than `count`, or more if the number must be exact.
    """
    is_whole = not records.has_nulls()
    valid = records.valid()
    rows = records if is_whole else records.select(valid)
    limits = rows.starts + rows.sizes
    fields, ends = _fields_at(rows.data, rows.starts, limits, count)
    if exact and bool((ends != limits).any()):
        raise InvalidZng(f"a record of {count} fields has more than {count} values")
    return fields if is_whole else [field.spread(valid) for field in fields]


def _fields_at(data: Buffer, at: Positions, limits: Positions, count: int) -> tuple[list[Bodies], Positions]:
    """Return the bodies of consecutive tagged values at some positions, column by column, and the positions after them.

    Raises InvalidZng; see `tagged_at`.
    """
    fields = []
    ends = at
    try:
        for _ in range(count):
            field, ends = _unlimited_at(data, ends)
            fields.append(field)
    except (IndexError, InvalidZng):
        pass
    else:
        # No value begins before the one before it ends. So none extends past the limit if the last one does not.
        if not bool((ends > limits).any()):
            return fields, ends
    fields = []
    for _ in range(count):
        field, at = tagged_at(data, at, limits)
        fields.append(field)
    return fields, at


def _unlimited_at(data: Buffer, at: Positions) -> tuple[Bodies, Positions]:
    """Return the bodies of the tagged values at some positions, and the positions after them.

    Raises IndexError where a position is past the end of the buffer, and InvalidZng for a tag of more than 62 bits.
    """
    first = data[at]
    field = Bodies.tagged(data, at, first)
    smallest, largest = field.extremes
    if largest >= 0x7F:
        tags, starts = read_uvarints(data, at)
        sizes = tags - 1
        return Bodies(data, starts, sizes), starts + np.maximum(sizes, 0)
    if smallest == largest:
        return field, at + max(largest + 1, 1)
    return field, at + (first if smallest >= 0 else np.maximum(first, 1))
