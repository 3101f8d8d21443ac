"""`format("lake")`: the same rows as the readers of the table give, at any ref, in SQL too; writes that land once."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import SchemaMismatch, TableNotFound
from lake_core.errors import InvalidUrl, LakeError
from lake_core.expression.errors import InvalidExpression
from lake_core.lake.errors import DatasetNotFound, RefNotFound
from lake_core.spark import InvalidOption, register
from lake_core.spark.data_source import _Access, _source_class
from tests.lake.lakes import SCHEMA, ids, plain, rows, values

pytestmark = pytest.mark.spark

TABLE = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]
)


def some(start: int, stop: int) -> pa.Table:
    numbers = list(range(start, stop))
    return pa.table(
        {
            "id": numbers,
            "p": [f"p{number % 2}" for number in numbers],
            "at": [number * 1_000_000 for number in numbers],
            "tags": [[str(number), None] for number in numbers],
        }
    ).cast(TABLE)


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    table = DeltaTable.create(str(tmp_path / "table"), TABLE, partition_by=["p"])
    table.append(some(0, 4))
    time.sleep(0.01)  # commits of one millisecond are told apart by their order alone
    table.append(some(4, 10))
    return table


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as s:
        s.create_delta("t/orders", SCHEMA, partition_by=["p"]).append(rows(range(10)))
    return lake


def url(table: DeltaTable) -> str:
    return table.store.url()


def failure_message(action: Callable[[], Any]) -> str:
    """Return Spark's message when the action fails."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.extended
def test_a_table_by_its_url(source: SparkSession, table: DeltaTable) -> None:
    read = source.read.format("lake")
    assert (
        sorted(read.load(url(table)).toArrow().cast(TABLE).to_pylist(), key=lambda row: row["id"])
        == some(0, 10).to_pylist()
    )
    assert [child.dataType.simpleString() for child in read.load(url(table)).schema] == [
        "bigint",
        "string",
        "timestamp",
        "array<string>",
    ]
    assert source.read.format("lake").option("version", "1").load(url(table)).count() == 4
    second = next(entry["timestamp"] for entry in table.history() if entry["version"] == 2)
    before = datetime.fromtimestamp((second - 1) / 1000, UTC).isoformat()
    assert source.read.format("lake").option("timestamp", before).load(url(table)).count() == 4
    empty = DeltaTable.create(f"{url(table)}-empty", TABLE)
    assert source.read.format("lake").load(url(empty)).count() == 0


def test_columns_and_rows_are_chosen(source: SparkSession, table: DeltaTable) -> None:
    narrow = source.read.format("lake").schema("id bigint").load(url(table))
    assert narrow.columns == ["id"]
    assert sorted(row.id for row in narrow.collect()) == list(range(10))
    named = (
        source.read.format("lake").option("columns", "TAGS, id").option("where", "p = 'p1' AND id > 6").load(url(table))
    )
    assert named.columns == ["tags", "id"]
    assert sorted(map(tuple, named.collect()), key=lambda row: row[1]) == [(["7", None], 7), (["9", None], 9)]


@pytest.mark.extended
def test_what_is_filtered_in_one_place_is_not_missed_in_another(source: SparkSession, table: DeltaTable) -> None:
    # A source that takes Spark's filters is handed those of one branch for both.
    source.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = source.read.format("lake").load(url(table))
        both = frame.where("id < 3").unionAll(frame.where("id > 6"))
        assert sorted(row.id for row in both.collect()) == [0, 1, 2, 7, 8, 9]
        assert frame.where("p = 'p0'").count() == 5
        assert frame.count() == 10
    finally:
        source.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_dataframe_stays_at_the_version_it_was_made_at(source: SparkSession, table: DeltaTable) -> None:
    frame = source.read.format("lake").load(url(table))
    table.append(some(10, 11))
    assert frame.where("id >= 0").count() == 10
    assert source.read.format("lake").load(url(table)).count() == 11


def test_refs_of_a_lake_and_sql_over_them(source: SparkSession, lake: Lake) -> None:
    before = lake.log("main")[0].id
    lake.create_tag("v1")
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]))
    shared = lake.open_session("main")
    with shared.join() as part:
        part.delta("t/orders").append(rows([60]))
    counts = {
        ref: source.read.format("lake").load(lake.uri(ref, "t/orders")).count()
        for ref in ("main", "main~1", "v1", before, shared.id)
    }
    assert counts == {"main": 11, "main~1": 10, "v1": 10, before: 10, shared.id: 12}

    source.sql(f"CREATE OR REPLACE TEMPORARY VIEW lake_orders USING lake OPTIONS (path '{lake.uri('v1', 't/orders')}')")
    assert source.sql("SELECT max(id) AS last FROM lake_orders WHERE p = 'p0'").collect()[0].last == 8
    source.catalog.dropTempView("lake_orders")

    register(source, lakes={"prod": lake.url}, name="lake_named")
    assert source.read.format("lake_named").load("lake://prod/main/t/orders").count() == 11


def test_writes_land_once(source: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    frame = source.createDataFrame(some(0, 6))

    def load(version: int) -> None:
        write = frame.write.format("lake").mode("append").option("partitionBy", "p")
        write.option("txnAppId", "nightly").option("txnVersion", str(version)).save(target)

    load(1)
    load(1)
    assert DeltaTable.open(target).to_arrow().num_rows == 6
    assert DeltaTable.open(target).metadata.partition_columns == ("p",)
    load(2)
    assert DeltaTable.open(target).to_arrow().num_rows == 12
    source.createDataFrame(some(100, 102)).where("p = 'p0'").write.format("lake").mode("overwrite").option(
        "replaceWhere", "p = 'p0'"
    ).save(target)
    records = DeltaTable.open(target).to_arrow().to_pylist()
    assert sorted(row["id"] for row in records) == [1, 1, 3, 3, 5, 5, 100]
    frame.write.format("lake").mode("overwrite").save(target)
    assert sorted(DeltaTable.open(target).to_arrow()["id"].to_pylist()) == list(range(6))


@pytest.mark.extended
def test_a_write_that_fails_leaves_nothing_to_see(source: SparkSession, table: DeltaTable) -> None:
    frame = source.createDataFrame(some(20, 24)).withColumn(
        "id", F.when(F.col("id") < 23, F.col("id")).otherwise(F.raise_error("spoilt"))
    )
    assert "spoilt" in failure_message(lambda: frame.write.format("lake").mode("append").save(url(table)))
    assert "lacks: x" in failure_message(
        lambda: source.range(3).withColumnRenamed("id", "x").write.format("lake").mode("append").save(url(table))
    )
    outside = (
        source.createDataFrame(some(20, 24)).write.format("lake").mode("overwrite").option("replaceWhere", "p = 'p0'")
    )
    assert "RowsOutsidePredicate" in failure_message(lambda: outside.save(url(table)))
    assert DeltaTable.open(url(table)).version == table.version
    with pytest.raises(AnalysisException):
        source.range(1).write.format("lake").mode("error").save(url(table))


def test_writes_into_a_session_of_a_lake(source: SparkSession, lake: Lake) -> None:
    shared = lake.open_session("main")
    uri = lake.uri(shared.id, "t/orders")
    write = (
        source.createDataFrame(rows([70, 71]))
        .write.format("lake")
        .mode("append")
        .option("txnAppId", "a")
        .option("txnVersion", "1")
    )
    write.save(uri)
    write.save(uri)
    root = lake.repository.root
    assert ids(plain(root, "t/orders")) == list(range(10)), "nothing shows before the publish"
    shared.publish()
    assert sorted(values(lake.delta("t/orders"))) == [*range(10), 70, 71]
    assert lake.maintenance.verify() == []

    frame = source.createDataFrame(rows([80])).write.format("lake").mode("append")
    for ref in ("main", lake.log("main")[0].id):
        message = failure_message(lambda ref=ref: frame.save(lake.uri(ref, "t/orders")))  # type: ignore[misc]
        assert "ReadOnly" in message
        assert "shared session" in message
    assert "SessionClosed" in failure_message(lambda: frame.save(uri))


def test_what_is_asked_for_wrongly_is_told(source: SparkSession, lake: Lake, table: DeltaTable) -> None:
    # Through Spark each of these starts a Python worker: most are asked of the source itself.
    source_class = _source_class("lake", _Access({}, {}))

    def read(error: type[LakeError], path: str | None = None, **options: str) -> str:
        with pytest.raises(error) as caught:
            wrong = source_class({"path": path or url(table), **options})
            wrong.reader(wrong.schema()).partitions()  # type: ignore[arg-type]
        return str(caught.value)

    assert "no option columnz" in read(InvalidOption, columnz="id")
    assert "no column 'none'" in read(SchemaMismatch, columns="none")
    assert "whole number" in read(InvalidOption, version="-1")
    assert "id >" in read(InvalidExpression, where="id >")
    assert "option of writing" in read(InvalidOption, replaceWhere="id = 1")
    assert "no Delta table" in read(TableNotFound, f"{url(table)}-none")
    assert "does not name a table" in read(InvalidUrl, lake.uri("main"))
    assert "no delta dataset" in read(DatasetNotFound, lake.uri("main", "t/none"))
    assert "is not a branch, tag, commit or session" in read(RefNotFound, lake.uri("none", "t/orders"))
    written = T.StructType([T.StructField("id", T.LongType())])
    for options, message in (
        ({"txnAppId": "a"}, "passed together"),
        ({"replaceWhere": "id = 1"}, "use it only with mode"),
    ):
        with pytest.raises(InvalidOption, match=message):
            source_class({"path": url(table), **options}).writer(written, False)

    assert "can only select columns" in failure_message(
        lambda: source.read.format("lake").schema("id string").load(url(table)).collect()
    )
    assert "needs a path" in failure_message(lambda: source.read.format("lake").load().collect())


@pytest.mark.extended
def test_secrets_are_not_shown(source: SparkSession, table: DeltaTable) -> None:
    register(source, storage_options={"secret": "t0psecret"}, name="lake_secret")
    frame = source.read.format("lake_secret").load(url(table))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain(mode="extended")
    assert "lake_secret" in shown.getvalue()
    assert "t0psecret" not in shown.getvalue()
    assert "t0psecret" not in repr(_Access({"secret": "t0psecret"}, {})) + repr(source.sql("SET").collect())
