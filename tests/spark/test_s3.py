"""Tables in S3 without any Hadoop jar: executors speak to the store by fsspec."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.spark import read_delta, write_delta
from tests.delta.tables import ids


@pytest.mark.extended
def test_a_round_trip(
    spark: SparkSession, s3_url: str, s3_options: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.INFO)
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "if(id = 5, null, concat('p/é ', id % 3)) p", "struct(id as x) st", "timestamp_seconds(id) t"
    )
    first = write_delta(frame, s3_url, partition_by=["p"], txn=("run", 1), storage_options=s3_options)
    assert (first.version, first.rows) == (1, 1000)
    assert write_delta(frame, s3_url, txn=("run", 1), storage_options=s3_options).skipped
    write_delta(frame.where("id = 5"), s3_url, mode="overwrite", where="p IS NULL", storage_options=s3_options)
    whole = read_delta(spark, s3_url, storage_options=s3_options)
    assert whole.count() == 1000
    assert sorted(whole.toArrow().to_pylist(), key=lambda row: row["id"]) == sorted(
        frame.toArrow().to_pylist(), key=lambda row: row["id"]
    )
    some = read_delta(spark, s3_url, columns=["t", "id"], where="p = 'p/é 1' AND id < 10", storage_options=s3_options)
    assert some.columns == ["t", "id"]
    assert sorted(row.id for row in some.collect()) == [1, 4, 7]
    assert read_delta(spark, s3_url, where="p = 'none'", storage_options=s3_options).count() == 0
    assert ids(DeltaTable.open(s3_url, storage_options=s3_options).to_arrow()) == list(range(1000))
    secret = str(s3_options["secret"])
    assert secret not in caplog.text
    assert not any(secret in str(value) for _, value in spark.sparkContext.getConf().getAll())
    assert secret not in whole._jdf.queryExecution().toString()  # type: ignore[attr-defined]
