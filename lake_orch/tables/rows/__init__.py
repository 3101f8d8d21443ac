"""Rows on their way into a table, one module a kind. `rows_of` is the one place that asks what kind a value is."""

from lake_orch.tables.rows.kinds import rows_of
from lake_orch.tables.rows.protocol import BrokenRows, RowCondition, Rows

__all__ = ["BrokenRows", "RowCondition", "Rows", "rows_of"]
