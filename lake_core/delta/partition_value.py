r"""Partition values: typed in columns, text in the log. The empty string is null for every type.

Protocol section: Partition Value Serialization. Timestamps are written as ISO 8601 in UTC, and read in that form or
with a space and without a zone (then also UTC). The log stores a binary value as the text whose UTF-8 bytes it is:
so Spark, the kernels and deltalake read it (delta-io/delta#6480), and the protocol's example "\u0001\u0002\u0003" is
that text in JSON.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.errors import ConstraintViolation, MalformedAction

_EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY = (dt.date.min - _EPOCH).days
_LAST_DAY = (dt.date.max - _EPOCH).days
_DAY_US = 86_400_000_000
_CYCLE, _CYCLE_DAYS = 400, 146_097
"""Years after which the calendar repeats, and their days."""
_FAR = r"^(?:[+-]|\d{5})"
_FAR_YEAR = re.compile(r"([+-]\d{4,}|\d{5,})(?=-)")
_ZONE = r"(?:[zZ]|[+-]\d{2}:?\d{2})$"


def serialize(values: pa.Array) -> pa.Array:
    """Convert typed values to the log's text; '' and null become null.

    Raises MalformedAction for a type that cannot partition, ConstraintViolation for a value that readers could not read
    back.
    """
    kind = values.type
    if outside_calendar(values):
        raise ConstraintViolation(
            f"a partition value of type {kind} is outside the years 1 to 9999, which not every reader can parse: "
            "replace it (for example with null), or leave its rows out"
        )
    if pa.types.is_string(kind):
        return pc.if_else(pc.equal(values, ""), scalar(None, kind), values)
    if pa.types.is_timestamp(kind):
        if not kind.tz:
            return pc.strftime(
                values.cast(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S"
            )  # the kernels read no T here
        return pc.binary_join_element_wise(
            pc.strftime(values.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S"), "Z", ""
        )
    if pa.types.is_floating(kind):
        return pa.array([None if v is None else _java_float(v) for v in values.to_pylist()], pa.string())
    if pa.types.is_binary(kind):
        return _texts_of_binary(values)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise MalformedAction(f"a column of type {kind} cannot partition a table")
    return values.cast(pa.string())


def parse(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType, column: str) -> pa.Array:
    """Parse the log's text into typed values.

    Raises MalformedAction naming the column and a value that its type does not allow.
    """
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    # Few distinct values: convert each once.
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary
    distinct = pc.if_else(pc.equal(distinct, ""), scalar(None, pa.string()), distinct)
    try:
        typed = _parse_far(distinct, kind) if pa.types.is_temporal(kind) else _parse(distinct, kind)
    except (pa.ArrowException, ValueError, OverflowError, decimal.DecimalException) as error:
        raise MalformedAction(f"partition column {column!r} of type {kind} has an invalid value: {error}") from None
    return typed.take(encoded.indices)


def _parse_far(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse dates and instants of any year.

    Those that Arrow does not parse are moved into the calendar's present cycle, and back.
    """
    if not pc.any(pc.match_substring_regex(texts, _FAR)).as_py():
        return _parse(texts, kind)
    spelled, cycles = [], []
    for text in texts.to_pylist():
        match = _FAR_YEAR.match(text or "")
        cycle, year = divmod(int(match[1]) if match else 0, _CYCLE)
        cycles.append(cycle - 5 if match else 0)
        spelled.append(f"{year + 5 * _CYCLE}{text[match.end() :]}" if match else text)
    days = pa.types.is_date32(kind)
    number = pa.int32() if days else pa.int64()
    moved = pa.array([cycle * _CYCLE_DAYS * (1 if days else _DAY_US) for cycle in cycles], number)
    return pc.add_checked(_parse(pa.array(spelled, pa.string()), kind).cast(number), moved).cast(kind)


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        if not kind.tz:
            return pc.replace_substring_regex(texts, "[zZ]$", "").cast(kind)
        zoned = pc.match_substring_regex(texts, _ZONE)
        nothing = scalar(None, pa.string())
        bare = pc.if_else(zoned, nothing, texts).cast(pa.timestamp(kind.unit))
        return pc.coalesce(pc.if_else(zoned, texts, nothing).cast(kind), pc.assume_timezone(bare, "UTC").cast(kind))
    if pa.types.is_boolean(kind):
        return pc.utf8_lower(texts).cast(kind)
    if pa.types.is_binary(kind):
        return texts.cast(kind)  # the bytes of the text
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else decimal.Decimal(v) for v in texts.to_pylist()], kind)
    return texts.cast(kind)


def _texts_of_binary(values: pa.Array) -> pa.Array:
    try:
        texts = values.cast(pa.string())
        texts.validate(full=True)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        raise ConstraintViolation(
            "a binary partition value is not UTF-8 text: the log holds partition values as text, so readers "
            "would get other bytes. Partition by a hexadecimal text instead"
        ) from None
    return pc.if_else(pc.equal(texts, ""), scalar(None, pa.string()), texts)


def outside_calendar(values: pa.Array) -> bool:
    """Return whether a date or an instant is outside the years 1 to 9999.

    Python cannot hold such values, and not every reader can parse them.
    """
    if pa.types.is_date32(values.type):
        numbers, first, last = values.cast(pa.int32()), _FIRST_DAY, _LAST_DAY
    elif pa.types.is_timestamp(values.type):
        numbers = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        first, last = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
    else:
        return False
    extremes = pc.min_max(numbers)
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    return low is not None and (low < first or high > last)


def _java_float(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
