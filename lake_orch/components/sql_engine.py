"""Query engines: Spark, and DuckDB in the step's process for tables that fit into its memory."""

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg

from lake_orch.components.sql_query import Engine, Query
from lake_orch.dagster.spark_resource import SparkResource
from lake_orch.errors import InvalidDefinition

_PACKAGE: Mapping[Engine, str] = {"spark": "pyspark", "duckdb": "duckdb"}


def input_type(engine: Engine, subject: str) -> Any:
    """Return the type to load a query's tables as. Raises InvalidDefinition if the engine is not installed."""
    if importlib.util.find_spec(_PACKAGE[engine]) is None:
        raise InvalidDefinition(
            f"{subject} is queried by {engine}, which is not installed: pip install {_PACKAGE[engine]}"
        )
    if engine == "spark":
        from pyspark.sql import DataFrame

        return DataFrame
    import pyarrow.dataset as ds

    return ds.Dataset


@contextmanager
def run_query(
    query: Query,
    engine: Engine,
    tables: Mapping[str, Any],
    parameters: Mapping[str, Any],
    key: dg.AssetKey,
    spark: SparkResource | None,
) -> Iterator[Any]:
    """Yield the rows of a query over loaded tables. They are valid within the `with` block."""
    stem = "lake_" + re.sub(r"\W", "_", "_".join(key.path))
    names = {table: f"{stem}_{number}" for number, table in enumerate(query.tables)}
    run = _spark if engine == "spark" else _duckdb
    with run(query.naming(names), {names[table]: rows for table, rows in tables.items()}, parameters, spark) as rows:
        yield rows


@contextmanager
def _spark(
    sql: str, tables: Mapping[str, Any], parameters: Mapping[str, Any], resource: SparkResource | None
) -> Iterator[Any]:
    if resource is None:
        raise InvalidDefinition("a query in Spark SQL needs the resource 'spark': add it, or choose engine: duckdb")
    spark = resource.session
    for name, frame in tables.items():
        frame.createOrReplaceTempView(name)
    try:
        yield spark.sql(sql, args=dict(parameters)) if parameters else spark.sql(sql)
    finally:
        for name in tables:
            spark.catalog.dropTempView(name)


@contextmanager
def _duckdb(
    sql: str, tables: Mapping[str, Any], parameters: Mapping[str, Any], _: SparkResource | None
) -> Iterator[Any]:
    import duckdb

    # A query in YAML can only use registered tables. It must not read or write files.
    with duckdb.connect(
        ":memory:", config={"enable_external_access": "false", "lock_configuration": "true"}
    ) as connection:
        for name, dataset in tables.items():
            connection.register(name, dataset)
        yield connection.sql(sql, params=dict(parameters)).to_arrow_table()


def partition_parameters(context: dg.AssetExecutionContext, names: Sequence[str] | frozenset[str]) -> dict[str, Any]:
    """Return the values of a query's parameters: the partition's key, and the start and end of its time window."""
    parameters: dict[str, Any] = {}
    if "partition_key" in names:
        parameters["partition_key"] = context.partition_key
    if {"partition_start", "partition_end"} & set(names):
        window = context.partition_time_window
        parameters |= {"partition_start": window.start, "partition_end": window.end}
    return {name: value for name, value in parameters.items() if name in names}
