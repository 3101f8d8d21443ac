"""The table itself as a parameter, for merges, changes and history. An asset cannot return it."""

from __future__ import annotations

from typing import Any

from lake_core.delta import DeltaTable
from lake_orch.assets.tables.data.handler import TableData, TableSlice
from lake_orch.errors import UnsupportedData


class DeltaTables:
    """`lake_core.delta.DeltaTable`, for reading."""

    supported_types = (DeltaTable,)

    def to_rows(self, value: Any) -> TableData:
        """Raise UnsupportedData: only rows can be written, not a table."""
        raise UnsupportedData(
            f"{value!r} is a table, not rows for one: return its to_batches(), which streams them, "
            "or write with lake.table(context)"
        )

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return the table itself. Raises TableNotFound before it exists."""
        return part.opened()
