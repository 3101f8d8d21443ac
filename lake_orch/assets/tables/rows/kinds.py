"""Choice of the kind of rows for a value."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import pyarrow as pa

from lake_orch.assets.tables.rows.arrow import ArrowRows
from lake_orch.assets.tables.rows.protocol import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("pyarrow.Table", "pyarrow.RecordBatchReader", "pyspark.sql.DataFrame")
"""The types that `rows_of` supports, for errors."""


def is_spark(value: object) -> TypeGuard[DataFrame]:
    """Return whether a value is a DataFrame of Spark, classic or of Connect.

    PySpark is consulted only if it is already imported. Otherwise the value cannot be its DataFrame.
    """
    dataframe = getattr(sys.modules.get("pyspark.sql"), "DataFrame", None)
    return dataframe is not None and isinstance(value, dataframe)


def rows_of(value: object) -> Rows | None:
    """Return the rows of a value, or None if its type is not supported."""
    if isinstance(value, pa.Table | pa.RecordBatchReader):
        return ArrowRows(value)
    if is_spark(value):
        from lake_orch.assets.tables.rows.spark import SparkRows

        return SparkRows(value)
    return None
