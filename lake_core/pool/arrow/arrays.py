"""Conversions between NumPy and Arrow without pandas.

Not `pa.array`, `pa.scalar` and `to_numpy`: their first call imports pandas where that is installed, which takes longer
than to read or write tens of thousands of values.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

Integers: TypeAlias = "npt.NDArray[np.integer[Any]]"
Mask: TypeAlias = npt.NDArray[np.bool_]


def integers(values: Integers) -> pa.Array:
    """Return an Arrow array of integers of the type that they have."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def booleans(mask: Mask) -> pa.Array:
    """Return a mask as an Arrow array."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))])


def binaries(values: Sequence[bytes]) -> pa.Array:
    """Return bytes as a binary array."""
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    if int(ends[-1]) > np.iinfo(np.int32).max:
        # They do not fit into one array. Arrow makes several.
        return pa.array(values, pa.binary())
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]
    )


def true(array: pa.Array) -> Mask:
    """Return which booleans are true. Null is not."""
    flags = _bits(array, 1)
    return flags & _bits(array, 0) if array.null_count else flags


def valid(array: pa.Array) -> Mask:
    """Return which values are not null."""
    return true(array.is_valid())


def numbers_of(array: pa.Array, dtype: str) -> npt.NDArray[Any]:
    """Return the numbers of an array as its buffer holds them; those of nulls are arbitrary."""
    kind = np.dtype(dtype)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)


def _bits(array: pa.Array, buffer: int) -> Mask:
    if not len(array):
        return np.zeros(0, np.bool_)
    bytes_ = np.frombuffer(array.buffers()[buffer], np.uint8)
    bits = np.unpackbits(bytes_, count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].view(np.bool_)
