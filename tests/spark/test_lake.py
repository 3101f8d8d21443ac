"""Spark on tables of a lake's session: executors write by URL, the session decides what becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta.errors import ManagedTable
from lake_core.lake.errors import Conflict
from lake_core.spark import delete_delta, merge_delta, optimize_delta, read_delta, update_delta, write_delta
from tests.lake.lakes import SCHEMA, ids, plain, rows, values

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as s:
        s.create_delta("t/orders", SCHEMA, partition_by=["p"]).append(rows(range(10)))
    return lake


def test_a_session_of_spark_stages_publishes_at_once(spark: SparkSession, lake: Lake) -> None:
    root = lake.repository.root
    with lake.session(message="spark") as s:
        orders = s.delta("t/orders")
        write_delta(spark.createDataFrame(rows(range(20, 24))), orders, txn=("load", 1))
        source = spark.createDataFrame(rows([1, 100], v=7))
        merge_delta(source, orders, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
        update_delta(spark, orders, {"v": "v + 1"}, "id = 2")
        delete_delta(spark, orders, "id = 3")
        lines = s.create_delta("t/lines", SCHEMA)
        write_delta(read_delta(spark, orders).where("id < 3"), lines)
        assert ids(plain(root, "t/orders")) == list(range(10)), "nothing shows before the publish"
        assert sorted(row.id for row in read_delta(spark, orders).collect()) == [
            0,
            1,
            2,
            4,
            5,
            6,
            7,
            8,
            9,
            20,
            21,
            22,
            23,
            100,
        ]
    assert s.result is not None
    assert s.result.versions == {"t/lines": 0, "t/orders": 1}
    expected = dict.fromkeys((0, 4, 5, 6, 7, 8, 9, 20, 21, 22, 23), 0) | {1: 7, 100: 7, 2: 1}
    assert values(lake.delta("t/orders")) == values(plain(root, "t/orders")) == expected
    assert sorted(row.id for row in read_delta(spark, lake.delta("t/orders", ref="main~1")).collect()) == list(
        range(10)
    )
    assert ids(plain(root, "t/lines")) == [0, 1, 2]
    with lake.session() as s:
        assert write_delta(spark.createDataFrame(rows([20])), s.delta("t/orders"), txn=("load", 1)).skipped
    with lake.session() as s:
        optimize_delta(spark, s.delta("t/orders"))
    assert values(lake.delta("t/orders")) == expected
    assert lake.maintenance.verify() == []


@pytest.mark.extended
def test_conflicts_between_spark_sessions(spark: SparkSession, lake: Lake) -> None:
    first, second = lake.session(), lake.session()
    update_delta(spark, first.delta("t/orders"), {"v": "1"}, "p = 'p0'")
    delete_delta(spark, second.delta("t/orders"), "id = 4")
    write_delta(spark.createDataFrame(rows([50])), second.delta("t/orders"))
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.datasets == ("t/orders",)


def test_past_the_lake_is_refused_before_spark_is_asked(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(ManagedTable, match=r"Lake\.open"):
        write_delta(spark.createDataFrame(rows([1])), f"{lake.url}/t/orders")
