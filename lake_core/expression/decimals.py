"""Decimal arithmetic as in Spark: exact in Arrow's decimals of 256 bits, and rounded half up at the end."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import TRUE_VALUE, scalar
from lake_core.expression.arrays import Mask, array, null_unless, true, valid, values

WIDEST = 76
_EXACT_SCALE = 38


def unscaled(source: pa.Array) -> pa.Array:
    """Return the digits of decimals as whole numbers."""
    return pa.Array.from_buffers(pa.decimal128(38, 0), len(source), source.buffers(), source.null_count, source.offset)


def exact_decimal(source: pa.Array) -> pa.Array:
    """Convert doubles to decimals with 38 digits after the point. Values too close to zero become zero."""
    stored = values(source)
    tiny = np.abs(stored) < 1e-21
    text = array(np.where(tiny, 0.0, stored), pa.float64(), valid(source)).cast(pa.string())
    return text.cast(pa.decimal256(WIDEST, _EXACT_SCALE))


def to_decimal(source: pa.Array, target: pa.DataType, ok: Mask | None = None) -> tuple[pa.Array, Mask]:
    """Round decimals of any size half up to this type."""
    wide = source.cast(pa.decimal256(WIDEST, source.type.scale))
    if source.type.scale > target.scale:
        wide = pc.round(wide, target.scale, "half_towards_infinity")
    whole = target.precision - target.scale
    inside = np.ones(len(wide), np.bool_)
    # If this is not true, every value fits.
    if whole + source.type.scale < WIDEST:
        bound = scalar(Decimal(10) ** whole, wide.type)
        inside = true(pc.fill_null(pc.less(pc.abs(wide), bound), TRUE_VALUE))
    ok = inside if ok is None else ok & inside
    if not inside.all():
        wide = null_unless(wide, inside)
    return wide.cast(pa.decimal128(target.precision, target.scale)), ok
