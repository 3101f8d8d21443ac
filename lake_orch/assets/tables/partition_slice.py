"""The *slice* of a table: the predicate that selects exactly the rows of some partitions.

The predicate is Spark SQL text on the columns that an asset's metadata `partition_expr` names: one column, or a dict
from dimension to column for multi-dimensional partitions. Time windows become `start <= column < end`, keys become
`column = key`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

import pyarrow as pa

from lake_core.expression import quote_identifier, quote_text
from lake_orch.assets.partitions import Dimension, PartitionExpr, Partitions, clock_time
from lake_orch.errors import PartitionSliceError
from lake_orch.spark.type_name import spark_type_name

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_SPARK_TYPES = {"date", "timestamp", "timestamp_ntz", "string", *_INTEGERS}

NOTHING = "false"
"""The predicate for no partitions."""


def slice_where(
    partitions: Partitions,
    keys: Iterable[str],
    partition_expr: PartitionExpr,
    schema: pa.Schema,
    *,
    relation: str | None = None,
) -> str:
    """Return the predicate that holds for the rows of these partitions and no others.

    `schema` is the table's, or that of the data before the table exists. Literals have the type of the column.
    `relation` is an alias that qualifies the columns, as in a merge. Contiguous time windows are merged.

    Raises PartitionSliceError if no exact predicate exists. A wider predicate would overwrite rows of other partitions.
    """
    columns = partitions.columns(partition_expr)
    types = {column: _column_type(schema, column) for column in columns}
    tuples = partitions.tuples(map(str, keys))
    if not tuples:
        return NOTHING
    prefix = "" if relation is None else f"{quote_identifier(relation)}."
    dimensions = list(partitions.dimensions.values())
    return _tuples_where(
        tuples, dimensions, [_Column(prefix + quote_identifier(name), name, types[name]) for name in columns]
    )


@dataclass(frozen=True, slots=True)
class _Column:
    sql: str
    name: str
    type: str


def _tuples_where(
    tuples: Collection[tuple[str, ...]], dimensions: Sequence[Dimension], columns: Sequence[_Column]
) -> str:
    """Return an OR of tuples, with the keys of the first dimension grouped where the other keys are equal."""
    if len(columns) == 1:
        return _keys_where([key for (key,) in tuples], dimensions[0], columns[0])
    rest_of: dict[str, set[tuple[str, ...]]] = {}
    for first, *others in tuples:
        rest_of.setdefault(first, set()).add(tuple(others))
    firsts_of: dict[frozenset[tuple[str, ...]], list[str]] = {}
    for first, rests in sorted(rest_of.items()):
        firsts_of.setdefault(frozenset(rests), []).append(first)
    return _any_of(
        f"({_keys_where(firsts, dimensions[0], columns[0])}) AND ({_tuples_where(rests, dimensions[1:], columns[1:])})"
        for rests, firsts in firsts_of.items()
    )


def _keys_where(keys: Sequence[str], dimension: Dimension, column: _Column) -> str:
    if dimension.is_time and column.type in ("date", "timestamp", "timestamp_ntz"):
        return _any_of(
            f"{column.sql} >= {_moment(window.start, column.name, column.type)} AND "
            f"{column.sql} < {_moment(window.end, column.name, column.type)}"
            for window in dimension.windows(keys)
        )
    literals = [_key_literal(key, column.name, column.type) for key in sorted(set(keys))]
    return f"{column.sql} = {literals[0]}" if len(literals) == 1 else f"{column.sql} IN ({', '.join(literals)})"


def _any_of(predicates: Iterable[str]) -> str:
    parts = list(predicates)
    return parts[0] if len(parts) == 1 else " OR ".join(f"({part})" for part in parts)


def _moment(moment: datetime, column: str, column_type: str) -> str:
    """Return a window's boundary as a literal of the column's type.

    Dates and timestamps without zone are in the definition's zone.
    """
    if column_type == "date":
        if moment.time() != time():
            raise PartitionSliceError(
                f"column {column!r} is a DATE, but a partition begins or ends at {moment.isoformat()}: "
                f"use a timestamp column, or partitions that begin at midnight"
            )
        return f"DATE '{clock_time(moment, column).date().isoformat()}'"
    if column_type == "timestamp_ntz":
        return f"TIMESTAMP_NTZ '{clock_time(moment, column).isoformat(sep=' ')}'"
    return f"TIMESTAMP '{moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"


def _key_literal(key: str, column: str, column_type: str) -> str:
    """Return a key as a literal of the column's type.

    Raises PartitionSliceError if the value is not equal to the key when it is read back, such as `01` for INT 1.
    """
    if column_type == "string":
        return quote_text(key)
    if column_type in _INTEGERS and key.removeprefix("-").isdecimal() and str(int(key)) == key:
        return key
    if column_type == "date":
        try:
            if date.fromisoformat(key).isoformat() == key:
                return f"DATE '{key}'"
        except ValueError:
            pass
    raise PartitionSliceError(
        f"partition key {key!r} is not a value of column {column!r}, which is of type {column_type}: "
        "use a column whose values are the keys, such as a string column"
    )


def _column_type(schema: pa.Schema, column: str) -> str:
    """Return the Spark SQL name of the column's type. Column names are case-insensitive, as in Spark and Delta."""
    matches = [name for name in schema.names if name.lower() == column.lower()]
    if len(matches) != 1:
        raise PartitionSliceError(
            f"partition_expr names the column {column!r}, and the columns are {', '.join(map(repr, schema.names))}: "
            "name exactly one of them"
        )
    name = spark_type_name(schema.field(matches[0]).type)
    if name not in _SPARK_TYPES:
        raise PartitionSliceError(
            f"column {column!r} is of type {name}: "
            "partitions can stand for columns of type date, timestamp, string or integer only"
        )
    return name
