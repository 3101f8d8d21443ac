"""Functions of dates and timestamps, in the proleptic Gregorian calendar and UTC."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.expression.arrays import Values, array, valid, values
from lake_core.expression.cast import cast_array
from lake_core.expression.errors import EvaluationFailed
from lake_core.expression.numeric import constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.expression.tree import Call

_NTZ = pa.timestamp("us")
_SECOND = 1_000_000
_MANY_MONTHS = 12 * 6_000_000
UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}
"""The units of DATE_TRUNC: Spark's names, and Arrow's."""

_SPANS = {
    "day": 86_400 * _SECOND,
    "hour": 3600 * _SECOND,
    "minute": 60 * _SECOND,
    "second": _SECOND,
    "millisecond": 1000,
    "microsecond": 1,
}

PATTERN = re.compile(r"yyyy|MM|dd|HH|mm|ss|'[^']+'|[^A-Za-z'\[\]{}#]")
"""The parts of a DATE_FORMAT pattern that mean the same to all engines."""

_FIELDS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "day": pc.day,
    "dayofmonth": pc.day,
    "dayofyear": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "weekofyear": pc.iso_week,
    "weekday": pc.day_of_week,
    "yyyy": pc.year,
    "MM": pc.month,
    "dd": pc.day,
    "HH": pc.hour,
    "mm": pc.minute,
    "ss": pc.second,
}


def field(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return the field of a date or timestamp that the function is named after, such as `year` or `dayofweek`."""
    if call.function == "dayofweek":  # from Sunday, which is 1
        return pc.day_of_week(arguments[0], week_start=7, count_from_zero=False).cast(pa.int32())
    return _FIELDS[call.function](_plain(arguments[0])).cast(pa.int32())


def _plain(moments: pa.Array) -> pa.Array:
    return moments.cast(_NTZ) if pa.types.is_timestamp(moments.type) else moments


def add_days(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Add days to dates. Subtract them for `date_sub`. Raises EvaluationFailed outside of the range of DATE."""
    dates, count = arguments
    where = valid(dates) & valid(count)
    days, change = (np.where(where, values(side), 0).astype(np.int64) for side in arguments)
    moved = days - change if call.function == "date_sub" else days + change
    if (np.abs(moved) >= 1 << 31).any():
        raise EvaluationFailed(f"a result of {call.function} is out of the range of DATE")
    return array(moved, pa.date32(), where)


def add_interval(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Add months and microseconds to a date or timestamp. A day that the month does not have becomes its last day."""
    moments, kind = arguments[0], arguments[0].type
    months, microseconds = constant(call, 1, 0), constant(call, 2, 0)
    unit = 1 if pa.types.is_date(kind) else _SPANS["day"]
    where = valid(moments)
    stored = np.where(where, values(moments), 0).astype(np.int64)
    limit = 1 << (31 if unit == 1 else 63)
    out_of_range = abs(months) > _MANY_MONTHS
    if months and not out_of_range:
        days, time_of_day = np.divmod(stored, unit)
        days = _add_months(days, months)
        out_of_range = bool((np.abs(days) >= limit // unit).any())
        stored = days * unit + time_of_day
    change = microseconds if unit > 1 else microseconds // _SPANS["day"]
    later = stored + change
    if out_of_range or ((later < stored) != (change < 0)).any() or (unit == 1 and (np.abs(later) >= limit).any()):
        raise EvaluationFailed("a date or timestamp plus or minus an interval is out of range")
    return array(later, kind, where)


def _add_months(days: Values, months: int) -> Values:
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    later = month + np.timedelta64(months, "M")
    last = ((later + np.timedelta64(1, "M")).astype("datetime64[D]") - later.astype("datetime64[D]")).astype(
        np.int64
    ) - 1
    day = (dates - month.astype("datetime64[D]")).astype(np.int64)
    moved: Values = later.astype("datetime64[D]").astype(np.int64) + np.minimum(day, last)
    return moved


def days_between(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return the days from the second date to the first. Raises EvaluationFailed outside of the range of INT."""
    where = valid(arguments[0]) & valid(arguments[1])
    end, start = (np.where(where, values(side), 0).astype(np.int64) for side in arguments)
    if (np.abs(end - start) >= 1 << 31).any():
        raise EvaluationFailed("a result of datediff is too large for INT")
    return array(end - start, pa.int32(), where)


def truncate(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute DATE_TRUNC of timestamps and TRUNC of dates. The binder puts the unit first, as a literal."""
    unit, moments = UNITS[constant(call, 0, None)], arguments[1]
    if unit in _SPANS:
        stored = values(moments)
        return array(stored - stored % _SPANS[unit], moments.type, valid(moments))
    return pc.floor_temporal(_plain(moments), unit=unit, week_starts_monday=True).cast(moments.type)


def format_date(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Format dates by a constant pattern. Its letters stand for fields."""
    moments = _plain(arguments[0])
    pieces: list[pa.Array | pa.Scalar] = []
    for piece in PATTERN.findall(constant(call, 1, "")):
        if piece not in _FIELDS:
            pieces.append(scalar(piece.strip("'") if len(piece) > 1 else piece))
            continue
        number = _FIELDS[piece](moments)
        if piece == "yyyy" and pc.all(pc.and_(pc.greater(number, 0), pc.less(number, 10_000))).as_py() is False:
            raise EvaluationFailed("a date before the year 1 or after 9999 cannot be formatted")
        pieces.append(pc.utf8_lpad(number.cast(pa.string()), len(piece), "0"))
    return pc.binary_join_element_wise(*pieces, "")


@cache
def parser(pattern: str) -> str:
    """Return the regular expression of texts that a pattern describes, with a group for each field.

    Raises ValueError for a pattern that is not supported.
    """
    parts = PATTERN.findall(pattern)
    fields = [part for part in parts if part in _DIGITS]
    if "".join(parts) != pattern or len(set(fields)) < len(fields) or "yyyy" not in fields:
        raise ValueError(pattern)
    if any(letter.isdigit() for part in parts for letter in part):
        raise ValueError(pattern)
    return (
        "^"
        + "".join(f"(?P<{part}>[0-9]{{{len(part)}}})" if part in _DIGITS else _quoted(part) for part in parts)
        + r"\z"
    )


_DIGITS = ("yyyy", "MM", "dd", "HH", "mm", "ss")


def _quoted(part: str) -> str:
    text = part.strip("'") if len(part) > 1 else part
    return "".join(f"\\x{{{ord(letter):x}}}" for letter in text)


def parse_moment(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Parse texts by a constant pattern. A field that it lacks has its least value. Raises EvaluationFailed."""
    text, pattern = arguments[0], constant(call, 1, None)
    if pattern is None:
        return pa.nulls(len(text), call.type)
    found = pc.extract_regex(text, parser(pattern))
    if found.null_count > text.null_count:
        wrong = text.filter(pc.and_(found.is_null(), text.is_valid()))
        raise EvaluationFailed(f"{wrong[0].as_py()[:80]!r} is not written as {pattern!r}")
    names = {child.name for child in found.type}
    year, month, day, hour, minute, second = (
        pc.struct_field(found, [part])
        if part in names
        else pa.repeat("01" if part in ("MM", "dd") else "00", len(text))
        for part in _DIGITS
    )
    date = pc.binary_join_element_wise(year, month, day, "-")
    time = pc.binary_join_element_wise(hour, minute, second, ":")
    whole = pc.binary_join_element_wise(date, time, " ")
    return cast_array(pc.if_else(text.is_valid(), whole, scalar(None, pa.string())), call.type)


def to_seconds(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Convert to seconds, rounded toward 1970, unlike a cast to BIGINT."""
    stored = values(arguments[0])
    return array(np.where(stored < 0, -(-stored // _SECOND), stored // _SECOND), pa.int64(), valid(arguments[0]))
