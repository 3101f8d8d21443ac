"""Pools as rows of Spark, and rows as data objects of pools."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import NoSuchShape
from lake_core.pool.export import to_delta_columns
from lake_core.pool.types import TIME
from lake_core.pool.zson.reader import parse_value, parse_values
from lake_core.spark import InvalidColumns, InvalidValues, UnreachableStore, load_pool, read_pool
from lake_core.spark.pools.columns import arrow_schema_of, to_batch
from lake_core.store import LocalStore, MemoryStore

EVERY_TYPE = """{
    u8: 1 (uint8), u16: 2 (uint16), u32: 3 (uint32), u64: 18446744073709551615 (uint64), i8: -1 (int8), i64: -5,
    f16: 0.5 (float16), f32: 1.5 (float32), f64: 2.5, yes: true, text: "x", raw: 0x0102,
    at: 2024-01-02T03:04:05.000006Z, lasted: 1.5s, ip: 10.0.0.1, net: 10.0.0.0/8, kind: <int64>,
    way: %up (enum(up,down)), failed: error("bad"), inner: {a: 1, b: [null (int64), 2]},
    some: |[1, 2]|, by_name: |{"k": 1.5}|, named: 80 (port=uint16), nothing: null (string)
}"""
SPARK_TYPES = {
    **{"u8": "smallint", "u16": "int", "u32": "bigint", "u64": "decimal(20,0)", "i8": "tinyint", "i64": "bigint"},
    **{"f16": "float", "f32": "float", "f64": "double", "yes": "boolean", "text": "string", "raw": "binary"},
    **{
        "at": "timestamp",
        "lasted": "bigint",
        "ip": "string",
        "net": "string",
        "kind": "string",
        "way": "string",
        "failed": "string",
    },
    **{
        "inner": "struct<a:bigint,b:array<bigint>>",
        "some": "array<bigint>",
        "by_name": "map<string,double>",
        "named": "int",
    },
    "nothing": "string",
}


def created(location: Any, *loads: Any, **options: Any) -> Pool:
    pool = PoolLake.create(location, exist_ok=True).create_pool("events", **{"key": "k", "order": "asc", **options})
    for rows in loads:
        pool.load(rows)
    return pool


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in df.toArrow().to_pylist()), key=repr)


def data_files(pool: Pool) -> set[str]:
    return {meta.key for meta in pool.store.list(f"{pool.config.id}/data/") if not meta.key.endswith("-seek.zng")}


@pytest.mark.extended
def test_every_zed_type_has_a_spark_type_and_comes_back_as_itself(spark: SparkSession, tmp_path: Path) -> None:
    pool = created(tmp_path, [parse_value(EVERY_TYPE), parse_value(EVERY_TYPE)], key="i64")
    df = read_pool(spark, str(tmp_path), "events")
    assert dict(df.dtypes) == SPARK_TYPES
    copy = PoolLake.open(tmp_path).create_pool("copy", key="i64")
    assert load_pool(df, copy, txn=("app", 1)) is not None
    assert load_pool(df.where("raise_error('Spark is not asked') IS NULL"), copy, txn=("app", 1)) is None
    assert copy.scan().to_zson() == pool.scan().to_zson()


def test_records_of_any_shape_are_rows_of_one_schema(spark: SparkSession, tmp_path: Path) -> None:
    whole = [{"k": number, "x": number} for number in range(4)]
    pool = created(
        tmp_path, whole, [{"k": 9, "x": 0.5, "in": {"a": 1}}], [{"k": 3, "x": None, "in": [1]}, {"y": "no key"}]
    )
    df = read_pool(spark, pool)
    assert df.dtypes == [("k", "bigint"), ("x", "double"), ("in", "string"), ("y", "string")]
    others = [(9, 0.5, '{"a":1}', None), (3, None, "[1]", None), (None, None, None, "no key")]
    assert rows(df) == sorted([*((row["k"], row["x"], None, None) for row in whole), *others], key=repr)
    assert rows(read_pool(spark, pool, shape="{k:int64,x:int64}", start=1, stop=3)) == [(1, 1), (2, 2)]
    with pytest.raises(NoSuchShape, match=r"choose one of these: \{k:int64,x:int64\}; "):
        read_pool(spark, pool, shape="conn")
    pool.load([{"k": 10, "x": 2**53 + 1}])
    assert dict(read_pool(spark, pool).dtypes)["x"] == "string", "as a fraction, the number would be another"


def test_spark_reads_the_columns_that_an_export_has(spark: SparkSession, tmp_path: Path) -> None:
    values = """{k:0,n:1(uint64),r:{w:2},e:{},o:null(ip)} {k:1,n:2,r:{q:1},e:{},o:2} {k:2,n:1.5,r:5,e:{},o:1.5}"""
    pool = created(tmp_path, list(parse_values(values)))
    exported = to_delta_columns(pool.scan()).read_all()
    df = read_pool(spark, pool)
    assert rows(df) == sorted((tuple(row.values()) for row in exported.to_pylist()), key=repr)
    assert df.columns == exported.column_names
    assert dict(df.dtypes) == {"k": "bigint", "n": "double", "r": "string", "e": "string", "o": "string"}


def test_large_objects_are_cut_into_tasks_and_only_segments_in_the_range_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.pool.seek_index._SMALL", 0)
    monkeypatch.setattr("lake_core.spark.pools.read._BYTES_PER_TASK", 2048)
    records = [{"k": number, "text": f"{number * 7919:030d}"} for number in range(1000)]
    pool = created(tmp_path, records[::2], records[1::2], seek_stride=100)
    expected = sorted([tuple(row.values()) for row in records], key=repr)
    df = read_pool(spark, pool)
    assert (rows(df), df.rdd.getNumPartitions() > 4) == (expected, True)
    (data_object, _) = pool.objects()
    key = f"{pool.config.id}/data/{data_object.id}.zng"
    data = pool.store.get(key)
    pool.store.put(key, data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    assert [row.k for row in read_pool(spark, pool, start=5, stop=8).orderBy("k").collect()] == [5, 6, 7]


def test_rows_become_objects_whose_keys_do_not_overlap(spark: SparkSession, tmp_path: Path) -> None:
    pool = created(tmp_path, order="desc", key="in.k", threshold=2000)
    df = spark.range(1000).selectExpr(
        "named_struct('k', IF(id % 100 = 0, NULL, (id * 7919) % 1000)) AS in", "CAST(id AS string) AS text"
    )
    commit = load_pool(df, pool, author="spark", message="rows")
    assert commit is not None
    assert (commit.author, commit.message) == ("spark", "rows")
    assert load_pool(df.where("false"), pool) is None
    keys = [record["in"]["k"] for record in pool.scan().records()]
    assert keys == [None] * 10 + sorted((number * 7919 % 1000 for number in range(1000) if number % 100), reverse=True)
    bounds = sorted((each.min.decode(), each.max.decode()) for each in pool.objects() if each.max.body is not None)
    assert len(pool.objects()) > 3
    assert all(one[1] < other[0] for one, other in pairwise(bounds))


@pytest.mark.extended
def test_what_a_pool_cannot_hold_is_refused_before_spark_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    pool = created(tmp_path)
    for sql, message in (
        ("1 AS x", r"lacks 'k', the key .* columns are x: add the key"),
        ("1 AS k, 1.5BD AS d", "column 'd' cannot be stored in a pool: .*decimal"),
        ("1 AS k, TIMESTAMP_NTZ'2024-01-01 00:00:00' AS t", "'t' has timestamps without a time zone"),
        ("map(1, 2) AS k", "cannot sort by 'k'"),
    ):
        with pytest.raises(InvalidColumns, match=message):
            load_pool(spark.sql(f"SELECT {sql}"), pool)
    assert not data_files(pool)
    with pytest.raises(ValueError, match="pass the name of one"):
        read_pool(spark, str(tmp_path))
    with pytest.raises(UnreachableStore, match="files or in a bucket"):
        read_pool(spark, created(MemoryStore(), [{"k": 1}]))
    pool.load([{"k": 1, "Name": "x"}, {"k": 1, "name": "y"}])
    with pytest.raises(InvalidColumns, match="'Name' and 'name', which Spark cannot tell apart"):
        read_pool(spark, pool)
    assert read_pool(spark, pool, shape="{k:int64,name:string}").collect() == [(1, "y")]


def test_times_between_two_microseconds_are_cut_off_only_where_asked() -> None:
    schema = arrow_schema_of(TIME)
    times = pa.array([1704067200000000999], pa.timestamp("ns", "UTC"))
    with pytest.raises(InvalidValues, match="truncate them with truncate_times=True"):
        to_batch(times, TIME, schema, truncate_times=False)
    assert to_batch(times, TIME, schema, truncate_times=True)[0].cast(pa.int64()).to_pylist() == [1704067200000000]


class DiesAfterObject(LocalStore):
    """A store whose first data object is the last thing that its process does."""

    flag = ""

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        meta = super()._put(key, data, if_absent, if_match, unique)
        if self.flag and "/data/" in key and not key.endswith("-seek.zng") and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return meta


def test_a_worker_that_is_killed_leaves_only_objects_that_no_commit_names(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark import cloudpickle

    import tests.spark.test_pools as here

    store = DiesAfterObject(str(tmp_path / "lake"))
    pool = created(store)
    store.flag = str(tmp_path / "killed")
    register: Callable[[Any], None] = cloudpickle.register_pickle_by_value
    register(here)
    try:
        load_pool(spark.range(50).toDF("k"), pool)
    finally:
        cloudpickle.unregister_pickle_by_value(here)
    assert os.path.exists(store.flag)
    assert [record["k"] for record in pool.scan().records()] == list(range(50))
    assert len(data_files(pool)) > len(pool.objects())
