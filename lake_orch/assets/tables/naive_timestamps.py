"""Timestamps without a zone, as in pandas, DuckDB and CSV files.

By the settings, they are UTC, or stay clock times.
"""

from __future__ import annotations

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_core.delta.errors import NaiveTimestamp
from lake_core.delta.schema import is_zoneless
from lake_core.nested_arrays import leaf_types
from lake_orch.assets.tables.rows import Rows

FEATURE = "delta.feature.timestampNtz"


def has_naive(schema: pa.Schema) -> bool:
    """Return whether a column, or a field inside one, is a timestamp without a zone."""
    leaves = (leaf for child in schema for leaf in leaf_types(child.type))
    return any(is_zoneless(leaf.value_type if pa.types.is_dictionary(leaf) else leaf) for leaf in leaves)


def as_utc(rows: Rows, table: pa.Schema | None) -> Rows:
    """Return rows with timestamps without a zone taken as UTC, except columns that have no zone in the table either.

    In a Spark DataFrame only whole columns are converted, not nested fields.
    """
    table_types = {} if table is None else {child.name.lower(): child.type for child in table}
    types = {child.name: _utc(child.type, table_types.get(child.name.lower())) for child in rows.schema}
    changed = {child.name: types[child.name] for child in rows.schema if types[child.name] != child.type}
    return rows.assume_utc(changed) if changed else rows


def allow_naive(table: DeltaTable, rows: pa.Schema, *, replaces_schema: bool) -> None:
    """Enable timestamps without a zone for a table if new columns of the rows have them."""
    table_names = set() if replaces_schema else {name.lower() for name in table.schema.names}
    if not has_naive(pa.schema([child for child in rows if child.name.lower() not in table_names])):
        return
    if FEATURE.removeprefix("delta.feature.") not in (table.protocol.writer_features or ()):
        table.set_properties({FEATURE: "supported"})


def in_metadata(error: NaiveTimestamp, rows_name: str) -> NaiveTimestamp:
    """Return the error with the remedies in an asset's definition."""
    return NaiveTimestamp(
        f"column {error.column!r} of {rows_name} has timestamps with no time zone, so their instants are unknown. "
        'Say what they are: metadata={"lake/naive_timestamps": "utc"} takes them as UTC, '
        '"ntz" keeps them as clock times of no zone (readers must know the feature timestampNtz; '
        "a column with a zone in the table keeps it); naive_timestamps= of the IO manager says so for all assets. "
        "Or give them their zone, e.g. pc.assume_timezone(column, 'UTC'). Nothing was written",
        column=error.column,
    )


def _utc(kind: pa.DataType, table: pa.DataType | None) -> pa.DataType:
    """Return a type with UTC as the zone of its timestamps without one, except those that have none in the table."""
    types = pa.types
    if is_zoneless(kind):
        return kind if table is not None and is_zoneless(table) else pa.timestamp(kind.unit, "UTC")
    if types.is_struct(kind):
        known = (
            {child.name.lower(): child.type for child in table} if table is not None and types.is_struct(table) else {}
        )
        return pa.struct([child.with_type(_utc(child.type, known.get(child.name.lower()))) for child in kind])
    if types.is_map(kind):
        item = table.item_type if table is not None and types.is_map(table) else None
        return pa.map_(kind.key_field, kind.item_field.with_type(_utc(kind.item_type, item)))
    element = table.value_type if table is not None and types.is_list(table) else None
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_utc(kind.value_type, element)))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type, element)), kind.list_size)
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type, element)))
    if types.is_dictionary(kind) and is_zoneless(kind.value_type):
        # A table stores decoded values.
        return _utc(kind.value_type, table)
    return kind
