"""Casts of Arrow's numbers that fail at a value which they would change."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def cast_exactly(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values of a leaf type in another one.

    Arrow's own cast rounds floats to shorter floats and to decimals, and decimals to floats, in silence, and refuses
    integers that a float or a decimal holds exactly.

    Raises ArrowInvalid for a value that is not the same in the new type, ArrowNotImplementedError for types without a
    cast.
    """
    source, types = array.type, pa.types
    if types.is_integer(source) and types.is_decimal(kind):
        # Arrow refuses all integers for decimals with fewer digits than the greatest of their type.
        return array.cast(pa.decimal128(20, 0)).cast(kind)
    if _is_rounded_by(source, kind):
        converted = array.cast(kind, safe=False)
        # The greatest integers become the float above them, which is no integer of their type.
        end = pa.scalar(2.0 ** (source.bit_width - types.is_signed_integer(source))).cast(kind)
        is_same = pc.and_(pc.less(converted, end), pc.equal(converted.cast(source, safe=False), array))
    elif _rounds(source, kind):
        converted = array.cast(kind)
        is_same = pc.equal(converted.cast(source, safe=False), array)
        if types.is_floating(source):
            is_same = pc.or_(is_same, pc.is_nan(array))
    else:
        return array.cast(kind)
    changed = array.filter(pc.invert(is_same))
    if len(changed):
        raise pa.ArrowInvalid(f"{changed[0]} would be rounded")
    return converted


def _is_rounded_by(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type of floats has fewer digits than a type of integers."""
    if not (pa.types.is_integer(source) and pa.types.is_floating(kind)):
        return False
    digits = source.bit_width - pa.types.is_signed_integer(source)
    return bool(digits > {16: 11, 32: 24, 64: 53}[kind.bit_width])


def _rounds(source: pa.DataType, kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_floating(source) and types.is_floating(kind):
        return bool(kind.bit_width < source.bit_width)
    return bool(
        (types.is_floating(source) and types.is_decimal(kind)) or (types.is_decimal(source) and types.is_floating(kind))
    )
