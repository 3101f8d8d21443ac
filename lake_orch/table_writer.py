"""One marked write of Arrow or Spark data to a table, which is created on its first write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, WriteResult
from lake_orch.data import is_arrow, is_spark_dataframe
from lake_orch.errors import TableNotEmpty
from lake_orch.workspace import Receipt, Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode: TypeAlias = Literal["overwrite", "append", "error"]
Data: TypeAlias = "pa.Table | pa.RecordBatchReader | DataFrame"


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes to the table at one path of a workspace."""

    workspace: Workspace
    path: str
    partition_by: Sequence[str] = ()
    """The partition columns that the table gets if it is created here."""

    def schema(self, data: Data) -> pa.Schema:
        """The table's schema, or that of the data before there is a table."""
        table = self.workspace.find_table(self.path)
        return _schema(data) if table is None else table.schema

    def write(self, data: Data, *, mode: Mode, where: str | None, txn: tuple[str, int]) -> WriteResult:
        """Write once under this marker.

        `overwrite` replaces what `where` selects (all of the table without one), and rows outside it fail the write;
        `append` adds; `error` writes only where `where` selects nothing yet.

        A write whose marker is in the table already does nothing, and its result says so. Raises TableNotEmpty, and
        what the table itself raises.
        """
        table = self.workspace.find_table(self.path) or self._create(data)
        if mode == "error":
            # What follows is an overwrite of nothing: unlike an append, it conflicts with rows that arrive meanwhile.
            _check_empty(table, where, txn)
        if is_spark_dataframe(data):
            from lake_core.spark import write_delta

            return write_delta(data, table, mode="append" if mode == "append" else "overwrite", where=where, txn=txn)
        assert is_arrow(data)
        return table.append(data, txn=txn) if mode == "append" else table.overwrite(data, where=where, txn=txn)

    def _create(self, data: Data) -> DeltaTable:
        return self.workspace.create_table(self.path, _schema(data), partition_by=tuple(self.partition_by))


def final_result(result: WriteResult, receipt: Receipt | None, path: str) -> WriteResult:
    """A write's result with the version that it got by being published: within a session versions are provisional."""
    version = receipt.versions.get(path) if receipt else None
    return result if version is None or result.skipped else replace(result, version=version)


def _schema(data: Data) -> pa.Schema:
    if is_spark_dataframe(data):
        from lake_core.spark.write import arrow_schema

        return arrow_schema(data)
    return data.schema


def _check_empty(table: DeltaTable, where: str | None, txn: tuple[str, int]) -> None:
    if table.recorded(txn) is not None:
        return  # the rows are our own: a retry, which the write skips
    if len(table.plan_overwrite(table.schema, where=where).replaced_files()):
        part = f" where {where}" if where else ""
        raise TableNotEmpty(
            f"mode 'error' writes only the first rows, but the table {table.store.url()} (version {table.version}) has rows already{part}: "
            f"use mode 'overwrite' or 'append', or empty the table first"
        )
