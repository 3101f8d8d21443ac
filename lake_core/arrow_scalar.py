"""Values of Python as scalars of Arrow, without pandas.

Not `pa.scalar`: its first call imports pandas where that is installed, which takes longer than to open a table.
"""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH, _EPOCH_UTC = dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EXACT = Context(prec=100)
_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}
"""Of `struct`, for integers, by their bytes."""
_OWN_TYPES = {str: pa.string(), bytes: pa.binary(), bool: pa.bool_(), float: pa.float64()}


def scalar(value: Any, kind: pa.DataType | None = None) -> pa.Scalar:
    """Return a value as a scalar of a type. Without one, the value has the type that Arrow infers.

    Raises OverflowError for a number that the type cannot hold.
    """
    if value is None:
        return pa.nulls(1, pa.null() if kind is None else kind)[0]
    if kind is None:
        kind = _OWN_TYPES.get(type(value))
    if kind is None:
        return pa.scalar(value)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data = value.encode() if isinstance(value, str) else bytes(value)
        return _of_buffers(kind, struct.pack("<ii", 0, len(data)), data)
    packed = _packed(value, kind)
    return pa.scalar(value, kind) if packed is None else _of_buffers(kind, packed)


def _of_buffers(kind: pa.DataType, *buffers: bytes) -> pa.Scalar:
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, buffers)])[0]


def _packed(value: Any, kind: pa.DataType) -> bytes | None:
    """Return the bytes of a value of fixed width. Return None for a type that columns of tables do not have."""
    types = pa.types
    try:
        if types.is_boolean(kind):
            return bytes([bool(value)])
        if types.is_integer(kind) and isinstance(value, int):
            code = _FORMATS[kind.bit_width // 8]
            return struct.pack(f"<{code.upper() if types.is_unsigned_integer(kind) else code}", value)
        if types.is_float32(kind) or types.is_float64(kind):
            return struct.pack("<f" if types.is_float32(kind) else "<d", value)
    except struct.error as error:
        raise OverflowError(f"{value!r} is no {kind}: {error}") from None
    if types.is_decimal128(kind):
        unscaled = Decimal(value).scaleb(kind.scale, _EXACT)
        if unscaled != unscaled.to_integral_value() or len(unscaled.as_tuple().digits) > kind.precision:
            raise OverflowError(f"{value!r} is no {kind}")
        return int(unscaled).to_bytes(16, "little", signed=True)
    if types.is_date32(kind):
        return struct.pack("<i", value if isinstance(value, int) else value.toordinal() - _EPOCH_DAY)
    if types.is_timestamp(kind) and isinstance(value, int):
        return struct.pack("<q", value)
    if types.is_timestamp(kind) and kind.unit == "us" and isinstance(value, dt.datetime):
        return struct.pack("<q", (value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)) // dt.timedelta.resolution)
    return None


FALSE_VALUE, TRUE_VALUE = scalar(False), scalar(True)
