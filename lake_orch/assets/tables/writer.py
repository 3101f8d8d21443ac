"""Writes rows to a table with a transaction identifier. The first write creates the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.errors import FolderNotEmpty, NaiveTimestamp, UnsupportedType
from lake_core.delta.fit import fit_rows
from lake_core.pool.arrow.type_key import may_name_type
from lake_core.txn import Txn
from lake_core.workspace import Receipt, Workspace
from lake_orch.assets.owner import Owner
from lake_orch.assets.tables.casting import cast_rows
from lake_orch.assets.tables.column_check import check_rows
from lake_orch.assets.tables.definition import check_data, creation_properties, creation_schema, keep_up, merge_schema
from lake_orch.assets.tables.merge_settings import MergeSettings
from lake_orch.assets.tables.naive_timestamps import FEATURE as NTZ_FEATURE
from lake_orch.assets.tables.naive_timestamps import allow_naive, as_utc, has_naive, in_metadata
from lake_orch.assets.tables.owner import claim
from lake_orch.assets.tables.rows import Rows
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard
from lake_orch.assets.tables.settings import TableSettings, TableWriteMode
from lake_orch.assets.tables.write_mode import TablePart, WriteMode, write_mode


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes to the table at one path of a workspace."""

    workspace: Workspace
    path: str
    partition_by: Sequence[str] = ()
    """The partition columns for a table that this writer creates."""
    settings: TableSettings | None = None
    """The settings in the asset's definition."""
    rows_name: str = "the data"
    """The name of the rows in errors."""
    by_hand: bool = False
    """True if a step's code makes the write. Then errors do not advise metadata."""
    owner: Owner | None = None
    """The asset that writes."""

    def _table(self) -> DeltaTable | None:
        table: DeltaTable | None = self.workspace.find(self.path, "delta")
        return table

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the table's schema, or before it exists, the schema that rows of this schema would create."""
        table = self._table()
        if table is not None and self._settings.schema_mode in (None, "fill"):
            return table.schema
        return creation_schema(self._settings, rows)

    def with_zones(self, rows: Rows) -> Rows:
        """Return rows with timestamps without a zone taken as UTC, if the settings say so."""
        if self._settings.naive_timestamps != "utc" or not has_naive(rows.schema):
            return rows
        table = self._table()
        return as_utc(rows, None if table is None else table.schema)

    def write(
        self,
        rows: Rows,
        *,
        mode: TableWriteMode,
        txn: Txn,
        guard: PartitionGuard | None = None,
        merge: MergeSettings | None = None,
    ) -> OperationResult:
        """Write the rows once, with this transaction identifier.

        `overwrite` replaces the slice of the guard, or the whole table if there is no guard. `overwrite_partitions`
        replaces the partitions that get rows. `append` adds the rows. `merge` merges them by the settings `merge`.
        `error` and `ignore` write only if the slice is empty. Rows outside the slice fail the write in every mode.

        If the transaction identifier is already in the table, the write does nothing, and its result says so. The
        result of a merge counts inserted and updated rows. Raises TableNotEmpty, DefinitionMismatch, and the errors of
        the table.
        """
        try:
            return self._write(rows, write_mode(mode, merge, self.rows_name), guard, txn)
        except NaiveTimestamp as error:
            raise (error if self.by_hand else in_metadata(error, self.rows_name)) from None

    def _write(self, rows: Rows, mode: WriteMode, guard: PartitionGuard | None, txn: Txn) -> OperationResult:
        settings = self._settings
        table = self._table()
        earlier = table.recorded(txn) if table is not None else None
        if earlier is not None:
            return earlier
        replaces_table = mode.replaces_table and guard is None
        rows = self._conformed(rows, table, mode.merge, keeps_rows=table is None or not replaces_table)
        if table is None:
            if mode.merge is not None and mode.merge.is_upsert:
                rows = rows.with_unique(mode.merge.keys)
            table = self._create(rows.schema, mode.merge)
        else:
            replaces_rows = mode.replaces_rows and not (self.by_hand and guard is not None)
            self._prepare(table, rows.schema, replaces_rows=replaces_rows, replaces_all=replaces_table)
        if settings.cluster_by:
            rows = rows.sorted_by(settings.cluster_by)
        return mode.commit(rows, TablePart(table, settings, guard, self.rows_name), txn)

    def _conformed(
        self, rows: Rows, table: DeltaTable | None, merge: MergeSettings | None, *, keeps_rows: bool
    ) -> Rows:
        """Return the rows in the types of the table or of the declared columns, and check that they fit."""
        settings, columns = self._settings, self._columns(table)
        if any(may_name_type(child) for child in rows.schema):
            from lake_orch.assets.tables.pool_columns import fitted

            rows = fitted(rows, columns, self.rows_name, keeps_rows=keeps_rows)
        if columns is not None and isinstance(rows.data, pa.Table):
            rows = rows.mapped(partial(fit_rows, table=columns), columns) or rows
        if settings.schema is not None:
            generated = frozenset(name.lower() for name in settings.generated)
            rows = cast_rows(rows, settings.schema, self.rows_name, generated)
        check_data(settings, rows.schema, self.rows_name)
        check_rows(rows.schema, None if table is None else table.schema, settings.schema_mode, merge, self.rows_name)
        return rows

    def _columns(self, table: DeltaTable | None) -> pa.Schema | None:
        """Return the columns that the table has before a write and keeps, or that are declared for a new table."""
        if table is None:
            return self._settings.schema
        return None if self._settings.schema_mode == "overwrite" else table.schema

    def _prepare(self, table: DeltaTable, schema: pa.Schema, *, replaces_rows: bool, replaces_all: bool) -> None:
        """Update the table's definition before rows of this schema are written.

        Raises TableOwned for another asset's table.
        """
        settings = self._settings
        claim(table, self.owner, settings.ownership, replaces_rows=replaces_rows, replaces_all=replaces_all)
        keep_up(table, settings)
        if settings.naive_timestamps == "ntz":
            allow_naive(table, schema, replaces_schema=settings.schema_mode == "overwrite")

    @property
    def _settings(self) -> TableSettings:
        return self.settings or TableSettings(self.path)

    def _create(self, schema: pa.Schema, merge: MergeSettings | None) -> DeltaTable:
        if merge is not None and self._settings.schema is None:
            schema = merge_schema(merge, schema, self.rows_name)
        schema = creation_schema(self._settings, schema)
        properties = creation_properties(self._settings)
        if self._settings.naive_timestamps == "ntz" and has_naive(schema):
            properties = {NTZ_FEATURE: "supported"} | properties
        if self.owner is not None and self._settings.ownership != "shared":
            properties = {**self.owner.properties, **properties}
        partition_by = tuple(self.partition_by)
        if self._settings.partition_by is None and {name.lower() for name in partition_by} >= {
            name.lower() for name in schema.names
        }:
            # These are the default columns. Data files need at least one more column.
            partition_by = partition_by[:-1]
        try:
            return self.workspace.create(  # type: ignore[no-any-return]
                self.path,
                "delta",
                schema,
                partition_by=partition_by,
                cluster_by=self._settings.cluster_by if self._settings.is_clustered else (),
                properties=properties or None,
            )
        except FolderNotEmpty as error:
            raise FolderNotEmpty(f"{error}. An asset chooses its path by the metadata lake/path") from None
        except UnsupportedType as error:
            if self.by_hand or isinstance(error, NaiveTimestamp):
                raise
            raise UnsupportedType(
                f"{error}. An asset declares the types of its columns by the metadata lake/schema"
            ) from None


def final_result(result: OperationResult, receipt: Receipt | None, path: str) -> OperationResult:
    """Return a write's result with its published version. Versions within a session are provisional."""
    version = receipt.versions.get(path) if receipt else None
    return result if version is None or result.skipped else replace(result, version=version)
