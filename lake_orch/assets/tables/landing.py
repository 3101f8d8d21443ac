"""Landing of batches in a table: the rows of their files are appended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.properties import transaction_retention_ms
from lake_core.workspace import Workspace
from lake_orch.assets.asset_format import AssetLanding, AssetWrite, Batch, Written
from lake_orch.assets.tables.data import TypeHandler, to_rows
from lake_orch.assets.tables.metadata import outcome, write_metadata
from lake_orch.assets.tables.rows import Rows
from lake_orch.assets.tables.settings import TableSettings
from lake_orch.assets.tables.state import table_state
from lake_orch.assets.tables.writer import TableWriter, final_result


@dataclass(frozen=True, slots=True)
class TableLanding(AssetLanding[OperationResult]):
    """The table in which a landing zone lands. It has no owner."""

    path: str
    settings: TableSettings
    handlers: Sequence[TypeHandler]

    def last_batch(self, dataset: DeltaTable, application: str) -> int | None:
        """Return the number of the last batch, which is the version of a transaction identifier."""
        marker = dataset.snapshot.last_transaction(application)
        return None if marker is None else max(marker.version, 0)

    def identity(self, dataset: DeltaTable) -> str:
        """Return the id of the table."""
        return dataset.snapshot.metadata.id

    def retention(self, dataset: DeltaTable) -> timedelta | None:
        """Return how long the table's transaction identifiers live."""
        milliseconds = transaction_retention_ms(dataset.snapshot.metadata.configuration)
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)

    def write(self, batch: Batch, value: Any | None) -> BatchWrite:
        """Read the rows of a batch."""
        rows = batch.to_arrow(schema=self.settings.schema) if value is None else value
        return BatchWrite(self.settings, batch, to_rows(rows, batch.name, self.handlers))

    def row_count(self, result: OperationResult) -> int | None:
        """Return the number of rows that the files had."""
        return result.rows


@dataclass(frozen=True, slots=True)
class BatchWrite(AssetWrite[OperationResult]):
    """The append of one batch."""

    settings: TableSettings
    batch: Batch
    rows: Rows

    def to(self, workspace: Workspace) -> OperationResult:
        """Append the rows once, with the transaction identifier of the batch."""
        settings = self.settings
        writer = TableWriter(workspace, settings.path, settings.partition_by or (), settings, self.batch.name)
        return writer.write(writer.with_zones(self.rows), mode="append", txn=self.batch.txn)

    def written(self, result: OperationResult, workspace: Workspace) -> Written:
        """Describe the append, and the table after it."""
        path, receipt = self.settings.path, workspace.receipt
        final, url = final_result(result, receipt, path), workspace.url(path)
        table: DeltaTable = workspace.after(path, "delta")
        state = table_state(table)
        metadata = write_metadata(
            [final],
            table,
            url=url,
            path=path,
            one_partition=False,
            receipt=receipt,
            settings=self.settings,
            state=state,
        )
        return Written(outcome(final, url, receipt), metadata, state.data_version)
