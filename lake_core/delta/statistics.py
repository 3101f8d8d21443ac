"""Per-file statistics: collected from Arrow data as it is written. Protocol section: Per-file Statistics.

Strings are cut to 32 characters (a cut maximum gets a tie-breaker above every continuation), timestamps to
milliseconds. Bounds that JSON cannot hold (NaN, infinities) are left out: a missing bound never hides a row.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import InvalidProperty
from lake_core.delta.variant import is_variant
from lake_core.json_numbers import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

STATS_COLUMNS = "delta.dataSkippingStatsColumns"

ColumnPath: TypeAlias = tuple[str, ...]
"""The names of a column from the top level down."""
Leaf: TypeAlias = tuple[ColumnPath, pa.DataType]
"""A column that is not a struct: its path and its type."""

_PREFIX = 32
_INDEXED_COLUMNS = 32


def indexed_columns(properties: Mapping[str, str]) -> int:
    """Return how many leaf columns get statistics (-1: all). Raises InvalidProperty."""
    text = properties.get("delta.dataSkippingNumIndexedCols", str(_INDEXED_COLUMNS))
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < -1:
        raise InvalidProperty(
            f"delta.dataSkippingNumIndexedCols is {text!r}: use a whole number, or -1 for all columns"
        )
    return number


def indexed_leaves(schema: pa.Schema, partition_columns: Sequence[str], properties: Mapping[str, str]) -> list[Leaf]:
    """Return the columns of a table that get statistics. Raises InvalidProperty.

    They are those of `delta.dataSkippingStatsColumns`, else the first `delta.dataSkippingNumIndexedCols` (32) leaf
    columns.
    """
    leaves = leaf_columns([child for child in schema if child.name not in partition_columns])
    chosen = properties.get(STATS_COLUMNS)
    if chosen is None:
        limit = indexed_columns(properties)
        return leaves if limit < 0 else leaves[:limit]
    prefixes = [_folded(path) for path in _column_paths(chosen)]
    return [(path, kind) for path, kind in leaves if any(_folded(path)[: len(names)] == names for names in prefixes)]


def check_indexed(schema: pa.Schema, properties: Mapping[str, str]) -> None:
    """Raise InvalidProperty where the properties choose statistics columns that make no sense for the schema."""
    indexed_columns(properties)
    leaf_paths = [_folded(path) for path, _ in leaf_columns(list(schema))]
    for path in _column_paths(properties.get(STATS_COLUMNS, "")):
        if not any(names[: len(path)] == _folded(path) for names in leaf_paths):
            raise InvalidProperty(f"{STATS_COLUMNS} names {'.'.join(path)!r}, which is not a column of the table")


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path)


def _column_paths(text: str) -> list[tuple[str, ...]]:
    """Parse column names separated by commas, fields by dots, either in backticks."""
    if not text.strip():
        return []
    part = r"\s*(?:`(?:[^`]|``)+`|[^`.,]+)\s*"
    if not re.fullmatch(rf"{part}(?:[.,]{part})*", text):
        raise InvalidProperty(
            f"{STATS_COLUMNS} is {text!r}: use column names separated by commas, such as 'id, address.city'"
        )
    paths: list[list[str]] = [[]]
    for match in re.finditer(rf"({part})([.,]?)", text):
        name = match[1].strip()
        paths[-1].append(name[1:-1].replace("``", "`") if name.startswith("`") else name)
        if match[2] == ",":
            paths.append([])
    return [tuple(path) for path in paths]


class StatisticsCollector:
    """Gathers the statistics of one data file over the batches that go into it.

    `leaves`: the columns, as the file names them.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._rows = 0
        self._leaves = [_Leaf(path, kind) for path, kind in leaves]

    def update(self, batch: pa.Table, with_nan: Set[ColumnPath] | None = None) -> None:
        """Add a batch of the file's rows. `with_nan`: the columns that hold a NaN, if that is known."""
        self._rows += batch.num_rows
        for leaf in self._leaves:
            leaf.update(batch, with_nan)

    @property
    def rows(self) -> int:
        """Return the number of rows collected so far."""
        return self._rows

    def to_json(self) -> str:
        """Encode the statistics as the add action's `stats` text."""
        body: dict[str, Any] = {"numRecords": self._rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        for leaf in self._leaves:
            _put(body["nullCount"], leaf.path, leaf.nulls)
            low, high = leaf.bounds()
            if low is not None:
                _put(body["minValues"], leaf.path, low)
            if high is not None:
                _put(body["maxValues"], leaf.path, high)
        return dumps(body)


class _Leaf:
    def __init__(self, path: tuple[str, ...], kind: pa.DataType) -> None:
        self.path = path
        self.nulls = 0
        self._kind = kind
        self._low: Any = None
        self._high: Any = None
        self._unbounded = not has_bounds(kind)
        self._nan = False

    def update(self, batch: pa.Table, with_nan: Set[ColumnPath] | None) -> None:
        column = leaf_values(batch, self.path)
        self.nulls += column.null_count
        if self._unbounded or column.null_count == len(column):
            return
        if pa.types.is_floating(self._kind):
            holds_nan = pc.any(pc.is_nan(column)).as_py() if with_nan is None else self.path in with_nan
            self._nan = self._nan or bool(holds_nan)
        extremes = pc.min_max(column)
        try:
            low, high = extremes["min"].as_py(), extremes["max"].as_py()
        except (OverflowError, ValueError):  # an instant beyond year 9999
            self._unbounded, self._low = True, None
            return
        if low is None or low != low:
            return
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def bounds(self) -> tuple[Any, Any]:
        if self._low is None:
            return None, None
        # NaN sorts above every number and has no JSON form, so a file that holds one has no upper bound.
        return _lower(self._low), None if self._nan else _upper(self._high)


def leaf_values(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """Return the values of a column, or of a field inside structs."""
    column = rows[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, [name])  # bare text would be a path: ".a", "a.b"
    return column


def leaf_columns(fields: Sequence[pa.Field], path: tuple[str, ...] = ()) -> list[Leaf]:
    """Return the columns that are not structs, at any depth of structs, with their types."""
    leaves: list[Leaf] = []
    for child in fields:
        if pa.types.is_struct(child.type) and not is_variant(child.type):
            leaves += leaf_columns(list(child.type), (*path, child.name))
        else:
            leaves.append(((*path, child.name), child.type))
    return leaves


def has_bounds(kind: pa.DataType) -> bool:
    """Return whether statistics hold the least and the greatest value of columns of this type."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def _lower(value: Any) -> Any:
    return value[:_PREFIX] if isinstance(value, str) else _json_value(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str):
        return _json_value(value)
    if len(value) <= _PREFIX:
        return value
    # The tie-breaker must sort above whatever was cut off. U+10FFFF is above everything but itself.
    head = value[:_PREFIX]
    tail = value[_PREFIX:]
    if tail[0] < "\ufffd":
        return head + "\ufffd"
    return head + "\U0010ffff" if tail[0] < "\U0010ffff" else None


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, dt.datetime):
        # Down to milliseconds, the maximum too: readers add one.
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if value.tzinfo else text
    if isinstance(value, dt.date):
        return value.isoformat()
    return value


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value
