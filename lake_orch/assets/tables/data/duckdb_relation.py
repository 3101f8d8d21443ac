"""DuckDB: relations, whose query runs while the rows are written, or when they are fetched."""

from __future__ import annotations

from typing import Any

from lake_orch.assets.tables.data.arrow_dataset import ArrowDatasets
from lake_orch.assets.tables.data.handler import TableData, TableSlice


class DuckDBRelations:
    """`duckdb.DuckDBPyRelation`."""

    supported_types = ("duckdb.DuckDBPyRelation",)

    def to_rows(self, value: Any) -> TableData:
        """Return a stream of the rows of the relation's query."""
        stream: TableData = value.to_arrow_reader() if hasattr(value, "to_arrow_reader") else value.fetch_arrow_reader()
        return stream

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return a relation over a dataset of the table's files."""
        import duckdb

        return duckdb.from_arrow(ArrowDatasets().from_table(part, annotation))
