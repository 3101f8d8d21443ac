"""Arrow: tables in memory, and streams of record batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lake_orch.assets.tables.data.handler import TableData, TableSlice


class ArrowTables:
    """`pyarrow.Table`, and `pyarrow.RecordBatch` for small results."""

    supported_types = (pa.Table, pa.RecordBatch)

    def to_rows(self, value: Any) -> TableData:
        """Return a table as it is, and a record batch as a table."""
        return pa.Table.from_batches([value]) if isinstance(value, pa.RecordBatch) else value

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Read the rows into memory, as one batch for `pyarrow.RecordBatch`."""
        rows = part.to_arrow()
        if issubclass(annotation, pa.RecordBatch):
            batches = rows.combine_chunks().to_batches()
            return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
        return rows


class ArrowReaders:
    """`pyarrow.RecordBatchReader`: written and read batch by batch, for tables that do not fit into memory."""

    supported_types = (pa.RecordBatchReader,)

    def to_rows(self, value: Any) -> TableData:
        """Return the reader itself, which is read once."""
        return value

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return a stream that reads the table file by file."""
        return part.to_batches()
