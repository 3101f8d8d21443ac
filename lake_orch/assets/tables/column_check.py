"""Checks that rows have the columns of their table, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa

from lake_core.delta.conform import check_fits
from lake_core.delta.errors import SchemaMismatch
from lake_orch.assets.tables.definition import generation_of
from lake_orch.assets.tables.merge_settings import MergeSettings

_WHERE = "lake/schema_mode in an asset's metadata, schema_mode= of the IO manager or of a write by hand"


def check_rows(
    rows: pa.Schema,
    table: pa.Schema | None,
    schema_mode: Literal["fill", "merge", "overwrite"] | None,
    merge: MergeSettings | None,
    name: str,
) -> None:
    """Check that rows have the columns that a write of them needs.

    Args:
        rows: The schema of the rows.
        table: The schema of the table, or None before it exists.
        schema_mode: How to handle columns that only the rows or only the table has.
        merge: The settings of a merge, or None for any other write.
        name: The name of the rows in errors.

    Raises:
        SchemaMismatch: The rows lack columns, or have columns or values that the table cannot hold.
    """
    _check_some(rows, name)
    if table is None or schema_mode == "overwrite" or (merge is not None and not merge.is_upsert):
        # The clauses of a merge name the columns that they use.
        return
    if merge is None:
        _check_columns(rows, table, name, may_lack=schema_mode is not None, may_add=schema_mode == "merge")
        return
    _check_columns(rows, table, name, may_lack=False, may_add=schema_mode == "merge", is_merge=True)
    _check_types(rows, table)


def _check_some(rows: pa.Schema, name: str) -> None:
    """Raise SchemaMismatch for rows without any column."""
    if not len(rows):
        raise SchemaMismatch(
            f"{name} has no columns, and a table needs columns. "
            "Return data with columns even if it has no rows (such as frame.head(0)). Nothing was written"
        )


def _check_types(rows: pa.Schema, table: pa.Schema) -> None:
    """Raise SchemaMismatch for columns whose values the table cannot hold, such as 1.5 in a column of integers."""
    table_fields = {child.name.lower(): child for child in table}
    both = [child for child in rows if child.name.lower() in table_fields]
    if both:
        check_fits(pa.schema(both), pa.schema([table_fields[child.name.lower()].with_nullable(True) for child in both]))


def _check_columns(
    rows: pa.Schema, table: pa.Schema, name: str, *, may_lack: bool, may_add: bool, is_merge: bool = False
) -> None:
    """Raise SchemaMismatch for columns, or fields inside them, that only the rows or only the table has.

    Generated columns may be missing. A merge by keys (`is_merge`) needs all columns under every schema mode, because
    rows that match already have values in them.
    """
    extra = list(_only_in(list(rows), list(table)))
    if extra and not may_add:
        raise SchemaMismatch(
            f"{name} has columns that the table lacks: "
            f"{', '.join(extra)}. Add them to the table with the schema mode 'merge' ({_WHERE}), "
            'such as metadata={"lake/schema_mode": "merge"}, or drop them. Nothing was written'
        )
    required = [child for child in table if generation_of(child) is None]
    missing = list(_only_in(required, list(rows)))
    if missing and not may_lack:
        fill = (
            f'let them be null by the schema mode \'fill\' ({_WHERE}), such as metadata={{"lake/schema_mode": "fill"}}'
        )
        spell = "set each column by clauses in lake/merge (when_matched_update, when_not_matched_insert)"
        remedy = spell if is_merge else fill
        raise SchemaMismatch(
            f"{name} lacks columns that the table has: {', '.join(missing)}. "
            f"Give them, or {remedy}. Nothing was written"
        )


def _only_in(first: list[pa.Field], second: list[pa.Field], path: str = "") -> Iterator[str]:
    """Yield the paths of the fields in `first` that are not in `second`, at any depth."""
    others = {child.name.lower(): child for child in second}
    for child in first:
        other = others.get(child.name.lower())
        if other is None:
            yield f"{path}{child.name}"
        else:
            yield from _inside(child.type, other.type, f"{path}{child.name}")


def _inside(first: pa.DataType, second: pa.DataType, path: str) -> Iterator[str]:
    types = pa.types
    if types.is_struct(first) and types.is_struct(second):
        yield from _only_in(list(first), list(second), f"{path}.")
    elif types.is_map(first) and types.is_map(second):
        yield from _inside(first.item_type, second.item_type, f"{path}.value")
    elif hasattr(first, "value_field") and hasattr(second, "value_field"):
        yield from _inside(first.value_type, second.value_type, f"{path}.element")
