"""Between NumPy and Arrow without a copy where that is possible, and without pandas.

Not `pa.array`, `to_numpy` and `Schema.empty_table`: their first call imports pandas where that is installed, which
takes longer than to open a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table of these columns without rows."""
    return pa.Table.from_batches([], schema)


def integers(values: npt.NDArray[np.integer]) -> pa.Array:
    """Return an Arrow array of whole numbers, of the type that they have."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def mask(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return an Arrow array of booleans, as `filter` takes them."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def texts(values: Sequence[str]) -> pa.StringArray:
    """Return an Arrow array of a few strings."""
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )


def numbers(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the values of a column of int64 or int32 that has no nulls."""
    if not len(values):
        return np.empty(0, dtype=np.int64)
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    whole = np.frombuffer(array.buffers()[1], dtype=np.int32 if array.type.bit_width == 32 else np.int64)
    return whole[array.offset : array.offset + len(array)].astype(np.int64, copy=False)


def booleans(values: pa.BooleanArray | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return the values of a boolean column that has no nulls."""
    if not len(values):
        return np.empty(0, dtype=np.bool_)
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], dtype=np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def text_bytes(array: pa.StringArray) -> memoryview:
    """Return the text of all the values, one after another, without creating an object for each."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return memoryview(array.buffers()[2] or b"")[offsets[array.offset] : offsets[array.offset + len(array)]]
