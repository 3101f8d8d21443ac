"""The Python types that outputs and inputs may have: which one a value is, without importing what is not installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_orch.errors import UnsupportedData

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lake_orch.resources import SparkResource

_SUPPORTED = "pyspark.sql.DataFrame, pyarrow.Table, pyarrow.RecordBatchReader or lake_core.delta.DeltaTable"


def is_spark_dataframe(value: object) -> TypeGuard[DataFrame]:
    """Whether the value is a PySpark DataFrame, classic or Connect. PySpark is asked only where someone imported it already."""
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and isinstance(value, sql.DataFrame)


def is_arrow(value: object) -> TypeGuard[pa.Table | pa.RecordBatchReader]:
    return isinstance(value, pa.Table | pa.RecordBatchReader)


def check_writable(value: object, what: str) -> None:
    """Raises UnsupportedData where the value is none that can be written to a table."""
    if not is_arrow(value) and not is_spark_dataframe(value):
        raise UnsupportedData(
            f"{what} is a {type(value).__module__}.{type(value).__qualname__}: return a pyspark.sql.DataFrame, a pyarrow.Table or a "
            f"pyarrow.RecordBatchReader (pandas and polars convert with pa.Table.from_pandas(df) and df.to_arrow())"
        )


def load(
    table: DeltaTable, annotation: object, *, columns: list[str] | None, where: str | None, spark: SparkResource | None, what: str
) -> Any:
    """Read a table as the type that a parameter is annotated with.

    Raises UnsupportedData for a missing annotation, or one that stands for none of the types.
    """
    if annotation is pa.Table:
        return table.to_arrow(columns=columns, where=where)
    if annotation is pa.RecordBatchReader:
        return table.to_arrow(columns=columns, where=where).to_reader()
    if annotation is DeltaTable:
        return table
    sql = sys.modules.get("pyspark.sql")
    if sql is not None and isinstance(annotation, type) and issubclass(annotation, sql.DataFrame):
        from lake_core.spark import read_delta, session

        return read_delta(spark.session if spark else session(), table, columns=columns, where=where)
    raise UnsupportedData(f"{what} is annotated as {annotation!r}: annotate the parameter as {_SUPPORTED}")
