"""Casts between primitive types, as Spark casts with ANSI mode on and UTC for its zone.

Some values that Spark accepts are not supported: years beyond 9999, time zones by name, and numbers such as `1.5d`.
They fail, also with TRY_CAST: they never become another value or null.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import TRUE_VALUE, scalar
from lake_core.expression.arrays import Mask, array, null_unless, true, valid, values
from lake_core.expression.cast_text import (
    text_to_bool,
    text_to_date,
    text_to_decimal,
    text_to_float,
    text_to_integer,
    text_to_timestamp,
)
from lake_core.expression.decimals import WIDEST, exact_decimal, to_decimal, unscaled
from lake_core.expression.errors import EvaluationFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_NTZ = pa.timestamp("us")
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31: the first and the last date whose year has four digits."""


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether this package casts one type to the other."""
    if source == target or pa.types.is_null(source):
        return True
    return _family(target) in _CASTS.get(_family(source), {})


def cast_array(source: pa.Array, target: pa.DataType, *, null_if_invalid: bool = False) -> pa.Array:
    """Cast an array.

    Raises EvaluationFailed for a value that is invalid for the type. With `null_if_invalid`, it becomes null instead.
    """
    if source.type == target:
        return source
    if pa.types.is_null(source.type):
        return pa.nulls(len(source), target)
    try:
        cast, ok = _CASTS[_family(source.type)][_family(target)](source, target)
    except pa.ArrowException as error:
        raise EvaluationFailed(f"a value cannot be cast from {source.type} to {target}: {error}") from None
    if ok is not None and not ok.all():
        if not null_if_invalid:
            raise _invalid(source, target, ok)
        cast = null_unless(cast, ok)
    return cast


def _invalid(source: pa.Array, target: pa.DataType, ok: Mask) -> EvaluationFailed:
    shown = repr(source[int(np.flatnonzero(~ok)[0])].as_py())[:80]
    return EvaluationFailed(f"{shown} ({source.type}) cannot be cast to {target}; use TRY_CAST to get null instead")


def _family(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_signed_integer(kind):
        return "integer"
    if types.is_float32(kind) or types.is_float64(kind):
        return "float"
    if types.is_decimal(kind):
        return "decimal"
    families = {
        pa.string(): "text",
        pa.binary(): "binary",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        _TIMESTAMP: "timestamp",
        _NTZ: "ntz",
    }
    return families.get(kind, str(kind))


_Cast = tuple[pa.Array, Mask | None]
"""The values, and a mask of those that are valid for the target type, or None if all are.

Null stays null and counts as valid.
"""


def _integer_to_integer(source: pa.Array, target: pa.DataType) -> _Cast:
    if target.bit_width >= source.type.bit_width:
        return source.cast(target), None
    stored, where = values(source), valid(source)
    ok = ~where | ((stored >= -(1 << target.bit_width - 1)) & (stored < 1 << target.bit_width - 1))
    return array(stored, target, where), ok


def _integer_to_decimal(source: pa.Array, target: pa.DataType) -> _Cast:
    return to_decimal(source.cast(pa.decimal256(WIDEST, 0)), target)


def _float_to_integer(source: pa.Array, target: pa.DataType) -> _Cast:
    stored, where = values(source).astype(np.float64), valid(source)
    least, greatest = -(1 << target.bit_width - 1), (1 << target.bit_width - 1) - 1
    with np.errstate(invalid="ignore"):
        ok = ~where | ((np.floor(stored) <= float(greatest)) & (np.ceil(stored) >= float(least)))
        # A double of 2^63 counts as the largest BIGINT.
        whole = np.where(stored >= float(greatest), greatest, np.where(ok & where, stored, 0).astype(np.int64))
    return array(whole, target, where), ok


def _float_to_float(source: pa.Array, target: pa.DataType) -> _Cast:
    with np.errstate(over="ignore", invalid="ignore"):
        return array(values(source), target, valid(source)), None


def _float_to_decimal(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast by the shortest decimal of each float, as Spark does, rounded half up. Non-finite values become null."""
    stored, where = values(source), valid(source)
    where = where & np.isfinite(stored)
    # The digits of a FLOAT are those of the equal DOUBLE.
    stored = np.where(where, stored, 0).astype(np.float64)
    ok = np.abs(stored) <= 10.0 ** (target.precision - target.scale)
    return to_decimal(exact_decimal(array(np.where(ok, stored, 0.0), pa.float64(), where)), target, ok)


def _decimal_to_integer(source: pa.Array, target: pa.DataType) -> _Cast:
    whole = pc.trunc(source.cast(pa.decimal256(WIDEST, source.type.scale)))
    bound = scalar(Decimal(1 << target.bit_width - 1), whole.type)
    ok = true(pc.fill_null(pc.and_(pc.less(whole, bound), pc.greater_equal(whole, pc.negate(bound))), TRUE_VALUE))
    return null_unless(whole, ok).cast(pa.decimal256(WIDEST, 0)).cast(target), ok


def _decimal_to_float(source: pa.Array, target: pa.DataType) -> _Cast:
    # Arrow's own cast is not rounded to the nearest float; its parser is.
    return source.cast(pa.string()).cast(target), None


def _decimal_to_text(source: pa.Array, target: pa.DataType) -> _Cast:
    """Write digits without an exponent, which Arrow writes for values close to zero."""
    scale = source.type.scale
    if scale == 0:
        return source.cast(pa.string()), None
    digits = unscaled(source)
    sign = pc.if_else(pc.less(digits, scalar(0, pa.decimal128(38, 0))), "-", "")
    padded = pc.utf8_lpad(pc.abs(digits).cast(pa.string()), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(padded, 0, -scale)
    fraction = pc.utf8_slice_codeunits(padded, -scale)
    return pc.binary_join_element_wise(sign, pc.binary_join_element_wise(whole, fraction, "."), ""), None


def _boolean_to_number(source: pa.Array, target: pa.DataType) -> _Cast:
    return cast_array(source.cast(pa.int8()), target), None


def _number_to_boolean(source: pa.Array, target: pa.DataType) -> _Cast:
    zero = scalar(0, source.type)
    return pc.not_equal(source, zero), None


def _date_to_text(source: pa.Array, target: pa.DataType) -> _Cast:
    _check_year(values(source), valid(source))
    return source.cast(pa.string()), None


def _timestamp_to_text(source: pa.Array, target: pa.DataType) -> _Cast:
    _check_year(values(source) // _DAY, valid(source))
    text = source.cast(_NTZ).cast(pa.string())
    return pc.replace_substring_regex(text, r"\.?0*$", ""), None


def _check_year(days: np.ndarray, where: Mask) -> None:
    if (where & ((days < _FIRST_DAY) | (days > _LAST_DAY))).any():
        raise EvaluationFailed("a date or timestamp before the year 1 or after 9999 cannot be cast to text")


def _date_to_timestamp(source: pa.Array, target: pa.DataType) -> _Cast:
    where = valid(source)
    days = np.where(where, values(source), 0).astype(np.int64)
    if (np.abs(days) > (1 << 63) // _DAY - 1).any():
        raise EvaluationFailed("a date is out of the range of timestamps")
    return array(days * _DAY, target, where), None


def _timestamp_to_date(source: pa.Array, target: pa.DataType) -> _Cast:
    return array(values(source) // _DAY, target, valid(source)), None


def _same_instant(source: pa.Array, target: pa.DataType) -> _Cast:
    return source.cast(target), None


def _timestamp_to_integer(source: pa.Array, target: pa.DataType) -> _Cast:
    return _integer_to_integer(array(values(source) // _SECOND, pa.int64(), valid(source)), target)


def _integer_to_timestamp(source: pa.Array, target: pa.DataType) -> _Cast:
    where = valid(source)
    seconds = np.where(where, values(source), 0).astype(np.int64)
    if (np.abs(seconds) > (1 << 63) // _SECOND - 1).any():
        raise EvaluationFailed("a number of seconds is out of the range of timestamps")
    return array(seconds * _SECOND, target, where), None


def _plain(source: pa.Array, target: pa.DataType) -> _Cast:
    return source.cast(target, safe=False), None


def _text_to_binary(source: pa.Array, target: pa.DataType) -> _Cast:
    return source.cast(target), None


_CASTS: dict[str, dict[str, Callable[[pa.Array, pa.DataType], _Cast]]] = {
    "integer": {
        "integer": _integer_to_integer,
        "float": _plain,
        "decimal": _integer_to_decimal,
        "text": _plain,
        "boolean": _number_to_boolean,
        "timestamp": _integer_to_timestamp,
    },
    "float": {
        "integer": _float_to_integer,
        "float": _float_to_float,
        "decimal": _float_to_decimal,
        "boolean": _number_to_boolean,
    },
    "decimal": {
        "integer": _decimal_to_integer,
        "float": _decimal_to_float,
        "decimal": to_decimal,
        "text": _decimal_to_text,
        "boolean": _number_to_boolean,
    },
    "boolean": {
        "integer": _boolean_to_number,
        "float": _boolean_to_number,
        "decimal": _boolean_to_number,
        "text": _plain,
    },
    "text": {
        "integer": text_to_integer,
        "float": text_to_float,
        "decimal": text_to_decimal,
        "boolean": text_to_bool,
        "binary": _text_to_binary,
        "date": text_to_date,
        "timestamp": text_to_timestamp,
        "ntz": text_to_timestamp,
    },
    "binary": {"text": _plain},
    "date": {"timestamp": _date_to_timestamp, "ntz": _date_to_timestamp, "text": _date_to_text},
    "timestamp": {
        "date": _timestamp_to_date,
        "ntz": _same_instant,
        "text": _timestamp_to_text,
        "integer": _timestamp_to_integer,
    },
    "ntz": {"date": _timestamp_to_date, "timestamp": _same_instant, "text": _timestamp_to_text},
}
