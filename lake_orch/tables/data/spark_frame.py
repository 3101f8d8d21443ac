"""PySpark DataFrames, classic and Connect."""

from __future__ import annotations

from typing import Any

from lake_orch.tables.data.handler import TableData, TableSlice


class SparkFrames:
    """`pyspark.sql.DataFrame`, the common base of both kinds. The executors write and read the rows."""

    supported_types = ("pyspark.sql.DataFrame",)

    def to_rows(self, value: Any) -> TableData:
        return value

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        from lake_core.spark import read_delta, session

        spark = part.spark.session if part.spark else session()
        if part.table is None:
            return spark.createDataFrame(part.to_arrow())
        return read_delta(spark, part.table, columns=part.columns, where=part.where)
