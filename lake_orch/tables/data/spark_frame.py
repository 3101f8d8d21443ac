"""PySpark DataFrames, classic and Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from lake_orch.tables.data.handler import Rows, TableSlice, resolved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkFrames:
    """`pyspark.sql.DataFrame`, the common base of both kinds: written and read by the executors."""

    supported_types = ("pyspark.sql.DataFrame",)

    def to_rows(self, value: Any) -> Rows:
        return value

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        from lake_core.spark import read_delta, session

        spark = part.spark.session if part.spark else session()
        if part.table is None:
            return spark.createDataFrame(part.to_arrow())
        return read_delta(spark, part.table, columns=part.columns, where=part.where)


def is_spark_dataframe(value: object) -> TypeGuard[DataFrame]:
    """Whether the value is a PySpark DataFrame, classic or Connect. PySpark is asked only where someone imported it already."""
    kind = resolved("pyspark.sql.DataFrame")
    return kind is not None and isinstance(value, kind)
