"""PySpark DataFrames, classic and Connect."""

from __future__ import annotations

from typing import Any

from lake_orch.assets.tables.data.handler import TableData, TableSlice


class SparkFrames:
    """`pyspark.sql.DataFrame`, the common base of both kinds. The executors write and read the rows."""

    supported_types = ("pyspark.sql.DataFrame",)

    def to_rows(self, value: Any) -> TableData:
        """Return the frame itself, whose rows stay in Spark."""
        return value

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return a DataFrame in the session of the Spark resource, or else in the default session."""
        from lake_core.spark import read_delta, session

        spark = part.spark.session if part.spark else session()
        if part.table is None:
            return spark.createDataFrame(part.to_arrow())
        return read_delta(spark, part.table, columns=part.columns, where=part.where)
