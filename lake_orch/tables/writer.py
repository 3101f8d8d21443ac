"""One marked write of rows to a table, which is created on its first write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.conform import plain
from lake_core.delta.errors import FolderNotEmpty, NaiveTimestamp
from lake_core.delta.operations.merge_keys import check_keys
from lake_core.delta.operations.write import Write
from lake_core.delta.row_writer import Scope
from lake_core.expression import parse_predicate
from lake_orch.errors import InvalidDefinition, TableNotEmpty
from lake_orch.sessions.workspace import Receipt, Workspace
from lake_orch.tables.casting import cast_rows
from lake_orch.tables.column_check import check_columns, check_some, check_types
from lake_orch.tables.confining import confined
from lake_orch.tables.data import Rows
from lake_orch.tables.data.spark_frame import is_spark_dataframe
from lake_orch.tables.definition import check_data, creation_properties, creation_schema, keep_up, merge_schema
from lake_orch.tables.merge_settings import SOURCE, TARGET, MergeSettings
from lake_orch.tables.naive_timestamps import FEATURE as NTZ_FEATURE
from lake_orch.tables.naive_timestamps import allow_naive, as_utc, has_naive, in_metadata
from lake_orch.tables.owner import Owner, check_owner, take
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
    by_hand: bool = False
    """Whether a step's own code writes, to which metadata is no remedy."""
    owner: Owner | None = None
    """The asset that writes."""
    scope_name: str = ""
    """What errors call the rows that `where` selects."""
    scope_remedy: str = ""

    def schema(self, data: Data) -> pa.Schema:
        """The table's schema, or that of the data before there is a table."""
        table = self.workspace.find_table(self.path)
        if table is not None and self._settings.schema_mode in (None, "fill"):
            return table.schema
        return creation_schema(self._settings, rows_schema(data))

    def with_zones(self, data: Data) -> Data:
        """Return rows with timestamps without a zone taken as UTC, where the settings say so. Twice is as good as once."""
        schema = rows_schema(data)
        if self._settings.naive_timestamps != "utc" or not has_naive(schema):
            return data
        table = self.workspace.find_table(self.path)
        return as_utc(data, schema, None if table is None else table.schema)

    def write(
        self, data: Data, *, mode: Mode, where: str | None, txn: tuple[str, int], merge: MergeSettings | None = None
    ) -> OperationResult:
        """Write once under this marker.

        `overwrite` replaces what `where` selects (all of the table without one), and `overwrite_partitions` the partitions that get rows;
        `append` adds; `merge` does what `merge` says; `error` and `ignore` write only where `where` selects nothing yet. Rows outside
        `where` fail the write, whatever the mode.

        A write whose marker is in the table already does nothing, and its result says so; that of a merge counts rows that were inserted
        or updated. Raises TableNotEmpty, DefinitionMismatch, and what the table itself raises.
        """
        try:
            return self._write(self.with_zones(data), mode, where, txn, merge)
        except NaiveTimestamp as error:
            raise (error if self.by_hand else in_metadata(error, self.what)) from None

    def _write(self, data: Data, mode: Mode, where: str | None, txn: tuple[str, int], merge: MergeSettings | None) -> OperationResult:
        settings = self._settings
        table = self.workspace.find_table(self.path)
        earlier = table.recorded(txn) if table is not None else None
        if earlier is not None:
            return earlier
        if settings.schema is not None:
            data = cast_rows(data, settings.schema, self.what, frozenset(name.lower() for name in settings.generated))
        check_data(settings, rows_schema(data), self.what)
        self._check_columns(data, table, merge)
        if table is None:
            if merge is not None and merge.is_upsert:
                if isinstance(data, pa.RecordBatchReader):
                    data = data.read_all()  # a merge holds its source in memory anyway
                if isinstance(data, pa.Table):
                    check_keys(plain(data), merge.keys)  # before there is a table
            table = self._create(data, merge)
        else:
            self._check_owner(table, mode, where)
            keep_up(table, settings)
            self._allow_naive(table, rows_schema(data))
        data = _clustered(data, settings.cluster_by)
        if mode in ("error", "ignore"):
            # What follows is an overwrite of nothing: unlike an append, it conflicts with rows that arrive meanwhile.
            if mode == "ignore" and not _is_empty(table, where):
                return OperationResult(table.version)
            _check_empty(table, where)
        if mode == "merge":
            assert merge is not None
            return self._merge(data, table, merge, where, txn)
        if mode == "append":
            return self._append(data, table, where, txn)
        return self._overwrite(data, table, where, mode == "overwrite_partitions", txn)

    def _check_columns(self, data: Data, table: DeltaTable | None, merge: MergeSettings | None) -> None:
        schema = rows_schema(data)
        check_some(schema, self.what)
        mode = self._settings.schema_mode
        if table is None or mode == "overwrite" or (merge is not None and not merge.is_upsert):
            return  # clauses say themselves which columns they take
        if merge is None:
            check_columns(schema, table.schema, self.what, may_lack=mode is not None, may_add=mode == "merge")
            return
        check_columns(schema, table.schema, self.what, may_lack=False, may_add=mode == "merge", is_merge=True)
        check_types(schema, table.schema)

    @property
    def _settings(self) -> TableSettings:
        return self.settings or TableSettings(self.path)

    def _check_owner(self, table: DeltaTable, mode: Mode, where: str | None) -> None:
        if self.owner is None or self._settings.ownership == "shared":
            return
        if self._settings.ownership == "take":
            take(table, self.owner)
        elif mode in ("overwrite", "overwrite_partitions") and not (self.by_hand and where is not None):
            check_owner(table, self.owner)

    def _allow_naive(self, table: DeltaTable, data: pa.Schema) -> None:
        settings = self._settings
        own = set() if settings.schema_mode == "overwrite" else {name.lower() for name in table.schema.names}
        if settings.naive_timestamps == "ntz" and has_naive(pa.schema([child for child in data if child.name.lower() not in own])):
            allow_naive(table)

    def _create(self, data: Data, merge: MergeSettings | None) -> DeltaTable:
        schema = rows_schema(data)
        if merge is not None and self._settings.schema is None:
            schema = merge_schema(merge, schema, self.what)
        schema = creation_schema(self._settings, schema)
        properties = creation_properties(self._settings)
        if self._settings.naive_timestamps == "ntz" and has_naive(schema):
            properties = {NTZ_FEATURE: "supported"} | properties
        if self.owner is not None and self._settings.ownership != "shared":
            properties = {**self.owner.properties, **properties}
        by = tuple(self.partition_by)
        if self._settings.partition_by is None and {name.lower() for name in by} >= {name.lower() for name in schema.names}:
            by = by[:-1]  # not asked for by name, and data files need a column that is left
        try:
            return self.workspace.create_table(self.path, schema, partition_by=by, properties=properties or None)
        except FolderNotEmpty as error:
            raise FolderNotEmpty(f"{error}. An asset chooses its path by the metadata lake/path") from None

    def _overwrite(self, data: Data, table: DeltaTable, where: str | None, dynamic: bool, txn: tuple[str, int]) -> OperationResult:
        schema, partition_by = rows_schema(data), None
        schema_mode = None if self._settings.schema_mode == "fill" else self._settings.schema_mode
        if schema_mode == "overwrite":
            # With what the definition says of the columns, which rows do not carry.
            schema, partition_by = creation_schema(self._settings, schema), self._settings.partition_by
        write = table.plan_overwrite(schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=partition_by)
        return _commit(data, table, self._named(write), txn)

    def _append(self, data: Data, table: DeltaTable, where: str | None, txn: tuple[str, int]) -> OperationResult:
        write = table.plan_append(rows_schema(data), "merge" if self._settings.schema_mode == "merge" else None)
        if where is not None:
            scope = Scope(where, parse_predicate(where, write.writer.metadata.arrow_schema))
            write = replace(write, writer=replace(write.writer, scope=scope))
        return _commit(data, table, self._named(write), txn)

    def _named(self, write: Write) -> Write:
        """Let errors of a write call its scope by the caller's name for it."""
        scope = write.writer.scope
        if scope is None or not self.scope_name:
            return write
        return replace(write, writer=replace(write.writer, scope=replace(scope, name=self.scope_name, remedy=self.scope_remedy)))

    def _merge(self, data: Data, table: DeltaTable, merge: MergeSettings, where: str | None, txn: tuple[str, int]) -> OperationResult:
        data = confined(data, where, self.what, self.scope_name, self.scope_remedy) if where is not None else data
        if is_spark_dataframe(data):
            from lake_core.spark import merge_delta

            making = merge_delta(data, table, merge.on, alias=(TARGET, SOURCE))
        else:
            making = table.merge(data, merge.on, alias=(TARGET, SOURCE))
        making = merge.describe(making)
        if self._settings.schema_mode == "merge":
            making = making.with_schema_evolution()
        return making.execute(txn)


def final_result(result: OperationResult, receipt: Receipt | None, path: str) -> OperationResult:
    """A write's result with the version that it got by being published: within a session versions are provisional."""
    version = receipt.versions.get(path) if receipt else None
    return result if version is None or result.skipped else replace(result, version=version)


def rows_schema(data: Data) -> pa.Schema:
    """The schema of rows in any form."""
    if is_spark_dataframe(data):
        from lake_core.spark.write import arrow_schema

        return arrow_schema(data)
    return data.schema


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


def _commit(data: Data, table: DeltaTable, write: Write, txn: tuple[str, int]) -> OperationResult:
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
