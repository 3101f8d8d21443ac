"""Data skipping: which files may hold a row for which a predicate is true. Never drops a file on a doubt.

Partition values decide exactly. Statistics decide where they are present: bounds may be wider than the data (strings
cut, timestamps cut to milliseconds), and NaN, which compares above every number, is in no bound.
Protocol sections: Per-file Statistics, Partition Value Serialization.
"""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from lake_core.arrow_scalar import FALSE_VALUE, TRUE_VALUE, scalar
from lake_core.delta import partition_value
from lake_core.delta.errors import MalformedAction
from lake_core.delta.numpy_arrays import booleans, empty_table, integers, numbers, text_bytes
from lake_core.delta.variant_statistics import part_bounds, part_of, with_part_columns
from lake_core.expression import (
    And,
    Column,
    Comparison,
    EvaluationFailed,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    columns,
    is_pushable,
    matching,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lake_core.delta.action import Metadata
    from lake_core.delta.column_mapping import ColumnMapping

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One answer a file."""

_MANY_VALUES = 64
_WHOLE_OFFSETS = dt.datetime(1973, 1, 1)
"""From then on, no zone's offset has seconds.

Before, delta-spark wrote bounds in local time with the offset cut to minutes: they are up to a minute off. Statistics
as columns of a checkpoint have such bounds in UTC.
"""
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def partition_table(files: pa.Table, metadata: Metadata, names: Sequence[str] | None = None) -> pa.Table:
    """Return the files' partition values as typed columns, one row a file.

    Reads the files' column `partitionValues`.
    """
    chosen = metadata.partition_columns if names is None else names
    keys, schema = metadata.partition_keys, metadata.arrow_schema
    values = files["partitionValues"].combine_chunks()
    typed = []
    for name in chosen:
        typed.append(partition_value.parse(_lookup(values, keys[name]), schema.field(name).type, name))
    return pa.Table.from_arrays(typed, schema=pa.schema([pa.field(name, schema.field(name).type) for name in chosen]))


def _lookup(maps: pa.MapArray, key: str) -> pa.Array:
    """Return the value of one key in each map."""
    if not len(maps):
        return pa.nulls(0, pa.string())
    offsets = numbers(maps.offsets)
    first, width = int(offsets[0]), int(offsets[1] - offsets[0])
    names = maps.keys.slice(first, width).to_pylist()
    # Usually all maps have the same keys in the same order, so the values of a key are at equal distances.
    if not maps.null_count and key in names and (np.diff(offsets) == width).all():
        position = names.index(key)
        chosen = None if width == 1 else integers(np.arange(first + position, int(offsets[-1]), width))
        own_keys, values = (
            column.slice(first, len(maps)) if chosen is None else column.take(chosen)
            for column in (maps.keys, maps.items)
        )
        if pc.all(pc.equal(own_keys, key)).as_py():
            return values
    return pc.map_lookup(maps, scalar(key), "first")


def matching_partitions(files: pa.Table, predicate: Predicate, metadata: Metadata) -> Mask:
    """Return for each file whether a predicate over partition columns only is true. Exact. Raises EvaluationFailed."""
    return _evaluate(partition_table(files, metadata), predicate, len(files))


def partition_filter(predicate: Predicate, metadata: Metadata) -> Callable[[pa.Table], Mask] | None:
    """Return a function that marks the files that may hold a row for which the predicate is true.

    It reads only the files' column `partitionValues`. Returns None if partition values cannot exclude a file.
    """
    named = {column.path[0] for column in columns(predicate)}
    names = [name for name in metadata.partition_columns if name in named]
    if not names:
        return None

    def may_match(files: pa.Table) -> Mask:
        try:
            partitions = partition_table(files, metadata, names)
        except MalformedAction:
            # Invalid files may be of an earlier schema and already removed. Readers of those in force raise the error.
            return np.full(len(files), True)
        return _Skipper(partitions, None, len(files)).may_match(predicate)

    return may_match


def skip(files: pa.Table, predicate: Predicate, metadata: Metadata) -> Mask:
    """Return whether each file may hold a row that satisfies the predicate.

    Reads `partitionValues`, and `stats` if they are there.
    """
    named = {column.path[0] for column in columns(predicate)}
    partition_columns = metadata.partition_columns
    partitions = partition_table(files, metadata, [name for name in partition_columns if name in named])
    keep = _Skipper(partitions, None, len(files)).may_match(predicate)
    if named <= set(partition_columns) or "stats" not in files.column_names or not keep.any():
        return keep
    # Statistics are parsed only for the files that the partition values leave.
    chosen = integers(np.flatnonzero(keep))
    predicate = with_part_columns(predicate)
    data_columns = [column for column in columns(predicate) if column.path[0] not in partition_columns]
    statistics = _Statistics(files["stats"].take(chosen), data_columns, metadata.column_mapping)
    keep[numbers(chosen)] = _Skipper(partitions.take(chosen), statistics, len(chosen)).may_match(predicate)
    return keep


def num_records(stats: pa.ChunkedArray) -> pa.Array:
    """Return the rows of each file by its statistics, null where these lack the number."""
    parsed = parse_stats(json_lines(stats), [("numRecords", pa.int64())], len(stats))
    return pa.nulls(len(stats), pa.int64()) if parsed is None else parsed["numRecords"].combine_chunks()


class Statistics(Protocol):
    """The statistics of files, or of other parts of a table: one value for each."""

    def get(self, kind: str, column: Column) -> pa.Array | None:
        """Return `minValues`, `maxValues` or `nullCount` of a column, null where it is not known."""

    def rows(self, column: Column) -> pa.Array | None:
        """Return the numbers of rows that the statistics of a column are about."""


def may_match_by_statistics(statistics: Statistics, predicate: Predicate, count: int) -> Mask:
    """Return whether each of `count` parts of a table may hold a row for which the predicate is true."""
    return _Skipper(pa.table({}), statistics, count).may_match(predicate)


class _Statistics:
    """Statistics of the columns that a predicate names, parsed from their JSON in one go."""

    def __init__(self, texts: pa.ChunkedArray, data_columns: Sequence[Column], mapping: ColumnMapping) -> None:
        self._rows = len(texts)
        self._mapping = mapping
        self._parsed: dict[tuple[str, ...], pa.Table | None] = {}
        body = json_lines(texts)
        for column in data_columns:
            if column.path not in self._parsed:
                self._parsed[column.path] = self._parse(body, column)

    def _path(self, column: Column) -> Sequence[str]:
        """Return the path of a column's statistics. A part of a variant has its bounds in those of the whole."""
        part = part_of(column)
        return self._mapping.physical_path(column.path if part is None else part[0])

    def _parse(self, body: bytes, column: Column) -> pa.Table | None:
        path = self._path(column)
        bound = _bound_type(column.type) if part_of(column) is None else pa.string()
        leaf = functools.reduce(lambda kind, name: pa.struct([(name, kind)]), reversed(path), bound or pa.string())
        nulls = functools.reduce(lambda kind, name: pa.struct([(name, kind)]), reversed(path), pa.int64())
        fields: list[tuple[str, pa.DataType]] = [("numRecords", pa.int64()), ("nullCount", nulls)]
        if bound is not None:
            fields += [("minValues", leaf), ("maxValues", leaf)]
        return parse_stats(body, fields, self._rows)

    def get(self, kind: str, column: Column) -> pa.Array | None:
        """Return `minValues`, `maxValues` or `nullCount` of a column, one a file; None if nothing is known."""
        table, part = self._parsed.get(column.path), part_of(column)
        if table is None or kind not in table.column_names:
            return None
        value: Any = table[kind].combine_chunks()
        for name in self._path(column):
            value = pc.struct_field(value, [name])
        if kind == "nullCount":
            return value if part is None else None  # a variant may be there without the part
        try:
            if part is not None:
                return part_bounds(value, part[1], column.type, upper=kind == "maxValues")
            return _typed_bound(value, column.type, upper=kind == "maxValues")
        except (pa.ArrowInvalid, MalformedAction):
            return None

    def rows(self, column: Column) -> pa.Array | None:
        table = self._parsed.get(column.path)
        return None if table is None else table["numRecords"].combine_chunks()


class _Skipper:
    def __init__(self, partitions: pa.Table, statistics: Statistics | None, rows: int) -> None:
        self._partitions, self._statistics, self._rows = partitions, statistics, rows

    def may_match(self, predicate: Predicate) -> Mask:
        match predicate:
            case And(operands=operands):
                return _all([self.may_match(child) for child in operands])
            case Or(operands=operands):
                return _any([self.may_match(child) for child in operands])
            case Literal(value=value):
                return np.full(self._rows, value.as_py() is True)
        named = [column.path[0] for column in columns(predicate)]
        if named and all(name in self._partitions.column_names for name in named):
            try:
                return _evaluate(self._partitions, predicate, self._rows)
            except EvaluationFailed:  # the rest of the predicate may keep such rows from it: reading them tells
                return np.full(self._rows, True)
        if (
            self._statistics is None
            or any(name in self._partitions.column_names for name in named)
            or not is_pushable(predicate)
        ):
            return np.full(self._rows, True)
        return _StatisticsSkipper(self._statistics, self._rows).may_match(predicate)


@dataclass(frozen=True, slots=True)
class _StatisticsSkipper:
    """Finds, only from statistics, the files that may contain a row for which a leaf of a predicate is true."""

    _statistics: Statistics
    _rows: int

    def may_match(self, leaf: Predicate) -> Mask:
        """Return which files may match a leaf, or a negated one. Every file may match what is neither."""
        match leaf:
            case Comparison(operator=operator, left=Column() as column, right=Literal(value=value)):
                return self._compare(operator, column, value)
            case In(operand=Column() as column, values=values):
                return self._in(column, values)
            case Like(operand=Column() as column, pattern=str(pattern)):
                return self._like(column, pattern)
            case IsNull(operand=Column() as column):
                nulls = self._statistics.get("nullCount", column)
                return self._unless(None if nulls is None else pc.greater(nulls, 0))
            case Not(operand=IsNull(operand=Column() as column)):
                return self._has_values(column)
            case Not(operand=In(operand=Column() as column, values=values)) if 0 < len(values) <= _MANY_VALUES:
                return _all([self._compare("!=", column, value) for value in values])
            case _:
                return np.full(self._rows, True)

    def _compare(self, operator: str, column: Column, value: pa.Scalar) -> Mask:
        keep = self._has_values(column)
        low, high = self._statistics.get("minValues", column), self._statistics.get("maxValues", column)
        floating = pa.types.is_floating(column.type)
        match operator:
            case "=" | "<=>":
                return keep & self._bound(pc.less_equal, low, value) & self._bound(pc.greater_equal, high, value)
            case "<" | "<=":
                return keep & self._bound(_COMPARE[operator], low, value)
            case ">" | ">=":
                # NaN exceeds every number, and statistics may leave it out of the maximum.
                return keep if floating else keep & self._bound(_COMPARE[operator], high, value)
            case _:
                # Only whole numbers and dates have bounds that are equal exactly where all values are.
                if not (pa.types.is_integer(column.type) or pa.types.is_date(column.type)):
                    return keep
                return keep & (self._bound(pc.not_equal, low, value) | self._bound(pc.not_equal, high, value))

    def _in(self, column: Column, values: Sequence[pa.Scalar]) -> Mask:
        if not values:
            return np.full(self._rows, False)
        if len(values) <= _MANY_VALUES:
            return _any([self._compare("=", column, value) for value in values])
        ordered = sorted(values, key=lambda value: value.as_py())
        return self._compare(">=", column, ordered[0]) & self._compare("<=", column, ordered[-1])

    def _like(self, column: Column, pattern: str) -> Mask:
        prefix = _literal_prefix(pattern)
        keep = self._has_values(column)
        if not prefix:
            return keep
        low, high = self._statistics.get("minValues", column), self._statistics.get("maxValues", column)
        start = None if low is None else pc.utf8_slice_codeunits(low, 0, len(prefix))
        return (
            keep
            & self._bound(pc.less_equal, start, scalar(prefix))
            & self._bound(pc.greater_equal, high, scalar(prefix))
        )

    def _has_values(self, column: Column) -> Mask:
        """Return whether a file may hold a value that is not null."""
        nulls, rows = self._statistics.get("nullCount", column), self._statistics.rows(column)
        return self._unless(None if nulls is None or rows is None else pc.less(nulls, rows))

    def _bound(self, compare: Callable[[Any, Any], Any], bound: pa.Array | None, value: pa.Scalar) -> Mask:
        if bound is None:
            return np.full(self._rows, True)
        try:
            return _true_or_unknown(compare(bound, value))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return np.full(self._rows, True)

    def _unless(self, answer: pa.Array | None) -> Mask:
        return np.full(self._rows, True) if answer is None else _true_or_unknown(answer)


def _evaluate(table: pa.Table, predicate: Predicate, count: int) -> Mask:
    # Without partition columns the table has no rows to count.
    number = pa.chunked_array([integers(np.arange(count))])
    rows = pa.Table.from_arrays([*table.columns, number], names=[*table.column_names, "\x00row"])
    answer = np.zeros(count, dtype=bool)
    answer[numbers(matching(rows, predicate)["\x00row"])] = True
    return answer


def _all(masks: Sequence[Mask]) -> Mask:
    return np.asarray(np.logical_and.reduce(masks), dtype=np.bool_)


def _any(masks: Sequence[Mask]) -> Mask:
    return np.asarray(np.logical_or.reduce(masks), dtype=np.bool_)


def _true_or_unknown(answer: pa.Array) -> Mask:
    return booleans(pc.fill_null(answer, TRUE_VALUE))


def _bound_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of a column's bounds in JSON; None for types that have none."""
    types = pa.types
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind) or types.is_decimal(kind):
        return pa.float64()
    if types.is_string(kind) or types.is_date(kind) or types.is_timestamp(kind):
        return pa.string()
    return None


def _typed_bound(value: pa.Array, kind: pa.DataType, *, upper: bool) -> pa.Array:
    types = pa.types
    if types.is_timestamp(kind):
        typed = partition_value.parse(value, kind, "statistics")
        if partition_value.outside_calendar(typed):
            raise MalformedAction("bounds outside the years 1 to 9999")
        slack = scalar(dt.timedelta(minutes=1) if kind.tz else dt.timedelta(0))
        cut = pc.or_(
            pc.invert(pc.match_substring_regex(value, "[zZ]$")),
            pc.less(typed, scalar(_WHOLE_OFFSETS, pa.timestamp("us")).cast(kind)),
        )
        widened = (pc.add if upper else pc.subtract)(typed, slack)
        typed = pc.if_else(cut, widened, typed)
        # Bounds are cut down to the millisecond, the maximum too.
        return pc.add(typed, scalar(dt.timedelta(milliseconds=1))) if upper else typed
    if types.is_decimal(kind):
        # Through doubles: widened by more than what the two conversions can round away.
        slack = pc.multiply(pc.abs(value), 1e-15)
        return pc.add(value, slack) if upper else pc.subtract(value, slack)
    # A float's shortest text is another number when it is read as a double.
    if types.is_float64(kind):  # the column may have been a float when the file was written
        rounded = value.cast(pa.float32()).cast(kind)
        return (pc.max_element_wise if upper else pc.min_element_wise)(value, rounded, skip_nulls=False)
    return value.cast(kind) if types.is_date(kind) or types.is_float32(kind) else value


def json_lines(texts: pa.ChunkedArray) -> bytes:
    """Return the statistics of files, one a line."""
    # Arrow's JSON reader crashes on a text of only `null`. A text that is not an object has no statistics anyway.
    objects = pc.if_else(pc.fill_null(pc.starts_with(texts, "{"), FALSE_VALUE), texts, scalar("{}"))
    lines = pc.binary_join_element_wise(pc.replace_substring(objects, "\n", " "), scalar(""), scalar("\n"))
    return b"".join(text_bytes(chunk) for chunk in lines.chunks)


def parse_stats(body: bytes, fields: list[tuple[str, pa.DataType]], rows: int) -> pa.Table | None:
    """Return these fields of statistics, one row a file; None if some file's have other types, and so are useless."""
    if not rows:
        return empty_table(pa.schema(fields))
    try:
        table = pa_json.read_json(
            pa.BufferReader(body),
            read_options=pa_json.ReadOptions(block_size=max(len(body) + 1, 1 << 16)),
            parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, OverflowError):
        return None
    return table if table.num_rows == rows else None


def _literal_prefix(pattern: str) -> str:
    prefix = ""
    for character in pattern:
        if character in "%_\\":
            break
        prefix += character
    return prefix
