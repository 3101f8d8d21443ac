"""Spark finds the rows that Arrow finds, in a session of any time zone, by the same predicates."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.spark import read_delta, write_delta
from tests.expression.test_predicates import PREDICATES, ROWS, SCHEMA


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    table = DeltaTable.create(tmp_path_factory.mktemp("predicates"), SCHEMA)
    table.append(ROWS)
    return table


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_every_predicate(spark: SparkSession, table: DeltaTable, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for where, found in PREDICATES:
            assert sorted(row.id for row in read_delta(spark, table, columns=["id"], where=where).collect()) == found, where
            assert sorted(table.to_arrow(columns=["id"], where=where)["id"].to_pylist()) == found, where
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_other_readers_find_nan_too(spark: SparkSession, table: DeltaTable) -> None:
    """Spark's own scan skips row groups by the bounds in Parquet footers, which know nothing of NaN."""
    files = [table.store.url(path) for path in table.files()["path"].to_pylist()]
    assert [row.id for row in spark.read.parquet(*files).where("f > 2").collect()] == [2]


def test_text_that_looks_like_a_variable(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.table({"id": [1], "k${spark.app.name}": ["${spark.app.name}"], "p": ["${x}"]})
    frame = spark.createDataFrame(data)
    write_delta(frame, str(tmp_path), partition_by=["p"])
    for where in ("p = '${x}'", "`k${spark.app.name}` = '${spark.app.name}'", "`k${spark.app.name}` LIKE '${spark%'", "p IN ('${x}')"):
        assert read_delta(spark, str(tmp_path), where=where).count() == 1, where
