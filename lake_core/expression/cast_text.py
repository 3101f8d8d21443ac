"""Casts of text to other types. Only spellings that Spark surely reads in the same way are accepted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, TRUE_VALUE, scalar
from lake_core.expression.arrays import Mask, array, booleans, null_unless, true, valid, values
from lake_core.expression.decimals import WIDEST, to_decimal
from lake_core.expression.errors import EvaluationFailed

_BLANK = "".join(map(chr, range(33))) + "\x7f"
_PLAIN_INTEGER = r"^-?[0-9]{1,18}$"
_INTEGER = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_SPECIAL = r"(?i)^[+-]?(nan|inf|infinity)$"
_MAYBE_FLOAT = r"^[+-]?(0[xX][0-9a-fA-F.]+[pP]?[+-]?[0-9]*|[0-9.]+([eE][+-]?[0-9]+)?)[dDfF]?$"
"""Text that Java may also read as a number. It is refused, instead of being treated as invalid."""

_DATE = r"^(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T].*)?)?)?$"
_MAYBE_DATE = r"(?i)^([+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?$|epoch|now|today|tomorrow|yesterday)"
_MAYBE_TIMESTAMP = r"(?i)^([+-]?[0-9]{4}|T[0-9]|[0-9]{1,2}:|epoch|now|today|tomorrow|yesterday)"
_TIMESTAMP = (
    r"^(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?:(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?)?"
    r" ?(?P<zone>Z|UTC|[+-][0-9]{1,2}(?::[0-9]{2})?)?)?)?)?)?$"
)
_SECOND = 1_000_000
_FIRST = -62_135_596_800 * _SECOND
"""0001-01-01, the first date that Python can represent."""

_MONTH_DAYS = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

_Cast = tuple[pa.Array, Mask | None]


def _trimmed(source: pa.Array) -> pa.Array:
    return pc.utf8_trim(source, _BLANK)


def _matches(text: pa.Array, pattern: str) -> Mask:
    """Return a mask of the texts that match a pattern. Null matches every pattern."""
    return true(pc.fill_null(pc.match_substring_regex(text, pattern), TRUE_VALUE))


def text_to_integer(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast whole numbers, with or without a sign. Other texts, and numbers out of range, are invalid."""
    text = _trimmed(source)
    if _matches(text, _PLAIN_INTEGER).all():
        # Nearly always: no sign to remove, and no number that 64 bits do not hold.
        return _in_range(text.cast(pa.int64()), target)
    ok = _matches(text, _INTEGER)
    digits = pc.replace_substring_regex(null_unless(text, ok), r"^(-?)\+?0*([0-9])", r"\1\2")
    # More digits are out of the range of all integer types, and of Arrow's decimals.
    short = true(pc.fill_null(pc.less_equal(pc.utf8_length(digits), 20), TRUE_VALUE))
    number = null_unless(digits, short).cast(pa.decimal128(38, 0))
    cast, inside = _in_range(number, target)
    return cast, ok & short & inside


def _in_range(number: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask]:
    """Cast whole numbers of a wider type. Those out of range are invalid."""
    limit = 1 << target.bit_width - 1
    low, high = scalar(-limit, number.type), scalar(limit - 1, number.type)
    inside = true(pc.fill_null(pc.and_(pc.greater_equal(number, low), pc.less_equal(number, high)), TRUE_VALUE))
    return null_unless(number, inside).cast(target), inside


def text_to_float(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast numbers, with or without exponent, and `NaN` and `Infinity` in any case."""
    text = _trimmed(source)
    ok = _matches(text, _NUMBER)
    special = _matches(text, _SPECIAL)
    _refuse(text, ~ok & ~special & _matches(text, _MAYBE_FLOAT), target)
    # Arrow reads `nan` and `inf` as Spark does, whatever the case, but no sign before `nan`.
    plain = pc.replace_substring_regex(pc.utf8_lower(null_unless(text, ok | special)), r"^[+-](nan)|^\+", r"\1")
    return pc.replace_substring_regex(plain, "inity$", "").cast(target), ok | special


def text_to_decimal(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast numbers, rounded half up to the scale of the type."""
    text = _trimmed(source)
    ok = _matches(text, _NUMBER)
    # Rounding half up needs one digit more than it keeps.
    cut = pc.replace_substring_regex(
        null_unless(text, ok), rf"^([+-]?[0-9]*\.[0-9]{{{target.scale + 1}}})[0-9]+$", r"\1"
    )
    try:
        wide = cut.cast(pa.decimal256(WIDEST, target.scale + 1))
    except pa.ArrowInvalid:
        raise EvaluationFailed(f"a text contains a number with too many digits for {target}") from None
    return to_decimal(wide, target, ok)


def text_to_bool(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast the words that Spark knows, such as `t`, `yes` and `1`, in any case."""
    text = pc.ascii_lower(_trimmed(source))
    yes = pc.is_in(text, value_set=pa.array(["t", "true", "y", "yes", "1"]))
    no = pc.is_in(text, value_set=pa.array(["f", "false", "n", "no", "0"]))
    ok = true(yes) | true(no) | ~valid(source)
    return null_unless(yes, valid(source)), ok


def text_to_date(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast a date. A missing month or day means the first one. A time of day is ignored."""
    text = _trimmed(source)
    days, ok = _days(pc.extract_regex(text, _DATE))
    _refuse(text, ~ok & _matches(text, _MAYBE_DATE) & ~_matches(text, _DATE), target)
    where = valid(source)
    return array(days, pa.date32(), where), ok | ~where


def text_to_timestamp(source: pa.Array, target: pa.DataType) -> _Cast:
    """Cast a date, or its first parts, with or without a time of day and an offset."""
    text = _trimmed(source)
    parts = pc.extract_regex(text, _TIMESTAMP)
    days, ok = _days(parts)
    # Spark may read times without a date, zones by name and years of five digits, depending on its settings.
    _refuse(text, ~_matches(text, _TIMESTAMP) & _matches(text, _MAYBE_TIMESTAMP), target)
    hour, minute, second = (_number(parts, name) for name in ("hour", "minute", "second"))
    ok &= (hour < 24) & (minute < 60) & (second < 60)
    fraction = values(pc.utf8_slice_codeunits(pc.utf8_rpad(_part(parts, "fraction"), 6, "0"), 0, 6).cast(pa.int64()))
    zone = _part(parts, "zone")
    if pa.types.is_timestamp(target) and target.tz is None and _matches(zone, r".").any():
        _refuse(text, valid(source) & _matches(zone, r"."), target)
    offset, zone_exists = _offset(zone)
    micros = days * 86_400 * _SECOND + ((hour * 60 + minute) * 60 + second - offset) * _SECOND + fraction
    _refuse(text, ok & (micros < _FIRST), target)
    where = valid(source)
    return array(np.where(ok, micros, 0), target, where), (ok & zone_exists) | ~where


def _offset(zone: pa.Array) -> tuple[np.ndarray, Mask]:
    """Return the seconds ahead of UTC, and whether such a zone exists."""
    parts = pc.extract_regex(zone, r"^(?P<sign>[+-])(?P<hours>[0-9]{1,2})(?::(?P<minutes>[0-9]{2}))?$")
    hours, minutes = _number(parts, "hours"), _number(parts, "minutes")
    seconds = (hours * 60 + minutes) * 60
    negative = true(pc.fill_null(pc.equal(_part(parts, "sign"), "-"), FALSE_VALUE))
    return np.where(negative, -seconds, seconds), (seconds <= 18 * 3600) & (minutes < 60)


def _part(parts: pa.Array, name: str) -> pa.Array:
    return pc.fill_null(pc.struct_field(parts, [name]), "")


def _number(parts: pa.Array, name: str, default: str = "0") -> np.ndarray:
    text = _part(parts, name)
    return values(pc.if_else(pc.equal(text, ""), default, text).cast(pa.int64()))


def _days(parts: pa.Array) -> tuple[np.ndarray, Mask]:
    """Return the days since 1970 of the parts year, month and day, and whether such a day exists."""
    year, month, day = _number(parts, "year"), _number(parts, "month", "1"), _number(parts, "day", "1")
    exists = valid(parts) & (year > 0) & (month >= 1) & (month <= 12)
    month = np.where(exists, month, 1)
    leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    longest = np.where((month == 2) & ~leap, 28, _MONTH_DAYS[month - 1])
    exists &= (day >= 1) & (day <= longest)
    # Days from the civil calendar: years begin in March, which makes the leap day the last one.
    shifted = year - (month <= 2)
    era, of_era = shifted // 400, shifted % 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return np.where(exists, days, 0), exists


def _refuse(text: pa.Array, where: Mask, target: pa.DataType) -> None:
    where = where & valid(text)
    if where.any():
        shown = text.filter(booleans(where))[0].as_py()[:80]
        raise EvaluationFailed(f"{shown!r} is in a format that cannot be cast to {target}")
