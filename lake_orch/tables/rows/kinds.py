"""Choice of the kind of rows for a value."""

from __future__ import annotations

import sys

import pyarrow as pa

from lake_orch.tables.rows.arrow import ArrowRows
from lake_orch.tables.rows.protocol import Rows

KINDS = ("pyarrow.Table", "pyarrow.RecordBatchReader", "pyspark.sql.DataFrame")
"""The types that `rows_of` supports, for errors."""


def rows_of(value: object) -> Rows | None:
    """Return the rows of a value, or None if its type is not supported.

    PySpark is consulted only if it is imported already. Otherwise the value cannot be its DataFrame.
    """
    if isinstance(value, pa.Table | pa.RecordBatchReader):
        return ArrowRows(value)
    dataframe = getattr(sys.modules.get("pyspark.sql"), "DataFrame", None)
    if dataframe is not None and isinstance(value, dataframe):
        from lake_orch.tables.rows.spark import SparkRows

        return SparkRows(value)
    return None
