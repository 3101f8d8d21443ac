"""Maps the types of arrays to the types of Arrow, and so of Spark, that hold their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""Times of CF have no zone of their own: they are UTC."""

_WIDENED = {"f2": pa.float32(), "u1": pa.int16(), "u2": pa.int32(), "u4": pa.int64(), "u8": pa.int64()}
"""Types that Spark lacks, and the types that hold their values."""


def arrow_type(dtype: np.dtype[Any]) -> pa.DataType | None:
    """Return the type that holds values of a NumPy type, or None if rows cannot hold them."""
    if dtype.kind == "M":
        return TIMESTAMP
    if dtype.kind in "OTU":
        return pa.string()
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        return None
    return _WIDENED.get(dtype.str[1:]) or pa.from_numpy_dtype(dtype.newbyteorder("="))


def to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    """Return values of one dimension as a column.

    Raises:
        pyarrow.ArrowInvalid: A value has no exact form: a time between two microseconds, or a number past 2**63.
        pyarrow.ArrowTypeError: Objects are not strings.
    """
    kind = arrow_type(values.dtype)
    if kind is None:
        raise pa.ArrowNotImplementedError(f"they are {values.dtype}")
    if values.dtype.kind == "M":
        return pa.array(values).cast(pa.timestamp("us")).cast(TIMESTAMP)
    if values.dtype.kind in "OTU":
        return pa.array(values.astype(object).tolist(), pa.string())
    return pa.array(np.ascontiguousarray(values)).cast(kind)
