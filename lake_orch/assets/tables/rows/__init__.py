"""Rows to write to a table, with one module for each kind. `rows_of` chooses the kind for a value."""

from lake_orch.assets.tables.rows.kinds import is_spark, rows_of
from lake_orch.assets.tables.rows.protocol import BrokenRows, RowCondition, Rows

__all__ = ["BrokenRows", "RowCondition", "Rows", "is_spark", "rows_of"]
