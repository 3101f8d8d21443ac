"""One marked write of rows to a table, which is created on its first write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, WriteResult
from lake_core.delta.conform import plain
from lake_core.delta.operations.merge_keys import check_keys
from lake_core.delta.operations.write import Write
from lake_core.delta.row_writer import Scope
from lake_core.expression import parse_predicate
from lake_orch.errors import InvalidDefinition, TableNotEmpty
from lake_orch.sessions.workspace import Receipt, Workspace
from lake_orch.tables.casting import cast_rows
from lake_orch.tables.confining import confined
from lake_orch.tables.data import Rows
from lake_orch.tables.data.spark_frame import is_spark_dataframe
from lake_orch.tables.definition import check_data, creation_properties, creation_schema, keep_up
from lake_orch.tables.merge_settings import SOURCE, TARGET, MergeSettings
from lake_orch.tables.settings import Mode, TableSettings

Data: TypeAlias = Rows

_THREADS = 2
"""That encode files while rows come in."""


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes to the table at one path of a workspace."""

    workspace: Workspace
    path: str
    partition_by: Sequence[str] = ()
    """The partition columns that the table gets if it is created here."""
    settings: TableSettings | None = None
    """What the asset's definition says of the table."""
    what: str = "the data"
    """The rows, as errors name them."""

    def schema(self, data: Data) -> pa.Schema:
        """The table's schema, or that of the data before there is a table."""
        table = self.workspace.find_table(self.path)
        if table is not None and (self.settings is None or self.settings.schema_mode is None):
            return table.schema
        return creation_schema(self._settings, rows_schema(data))

    def write(self, data: Data, *, mode: Mode, where: str | None, txn: tuple[str, int], merge: MergeSettings | None = None) -> WriteResult:
        """Write once under this marker.

        `overwrite` replaces what `where` selects (all of the table without one), and `overwrite_partitions` the partitions that get rows;
        `append` adds; `merge` does what `merge` says; `error` and `ignore` write only where `where` selects nothing yet. Rows outside
        `where` fail the write, whatever the mode.

        A write whose marker is in the table already does nothing, and its result says so; that of a merge counts rows that were inserted
        or updated. Raises TableNotEmpty, DefinitionMismatch, and what the table itself raises.
        """
        settings = self._settings
        table = self.workspace.find_table(self.path)
        earlier = table.recorded(txn) if table is not None else None
        if earlier is not None:
            return _counted(earlier, mode)
        if settings.schema is not None:
            data = cast_rows(data, settings.schema, self.what, frozenset(name.lower() for name in settings.generated))
        check_data(settings, rows_schema(data), self.what)
        if table is None:
            if merge is not None and merge.is_upsert:
                if isinstance(data, pa.RecordBatchReader):
                    data = data.read_all()  # a merge holds its source in memory anyway
                if isinstance(data, pa.Table):
                    check_keys(plain(data), merge.keys)  # before there is a table
            table = self._create(data)
        else:
            keep_up(table, settings)
        data = _clustered(data, settings.cluster_by)
        if mode in ("error", "ignore"):
            # What follows is an overwrite of nothing: unlike an append, it conflicts with rows that arrive meanwhile.
            if mode == "ignore" and not _is_empty(table, where):
                return WriteResult(table.version, False, 0, 0, 0)
            _check_empty(table, where)
        if mode == "merge":
            assert merge is not None
            return self._merge(data, table, merge, where, txn)
        if mode == "append":
            return self._append(data, table, where, txn)
        return self._overwrite(data, table, where, mode == "overwrite_partitions", txn)

    @property
    def _settings(self) -> TableSettings:
        return self.settings or TableSettings(self.path)

    def _create(self, data: Data) -> DeltaTable:
        schema = creation_schema(self._settings, rows_schema(data))
        properties = creation_properties(self._settings)
        by = tuple(self.partition_by)
        if self._settings.partition_by is None and {name.lower() for name in by} >= {name.lower() for name in schema.names}:
            by = by[:-1]  # not asked for by name, and data files need a column that is left
        return self.workspace.create_table(self.path, schema, partition_by=by, properties=properties or None)

    def _overwrite(self, data: Data, table: DeltaTable, where: str | None, dynamic: bool, txn: tuple[str, int]) -> WriteResult:
        schema_mode, schema, partition_by = self._settings.schema_mode, rows_schema(data), None
        if schema_mode == "overwrite":
            # With what the definition says of the columns, which rows do not carry.
            schema, partition_by = creation_schema(self._settings, schema), self._settings.partition_by
        write = table.plan_overwrite(schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by)
        return _commit(data, table, write, txn)

    def _append(self, data: Data, table: DeltaTable, where: str | None, txn: tuple[str, int]) -> WriteResult:
        write = table.plan_append(rows_schema(data), "merge" if self._settings.schema_mode == "merge" else None)
        if where is not None:
            scope = Scope(where, parse_predicate(where, write.writer.metadata.arrow_schema))
            write = replace(write, writer=replace(write.writer, scope=scope))
        return _commit(data, table, write, txn)

    def _merge(self, data: Data, table: DeltaTable, merge: MergeSettings, where: str | None, txn: tuple[str, int]) -> WriteResult:
        data = confined(data, where, self.what) if where is not None else data
        if is_spark_dataframe(data):
            from lake_core.spark import merge_delta

            making = merge_delta(data, table, merge.on, alias=(TARGET, SOURCE))
        else:
            making = table.merge(data, merge.on, alias=(TARGET, SOURCE))
        making = merge.describe(making)
        if self._settings.schema_mode == "merge":
            making = making.with_schema_evolution()
        done = making.execute(txn)
        return _counted(WriteResult(done.version, done.skipped, 0, 0, 0, done.metrics), "merge")


def final_result(result: WriteResult, receipt: Receipt | None, path: str) -> WriteResult:
    """A write's result with the version that it got by being published: within a session versions are provisional."""
    version = receipt.versions.get(path) if receipt else None
    return result if version is None or result.skipped else replace(result, version=version)


def rows_schema(data: Data) -> pa.Schema:
    """The schema of rows in any form."""
    if is_spark_dataframe(data):
        from lake_core.spark.write import arrow_schema

        return arrow_schema(data)
    return data.schema


def _counted(result: WriteResult, mode: Mode) -> WriteResult:
    """The result of a merge with its counts under the names that other writes have for them."""
    if mode != "merge":
        return result
    told = result.metrics
    if result.skipped and not told:
        return replace(result, rows=None, files=None, bytes=None)
    return replace(
        result,
        rows=told.get("numTargetRowsInserted", 0) + told.get("numTargetRowsUpdated", 0),
        files=told.get("numTargetFilesAdded", 0),
        bytes=told.get("numTargetBytesAdded", 0),
    )


def _clustered(data: Data, columns: Sequence[str]) -> Data:
    """Rows in the order of these columns, as far as they are at hand: all of a table, each partition of a DataFrame, no stream."""
    if not columns:
        return data
    if is_spark_dataframe(data):
        return data.sortWithinPartitions(*(f"`{name.replace('`', '``')}`" for name in columns))
    if not isinstance(data, pa.Table):
        return data
    names = {name.lower(): name for name in data.column_names}
    try:
        return data.sort_by([(names[name.lower()], "ascending") for name in columns])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidDefinition(f"rows cannot be sorted by {', '.join(columns)}, which lake/cluster_by names: {error}") from None


def _commit(data: Data, table: DeltaTable, write: Write, txn: tuple[str, int]) -> WriteResult:
    """Bring rows into data files as a write was planned, and commit it."""
    write.writer.check_fits(rows_schema(data))
    if is_spark_dataframe(data):
        from lake_core.spark.runner import run_in
        from lake_core.spark.write import write_files

        adds, changes = write_files(data, write.writer)
        return table.commit(write.operation(adds, changes, run_in(data.sparkSession)), txn)
    reader: pa.RecordBatchReader = data.to_reader() if isinstance(data, pa.Table) else data
    writer = replace(write.writer, threads=_THREADS)
    adds, changes = writer.write(pa.Table.from_batches([batch]) for batch in reader)
    return table.commit(write.operation(adds, changes), txn)


def _is_empty(table: DeltaTable, where: str | None) -> bool:
    return not len(table.plan_overwrite(table.schema, where=where).replaced_files())


def _check_empty(table: DeltaTable, where: str | None) -> None:
    if not _is_empty(table, where):
        part = f" where {where}" if where else ""
        raise TableNotEmpty(
            f"mode 'error' writes only the first rows, but the table {table.store.url()} (version {table.version}) has rows already{part}: "
            f"use mode 'overwrite' or 'append', or empty the table first"
        )
