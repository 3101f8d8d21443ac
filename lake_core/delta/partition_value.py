"""Partition values: typed in a column, text in the log. The empty string is null for every type.

Protocol section: Partition Value Serialization. Timestamps are written as ISO 8601 in UTC, and read in that form or with a
space and without a zone (then also UTC).
"""

from __future__ import annotations

import decimal

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import MalformedAction

_ZONE = r"(?:[zZ]|[+-]\d{2}:?\d{2})$"


def serialize(values: pa.Array) -> pa.Array:
    """Typed values as the log's text; '' and null become null. Raises MalformedAction for a type that cannot partition."""
    kind = values.type
    if pa.types.is_string(kind):
        return pc.if_else(pc.equal(values, ""), pa.scalar(None, kind), values)
    if pa.types.is_timestamp(kind):
        text = pc.strftime(values.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
        return pc.binary_join_element_wise(text, "Z", "") if kind.tz else text
    if pa.types.is_floating(kind):
        return pa.array([None if v is None else _java_float(v) for v in values.to_pylist()], pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if not v else v.decode("latin-1") for v in values.to_pylist()], pa.string())
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise MalformedAction(f"a column of type {kind} cannot partition a table")
    return values.cast(pa.string())


def parse(texts: pa.Array | pa.ChunkedArray, kind: pa.DataType, column: str) -> pa.Array:
    """The log's text as typed values. Raises MalformedAction naming the column and a value that its type does not allow."""
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    # Few distinct values: convert each once.
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary
    distinct = pc.if_else(pc.equal(distinct, ""), pa.scalar(None, pa.string()), distinct)
    try:
        typed = _parse(distinct, kind)
    except (pa.ArrowInvalid, ValueError, decimal.InvalidOperation) as error:
        raise MalformedAction(f"partition column {column!r} of type {kind} has a value that is none: {error}") from None
    return typed.take(encoded.indices)


def _parse(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        if not kind.tz:
            return pc.replace_substring_regex(texts, "[zZ]$", "").cast(kind)
        zoned = pc.match_substring_regex(texts, _ZONE)
        nothing = pa.scalar(None, pa.string())
        bare = pc.if_else(zoned, nothing, texts).cast(pa.timestamp(kind.unit))
        return pc.coalesce(pc.if_else(zoned, texts, nothing).cast(kind), pc.assume_timezone(bare, "UTC").cast(kind))
    if pa.types.is_boolean(kind):
        return pc.utf8_lower(texts).cast(kind)
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else v.encode("latin-1") for v in texts.to_pylist()], kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else decimal.Decimal(v) for v in texts.to_pylist()], kind)
    return texts.cast(kind)


def _java_float(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
