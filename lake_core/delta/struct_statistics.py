"""Statistics as columns of a checkpoint (`stats_parsed`), from and to the JSON text that an add action carries.

Built column by column, without a Python object a file. Protocol sections: Checkpoint Schema, Per-file Statistics.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.skipping import json_lines, parse_stats
from lake_core.delta.statistics import Leaf, has_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = "0001-01-01"
_LAST = "9999-12-31"
_CONTROL = r"[\x00-\x1f]"


def stats_json(parsed: pa.Array) -> pa.StringArray:
    """Return the statistics of each file as JSON text, null where there are none.

    Values without a form in JSON (NaN, infinity, bytes, an instant beyond the calendar) are left out; writers of JSON
    leave them out too. Statistics of a type that makes no sense are left out as well: without them no file is skipped,
    which is never wrong.
    """
    try:
        text = _json(parsed) if pa.types.is_struct(parsed.type) else None
    except (pa.ArrowException, ValueError, OverflowError):
        text = None
    return pa.nulls(len(parsed), pa.string()) if text is None else text


def _json(values: pa.Array) -> pa.Array | None:
    """Return each value as JSON, null where there is none; None for a type that has no form there."""
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
        return pa.array([json.dumps(text) for text in encoded.dictionary.to_pylist()], pa.string()).take(
            encoded.indices
        )
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
    first, last = (scalar(text).cast(pa.timestamp("s")).cast(kind) for text in (_FIRST, _LAST))
    return _where(pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last)), values)


def _quoted(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', values, '"', "")


def _where(condition: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(condition, values, scalar(None, values.type))


def parsed_stats(texts: pa.ChunkedArray, leaves: Sequence[Leaf]) -> pa.StructArray | None:
    """Return statistics of files as columns, with the bounds of these columns (in physical names) in their own types.

    None where some file's have other types: then only their text tells them.
    """
    bounded = [(path, kind) for path, kind in leaves if has_bounds(kind)]
    nulls, as_read = (
        _nested([(path, pa.int64()) for path, _ in leaves]),
        _nested([(path, _as_read(kind)) for path, kind in bounded]),
    )
    fields = [
        ("numRecords", pa.int64()),
        ("minValues", as_read),
        ("maxValues", as_read),
        ("nullCount", nulls),
        ("tightBounds", pa.bool_()),
    ]
    table = parse_stats(json_lines(texts), [(name, kind) for name, kind in fields if kind is not None], len(texts))
    if table is None:
        return None
    typed = _nested(bounded)
    arrays = []
    for child in table.schema:
        column = table[child.name].combine_chunks()
        arrays.append(_typed(column, typed) if child.name in ("minValues", "maxValues") else column)
    return pa.StructArray.from_arrays(arrays, names=table.column_names)


def _as_read(kind: pa.DataType) -> pa.DataType:
    # Arrow's JSON reader has no dates.
    return pa.string() if pa.types.is_date(kind) else kind


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    children = [_typed(pc.struct_field(values, [index]), child.type) for index, child in enumerate(kind)]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _nested(leaves: Sequence[Leaf]) -> pa.StructType | None:
    """Return a struct type with these leaves; None for no leaves, because Parquet cannot hold an empty struct."""
    children: dict[str, list[Leaf] | pa.DataType] = {}
    for path, kind in leaves:
        if len(path) == 1:
            children[path[0]] = kind
        else:
            inner = children.setdefault(path[0], [])
            assert isinstance(inner, list)
            inner.append((path[1:], kind))
    fields = [pa.field(name, _nested(inner) if isinstance(inner, list) else inner) for name, inner in children.items()]
    return pa.struct(fields) if fields else None
