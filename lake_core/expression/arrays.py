"""Conversions between NumPy and Arrow for columns of fixed width, without pandas.

Arrow's `to_numpy` imports pandas where it is installed.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar

Values: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]

_STORED = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
    pa.timestamp("us"): np.int64,
    pa.timestamp("us", "UTC"): np.int64,
}


def values(array: pa.Array) -> Values:
    """Return the stored values: days of dates, microseconds of timestamps. The stored value of a null is arbitrary."""
    stored = _STORED[array.type]
    if not len(array):
        return np.empty(0, stored)
    return np.frombuffer(array.buffers()[1], stored)[array.offset : array.offset + len(array)]


def true(array: pa.Array) -> Mask:
    """Return a mask of the values that are true. Null is not true."""
    filled = pc.fill_null(array, FALSE_VALUE) if array.null_count else array
    bits = np.frombuffer(filled.buffers()[1], np.uint8) if len(filled) else np.empty(0, np.uint8)
    return np.unpackbits(bits, bitorder="little")[filled.offset : filled.offset + len(filled)].astype(np.bool_)


def valid(array: pa.Array) -> Mask:
    """Return for each value whether it is not null."""
    return true(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)


def booleans(mask: Mask) -> pa.BooleanArray:
    """Convert a mask to an Arrow array without nulls."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))])


def array(stored: Values, kind: pa.DataType, where: Mask | None = None) -> pa.Array:
    """Return the stored values as an array of this type, null where `where` is false."""
    stored = np.ascontiguousarray(stored, _STORED[kind])
    validity = None if where is None or where.all() else pa.py_buffer(np.packbits(where, bitorder="little"))
    return pa.Array.from_buffers(kind, len(stored), [validity, pa.py_buffer(stored)])


def null_unless(array_: pa.Array, where: Mask) -> pa.Array:
    """Return the array with null where the mask is false."""
    return array_ if where.all() else pc.if_else(booleans(where), array_, scalar(None, array_.type))
