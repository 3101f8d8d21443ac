"""One marked write of Arrow or Spark data to a table, which is created on its first write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, WriteResult
from lake_orch.data import is_arrow, is_spark_dataframe
from lake_orch.errors import TableNotEmpty

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode: TypeAlias = Literal["overwrite", "append", "error"]
Data: TypeAlias = "pa.Table | pa.RecordBatchReader | DataFrame"


@dataclass(frozen=True)
class TableWriter:
    """Writes to the table at one URL. `storage_options` may hold secrets: they never appear in a repr or an error."""

    url: str
    storage_options: Mapping[str, Any] | None = None
    partition_by: Sequence[str] = ()
    """The partition columns that the table gets if it is created here."""

    def __repr__(self) -> str:
        return f"TableWriter({self.url!r})"

    def open(self) -> DeltaTable:
        """The table as it stands now. Raises TableNotFound before its first write."""
        return DeltaTable.open(self.url, storage_options=self.storage_options)

    def schema(self, data: Data) -> pa.Schema:
        """The table's schema, or that of the data before there is a table."""
        table = self._open_if_exists()
        return _schema(data) if table is None else table.schema

    def write(self, data: Data, *, mode: Mode, where: str | None, txn: tuple[str, int]) -> WriteResult:
        """Write once under this marker.

        `overwrite` replaces what `where` selects (all of the table without one), and rows outside it fail the write;
        `append` adds; `error` writes only where `where` selects nothing yet.

        A write whose marker is in the table already does nothing, and its result says so. Raises TableNotEmpty, and
        what the table itself raises.
        """
        table = self._open_if_exists() or self._create(data)
        if mode == "error":
            # What follows is an overwrite of nothing: unlike an append, it conflicts with rows that arrive meanwhile.
            _check_empty(table, where, txn)
        if is_spark_dataframe(data):
            from lake_core.spark import write_delta

            return write_delta(data, table, mode="append" if mode == "append" else "overwrite", where=where, txn=txn)
        assert is_arrow(data)
        return table.append(data, txn=txn) if mode == "append" else table.overwrite(data, where=where, txn=txn)

    def _open_if_exists(self) -> DeltaTable | None:
        return self.open() if DeltaTable.exists(self.url, storage_options=self.storage_options) else None

    def _create(self, data: Data) -> DeltaTable:
        return DeltaTable.create(
            self.url, _schema(data), partition_by=tuple(self.partition_by), storage_options=self.storage_options, exist_ok=True
        )


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
