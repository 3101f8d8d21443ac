"""What each write mode does with the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.operations.rewrite import on_partitions_only
from lake_core.delta.operations.write import Write
from lake_core.expression import parse_predicate
from lake_core.txn import Txn
from lake_orch.assets.tables.definition import creation_schema
from lake_orch.assets.tables.merge_settings import SOURCE, TARGET, MergeSettings
from lake_orch.assets.tables.rows import Rows
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard
from lake_orch.assets.tables.settings import TableSettings, TableWriteMode
from lake_orch.errors import InvalidDefinition, TableNotEmpty


@dataclass(frozen=True, slots=True)
class TablePart:
    """The part of a table that a write may change."""

    table: DeltaTable
    settings: TableSettings
    guard: PartitionGuard | None
    """The guard of the slice, or None for the whole table."""
    rows_name: str
    """The name of the rows in errors."""

    @property
    def where(self) -> str | None:
        """Return the SQL of the slice."""
        return None if self.guard is None else self.guard.where

    def is_empty(self) -> bool:
        """Return whether no data file has rows of the slice."""
        return not len(self.table.plan_overwrite(self.table.schema, where=self.where).replaced_files())

    def write(self, rows: Rows, plan: Write, txn: Txn) -> OperationResult:
        """Write rows as planned. Rows outside the slice fail the write."""
        return rows.write(self.table, plan if self.guard is None else self.guard.bound(plan), txn)


Commit: TypeAlias = Callable[[Rows, TablePart, Txn], OperationResult]


@dataclass(frozen=True, slots=True)
class WriteMode:
    """One way to write rows, and what it does to the rows that are there."""

    commit: Commit
    replaces_rows: bool = False
    """True if rows of the slice are removed, which another asset may have written."""
    replaces_table: bool = False
    """True if no earlier row is left after a write to the whole table."""
    merge: MergeSettings | None = None


def write_mode(name: TableWriteMode, merge: MergeSettings | None, rows_name: str) -> WriteMode:
    """Return the mode of this name. Raises InvalidDefinition for a merge without keys or clauses."""
    if name != "merge":
        return _MODES[name]
    if merge is None:
        raise InvalidDefinition(
            f"{rows_name} is to be merged, without keys or clauses: give the keys or the clauses of a merge"
        )
    return WriteMode(partial(_merge, merge), merge=merge)


def _append(rows: Rows, part: TablePart, txn: Txn) -> OperationResult:
    schema_mode: Literal["merge"] | None = "merge" if part.settings.schema_mode == "merge" else None
    return part.write(rows, part.table.plan_append(rows.schema, schema_mode), txn)


def _overwrite(rows: Rows, part: TablePart, txn: Txn, *, dynamic: bool = False) -> OperationResult:
    return part.write(rows, _plan_overwrite(rows.schema, part, dynamic=dynamic), txn)


def _error(rows: Rows, part: TablePart, txn: Txn) -> OperationResult:
    if not part.is_empty():
        slice_of_table = "" if part.where is None else f" where {part.where}"
        raise TableNotEmpty(
            f"mode 'error' writes only the first rows, but the table {part.table.store.url()} (version "
            f"{part.table.version}) already has rows{slice_of_table}: use mode 'overwrite' or 'append', or empty the "
            "table first"
        )
    # An overwrite of no rows. Unlike an append, it conflicts with rows of concurrent commits.
    return _overwrite(rows, part, txn)


def _ignore(rows: Rows, part: TablePart, txn: Txn) -> OperationResult:
    return _overwrite(rows, part, txn) if part.is_empty() else OperationResult(part.table.version)


def _merge(settings: MergeSettings, rows: Rows, part: TablePart, txn: Txn) -> OperationResult:
    source = rows if part.guard is None else rows.guarded(part.guard, part.rows_name)
    merge = settings.describe(source.merge_into(part.table, settings.on, alias=(TARGET, SOURCE)))
    if part.settings.schema_mode == "merge":
        merge = merge.with_schema_evolution()
    return merge.execute(txn)


def _plan_overwrite(schema: pa.Schema, part: TablePart, *, dynamic: bool) -> Write:
    settings, where = part.settings, part.where
    if dynamic and where is not None:
        if not on_partitions_only(parse_predicate(where, part.table.schema), part.table.metadata):
            raise InvalidDefinition(
                f"{part.rows_name} cannot be written by mode 'overwrite_partitions': the partitions of the table, "
                f"{list(part.table.metadata.partition_columns)}, may have rows of other partitions of the asset. Use "
                "mode 'overwrite', or partition the table by the column of the asset's partitions"
            )
        where = None  # no partition of the table has rows of other partitions of the asset
    schema_mode = None if settings.schema_mode == "fill" else settings.schema_mode
    partition_by = None
    if schema_mode == "overwrite":
        # The new schema has the comments and other attributes of the declared columns. That of the rows lacks them.
        schema, partition_by = creation_schema(settings, schema), settings.partition_by
    return part.table.plan_overwrite(
        schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by
    )


_MODES: Mapping[TableWriteMode, WriteMode] = {
    "append": WriteMode(_append),
    "overwrite": WriteMode(_overwrite, replaces_rows=True, replaces_table=True),
    "overwrite_partitions": WriteMode(partial(_overwrite, dynamic=True), replaces_rows=True),
    # It names the rows that it replaces, whoever wrote them.
    "replace_where": WriteMode(_overwrite),
    "error": WriteMode(_error, replaces_table=True),
    "ignore": WriteMode(_ignore, replaces_table=True),
}
LEAVES_ONLY_ITS_ROWS = frozenset[str](name for name, mode in _MODES.items() if mode.replaces_table)
"""The modes after which the slice that they wrote has no other rows."""
