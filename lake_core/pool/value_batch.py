"""Values in batches, encoded as in a stream.

They are sorted, merged and written without a Python object for each value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.pool.arrow.arrays import Mask, binaries, integers
from lake_core.pool.arrow.bodies import (
    Bodies,
    Positions,
    buffer_of,
    distinct,
    occurrences,
    positions_by_number,
    read_uvarints,
    tagged_at,
)
from lake_core.pool.arrow.column_writer import offsets_of, write_column
from lake_core.pool.arrow.columns import Column, column_of
from lake_core.pool.arrow.shapes import Shape
from lake_core.pool.arrow.table import from_table
from lake_core.pool.arrow.walk import walk_values
from lake_core.pool.value import Value
from lake_core.pool.zng.reader import read_payloads
from lake_core.pool.zng.tag import read_tagged, tagged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lake_core.pool.types import Type
    from lake_core.pool.zng.frame import Source
    from lake_core.pool.zng.writer import ZngWriter

Codes: TypeAlias = npt.NDArray[np.int32]

_PIECE_VALUES: Final = 4096
_ARROW_ROWS: Final = 1 << 16
_ARROW_BYTES: Final = 16 << 20
_TAG_LIMITS: Final = np.array([(1 << 7 * width) - 2 + width for width in range(1, 5)])
"""The largest values, in bytes with their tags, whose tags take one byte, two, and so on."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueBatch:
    """Values of any types.

    Attributes:
        types: The distinct types.
        codes: The position of each value's type among the types.
        encoded: The tag and the body of each value, as a binary array without nulls.
    """

    types: tuple[Type, ...]
    codes: Codes
    encoded: pa.Array

    @classmethod
    def of_values(cls, values: Sequence[Value]) -> ValueBatch:
        """Return values as a batch."""
        types: dict[Type, int] = {}
        codes = np.array([types.setdefault(value.type, len(types)) for value in values], np.int32)
        return cls(tuple(types), codes, binaries([tagged(value.body) for value in values]))

    @classmethod
    def of_column(cls, type: Type, array: pa.Array) -> ValueBatch:
        """Return an Arrow array as values of a type. Raises InvalidValue."""
        return cls((type,), np.zeros(len(array), np.int32), write_column(type, array))

    @classmethod
    def concat(cls, batches: Sequence[ValueBatch]) -> ValueBatch:
        """Return the values of all batches in one."""
        if len(batches) == 1:
            return batches[0]
        types: dict[Type, int] = {}
        codes = []
        for batch in batches:
            numbers = np.array([types.setdefault(type, len(types)) for type in batch.types], np.int32)
            codes.append(numbers[batch.codes] if len(numbers) else batch.codes)
        encoded = [batch.encoded for batch in batches]
        return cls(
            tuple(types),
            np.concatenate(codes) if codes else np.zeros(0, np.int32),
            pa.concat_arrays(encoded or [binaries([])]),
        )

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def bodies(self) -> Bodies:
        """Return the positions of the bodies. Copies the bytes. Raises InvalidZng."""
        offsets = offsets_of(self.encoded)
        first = int(offsets[0])
        data = buffer_of((self.encoded.buffers()[2] or pa.py_buffer(b"")).slice(first, int(offsets[-1]) - first))
        return tagged_at(data, offsets[:-1] - first, offsets[1:] - first)[0]

    @property
    def nbytes(self) -> int:
        """Return how many bytes the values take, with their tags."""
        offsets = offsets_of(self.encoded)
        return int(offsets[-1] - offsets[0])

    def body_sizes(self) -> Positions:
        """Return how many bytes each body has; 0 for null."""
        sizes = np.diff(offsets_of(self.encoded))
        # A tag of one byte precedes bodies of up to 126 bytes. Each further byte of the tag multiplies that by 128.
        return sizes - 1 - np.searchsorted(_TAG_LIMITS, sizes)

    def slice(self, start: int, stop: int) -> ValueBatch:
        """Return the values from a position to another. Nothing is copied."""
        return ValueBatch(self.types, self.codes[start:stop], self.encoded.slice(start, stop - start))

    def take(self, rows: Positions) -> ValueBatch:
        """Return the values at positions."""
        return ValueBatch(self.types, self.codes[rows], self.encoded.take(integers(rows)))

    def filter(self, mask: Mask) -> ValueBatch:
        """Return the values for which a mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def value(self, row: int) -> Value:
        """Return the value at a position. Raises InvalidZng."""
        return Value(self.types[self.codes[row]], read_tagged(self.encoded[row].as_py(), 0)[0])

    def values(self) -> Iterator[Value]:
        """Yield the values one by one."""
        for start in range(0, len(self), _PIECE_VALUES):
            piece = self.slice(start, start + _PIECE_VALUES)
            for code, encoded in zip(piece.codes.tolist(), piece.encoded.to_pylist(), strict=True):
                yield Value(self.types[code], read_tagged(encoded, 0)[0])

    def shapes(self) -> list[Shape]:
        """Return each distinct type, and how many values have it, in the order of their first values."""
        return [Shape(self.types[code], count) for code, count in occurrences(self.codes)]

    def write_to(self, writer: ZngWriter) -> None:
        """Write the values, as if they were written one by one."""
        writer.write_encoded(
            self.types, self.codes, memoryview(self.encoded.buffers()[2] or b""), offsets_of(self.encoded)
        )

    def columns(self, names: Collection[str] | None = None) -> list[Column]:
        """Return the values of each type as a column of Arrow; see `read_columns`. Raises InvalidZng, InvalidValue."""
        bodies = self.bodies
        columns = []
        for code, rows in positions_by_number(self.codes):
            of_type = bodies if len(rows) == len(self) else bodies.select(rows)
            columns.append(column_of(self.types[code], of_type, rows, len(bodies.data), names))
        return columns


def batches_of_values(values: Iterable[Value], most_values: int = _PIECE_VALUES) -> Iterator[ValueBatch]:
    """Yield values in batches of a bounded size."""
    piece: list[Value] = []
    for value in values:
        piece.append(value)
        if len(piece) == most_values:
            yield ValueBatch.of_values(piece)
            piece = []
    if piece:
        yield ValueBatch.of_values(piece)


def batches_of_arrow(batch: pa.RecordBatch) -> Iterator[ValueBatch]:
    """Yield the rows of a record batch in batches of a bounded size.

    Raises InvalidType, InvalidValue; see `from_table`.
    """
    rows = max(1, min(_ARROW_ROWS, _ARROW_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, rows):
        type, arrays = from_table(pa.Table.from_batches([batch.slice(start, rows)]))
        for array in arrays:
            yield ValueBatch.of_column(type, array)


def read_batches(source: Source) -> Iterator[ValueBatch]:
    """Yield the values of ZNG streams, those of each frame as a batch. Raises InvalidZng.

    Args:
        source: The bytes, or a file.
    """
    for types, (payload,) in read_payloads(source):
        data = np.frombuffer(payload, np.uint8)
        starts = walk_values(data, payload)
        ids, tags = read_uvarints(data, starts)
        type_ids = distinct(ids)
        codes = np.searchsorted(type_ids, ids)
        # Every second element of this array is a value with its tag; the others are the ids of their types.
        bounds = np.empty(2 * len(starts) + 1, np.int32)
        bounds[0:-1:2], bounds[1::2], bounds[-1] = starts, tags, len(payload)
        between = pa.Array.from_buffers(
            pa.binary(), 2 * len(starts), [None, pa.py_buffer(bounds), pa.py_buffer(payload)]
        )
        encoded = between.take(integers(np.arange(1, 2 * len(starts), 2, dtype=np.int32)))
        yield ValueBatch(tuple(types.lookup(int(id)) for id in type_ids), codes.astype(np.int32), encoded)
