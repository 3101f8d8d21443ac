"""Writes to a table from an asset's code: several in one step, each exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.errors import TableNotFound
from lake_core.txn import Txn
from lake_core.workspace import Receipt, Workspace
from lake_orch.assets.asset_format import SINGLE_BATCH
from lake_orch.assets.owner import Owner
from lake_orch.assets.tables.data import TypeHandler, to_rows
from lake_orch.assets.tables.merge_settings import MergeSettings
from lake_orch.assets.tables.metadata import outcome, write_metadata
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard
from lake_orch.assets.tables.settings import TableSettings, TableWriteMode
from lake_orch.assets.tables.writer import TableWriter, final_result
from lake_orch.dagster.metadata import dagster_metadata
from lake_orch.dagster.page_links import page_links
from lake_orch.definition_metadata import Ownership
from lake_orch.errors import BatchFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lake_orch.dagster.spark_resource import SparkResource


AppendSchemaMode: TypeAlias = Literal["none", "fill", "merge"]


class Log(Protocol):
    """The part of `context.log` that a handle uses."""

    def info(self, msg: object) -> None:
        """Log what a write did."""


class LakeTable:
    """A table of the lake for a step, returned by `LakeResource.table`.

    The n-th write of the step is batch n. A step that is retried, or re-executed from failure, writes the same batches
    again. Batches that an earlier attempt committed are skipped, and their results and the log say so. The step must
    make the same writes in the same order for the same partitions. The content of batches is not compared.

    A run with one session stages the batches in the session. The batches of a retried step replace those of the earlier
    attempt.
    """

    def __init__(
        self,
        open_workspace: Callable[[int], AbstractContextManager[Workspace]],
        open_table: Callable[[], DeltaTable],
        path: str,
        url: str,
        app_id: str,
        log: Log,
        *,
        handlers: Sequence[TypeHandler],
        partition_by: Sequence[str] = (),
        one_partition: bool = False,
        owner: Owner | None = None,
        ownership: Ownership = "keep",
        ui_url: str | None = None,
    ) -> None:
        self.path = path
        """The table's path, relative to the lake's root."""
        self.url = url
        self._open_workspace, self._open_table = open_workspace, open_table
        self._app_id = app_id
        self._log = log
        self._handlers = handlers
        self._partition_by = partition_by
        self._one_partition = one_partition
        self._owner, self._ownership = owner, ownership
        self._ui_url = ui_url
        self._results: list[OperationResult] = []
        self._receipt: Receipt | None = None
        self._failed = False

    def __repr__(self) -> str:
        count = len(self._results)
        return f"LakeTable({self.url!r}, {count} {'batch' if count == 1 else 'batches'})"

    def append(self, data: Any, *, schema_mode: AppendSchemaMode = "none", txn: Txn | None = None) -> OperationResult:
        """Add the rows, unless an earlier attempt committed this batch. The table is created if it does not exist.

        Args:
            data: The rows, of any type that the step's IO manager stores: Arrow, pandas, polars, PySpark, and the types
                of its `type_handlers`.
            schema_mode: How to handle columns that only the rows or only the table has: `none` (an error), `fill`
                (missing columns are null) or `merge` (new columns are added, too).
            txn: A transaction identifier of the source, such as that of a landed batch. It replaces the identifier of
                this batch.
        """
        return self._write(data, "append", None, schema_mode=schema_mode, txn=txn)

    def merge(self, data: Any, how: Mapping[str, Any] | Sequence[str], *, txn: Txn | None = None) -> OperationResult:
        """Merge the rows, unless an earlier attempt committed this batch.

        `how` is as in the metadata `lake/merge`, such as `["id"]`. Raises InvalidDefinition for an invalid `how`, and
        the errors of `DeltaTable.merge`.
        """
        return self._write(data, "merge", None, MergeSettings.parse(how, "how"), txn=txn)

    def overwrite(
        self, data: Any, *, where: str | None = None, schema_mode: AppendSchemaMode = "none"
    ) -> OperationResult:
        """Replace the rows that `where` selects, or all rows, unless an earlier attempt committed this batch.

        `where` is Spark SQL on partition columns. Rows of `data` outside `where` fail the write before anything is
        visible. `schema_mode` is as in `append`.
        """
        return self._write(data, "overwrite", where, schema_mode=schema_mode)

    def exists(self) -> bool:
        """Return whether the table exists. The first write creates it."""
        try:
            self._open_table()
        except TableNotFound:
            return False
        return True

    def open(self) -> DeltaTable:
        """Open the table itself, at its latest version. Raises TableNotFound before the first write."""
        return self._open_table()

    def to_arrow(self, *, columns: list[str] | None = None, where: str | None = None) -> pa.Table:
        """Read the rows at the latest version. Raises TableNotFound before the first write."""
        return self.open().to_arrow(columns=columns, where=where)

    def read(self, spark: SparkResource, *, columns: list[str] | None = None, where: str | None = None) -> DataFrame:
        """Read the rows at the latest version as a Spark DataFrame. Raises TableNotFound before the first write."""
        from lake_core.spark import read_delta

        return read_delta(spark.session, self.open(), columns=columns, where=where)

    def metadata(self) -> dict[str, Any]:
        """Return the output metadata of all batches of this step.

        It is for `dg.MaterializeResult(metadata=table.metadata())`.
        """
        metadata = write_metadata(
            self._results,
            self.open(),
            url=self.url,
            path=self.path,
            one_partition=self._one_partition,
            receipt=self._receipt,
        )
        return dagster_metadata(metadata) | page_links(self._ui_url, metadata)

    def _write(
        self,
        data: Any,
        mode: TableWriteMode,
        where: str | None,
        merge: MergeSettings | None = None,
        *,
        schema_mode: AppendSchemaMode = "none",
        txn: Txn | None = None,
    ) -> OperationResult:
        if self._failed:
            raise BatchFailed(
                f"batch {len(self._results) + SINGLE_BATCH} of this step failed to write to {self.url}: "
                "let the step fail, so that a retry makes the same batches again"
            )
        batch = len(self._results) + SINGLE_BATCH
        # Set until the write succeeds. A skipped batch would shift the numbers of later batches against those of a
        # retry.
        self._failed = True
        rows = to_rows(data, f"batch {batch} for {self.url}", self._handlers)
        guard = None if where is None else PartitionGuard(where)
        with self._open_workspace(batch) as workspace:
            settings = TableSettings(
                self.path, schema_mode=None if schema_mode == "none" else schema_mode, ownership=self._ownership
            )
            writer = TableWriter(
                workspace, self.path, self._partition_by, settings, f"batch {batch}", by_hand=True, owner=self._owner
            )
            result = writer.write(rows, mode=mode, guard=guard, merge=merge, txn=txn or (self._app_id, batch))
        self._receipt = workspace.receipt
        result = final_result(result, self._receipt, self.path)
        self._failed = False
        self._results.append(result)
        self._log.info(f"batch {batch}: {outcome(result, self.url, self._receipt)}")
        return result
