"""Statistics that a checkpoint holds as columns (`stats_parsed`), as the JSON text that an add action carries.

Built column by column, without a Python object a file. Protocol sections: Checkpoint Schema, Per-file Statistics.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

_FIRST = "0001-01-01"
_LAST = "9999-12-31"
_CONTROL = r"[\x00-\x1f]"


def stats_json(parsed: pa.Array) -> pa.StringArray:
    """The statistics of each file as JSON text, null where there are none.

    What has no form in JSON (NaN, infinity, bytes, an instant beyond the calendar) is left out, as it is by those who write JSON
    at once. Statistics of a kind that makes no sense are left out as well: without them no file is skipped, which is never wrong.
    """
    try:
        text = _json(parsed) if pa.types.is_struct(parsed.type) else None
    except (pa.ArrowException, ValueError, OverflowError):
        text = None
    return pa.nulls(len(parsed), pa.string()) if text is None else text


def _json(values: pa.Array) -> pa.Array | None:
    """Each value as JSON, null where there is none; None for a type that has no form there."""
    kind, types = values.type, pa.types
    if types.is_struct(kind):
        return _object(values)
    if types.is_string(kind) or types.is_large_string(kind):
        return _string(values.cast(pa.string()))
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return values.cast(pa.string())
    if types.is_floating(kind):
        wide = values.cast(pa.float64())
        return _where(pc.is_finite(wide), wide.cast(pa.string()))
    if types.is_date(kind):
        return _quoted(_within_calendar(values.cast(pa.date32()), pa.date32()).cast(pa.string()))
    if types.is_timestamp(kind):
        return _timestamp(values)
    return None


def _object(values: pa.StructArray) -> pa.Array:
    # Each entry with a comma before it: Arrow's join that skips nulls drops the rows that hold nothing else.
    entries = []
    for index, child in enumerate(values.type):
        text = _json(pc.struct_field(values, [index]))
        if text is not None:
            entry = pc.binary_join_element_wise(f",{json.dumps(child.name)}:", text, "")
            entries.append(pc.coalesce(entry, ""))
    opened = pa.repeat("{", len(values))
    whole = pc.binary_join_element_wise(opened, *entries, "}", "")
    return _where(values.is_valid(), pc.replace_substring(whole, "{,", "{", max_replacements=1))


def _string(values: pa.StringArray) -> pa.Array:
    if pc.any(pc.match_substring_regex(values, _CONTROL)).as_py():
        # Rare, and of many forms.
        encoded = values.dictionary_encode()
        return pa.array([json.dumps(text) for text in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)
    return _quoted(pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"'))


def _timestamp(values: pa.TimestampArray) -> pa.Array:
    zoned = values.type.tz is not None
    moments = values.cast(pa.timestamp(values.type.unit))  # the instant in UTC
    if zoned:
        # To the millisecond, as every writer has them: downwards, the maximum too.
        moments = pc.floor_temporal(moments, unit="millisecond").cast(pa.timestamp("ms"))
    text = _within_calendar(moments, moments.type).cast(pa.string())
    return _quoted(pc.binary_join_element_wise(pc.replace_substring(text, " ", "T"), "Z" if zoned else "", ""))


def _within_calendar(values: pa.Array, kind: pa.DataType) -> pa.Array:
    first, last = (pa.scalar(text).cast(pa.timestamp("s")).cast(kind) for text in (_FIRST, _LAST))
    return _where(pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last)), values)


def _quoted(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', values, '"', "")


def _where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, values, pa.scalar(None, values.type))
