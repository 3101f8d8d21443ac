"""Which kind of rows a value is."""

from __future__ import annotations

import sys

import pyarrow as pa

from lake_orch.tables.rows.arrow import ArrowRows
from lake_orch.tables.rows.protocol import Rows

KINDS = ("pyarrow.Table", "pyarrow.RecordBatchReader", "pyspark.sql.DataFrame")
"""The types that `rows_of` knows, as errors name them."""


def rows_of(value: object) -> Rows | None:
    """Return the rows that a value of a table library holds; None for any other value.

    PySpark is asked only where someone imported it already: nothing else can be a DataFrame of its.
    """
    if isinstance(value, pa.Table | pa.RecordBatchReader):
        return ArrowRows(value)
    dataframe = getattr(sys.modules.get("pyspark.sql"), "DataFrame", None)
    if dataframe is not None and isinstance(value, dataframe):
        from lake_orch.tables.rows.spark import SparkRows

        return SparkRows(value)
    return None
