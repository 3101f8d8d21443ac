"""Row operations in Spark's executors: the same tables as by the same operations in one process, for any table."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable, WriterProperties
from lake_core.delta.errors import (
    ConstraintViolation,
    InvalidMerge,
    MultipleSourceRows,
    UnsupportedType,
)
from lake_core.delta.file_name import new_name
from lake_core.delta.operations.merge import Merge
from lake_core.delta.operations.optimize import MANY_OUTPUTS
from lake_core.expression import EvaluationFailed
from lake_core.spark import (
    convert_delta,
    delete_delta,
    merge_delta,
    optimize_delta,
    read_delta,
    register,
    update_delta,
    vacuum_delta,
    write_delta,
)
from tests.delta.tables import SCHEMA, ids, rows
from tests.spark.settings import settings

TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"partition_by": ["p"]},
    "logged": {
        "partition_by": ["p"],
        "properties": {"delta.enableChangeDataFeed": "true", "delta.constraints.low": "coalesce(v, 0) < 1000"},
    },
    "mapped": {
        "partition_by": ["p"],
        "properties": {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": "true"},
    },
    "vectors": {"properties": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}},
}
SOURCE = pa.table(
    {
        "ID": pa.array([2, 3, 100, 4, None], pa.int32()),
        "p": ["p9", "p9", "pn", "p0", "p1"],
        "v": pa.array([1.0, 2.0, 3.0, 4.0, 5.0], pa.float32()),
    }
)


def _create(folder: Path, kind: str) -> DeltaTable:
    table = DeltaTable.create(str(folder), SCHEMA, **TABLES[kind])
    for number in range(4):
        table.append(rows(number * 10, number * 10 + 10))
    return table


def _rows(table: DeltaTable) -> Counter[Any]:
    return Counter(tuple(row.items()) for row in table.to_arrow().to_pylist())


def _changes(table: DeltaTable) -> Counter[Any]:
    changes = table.changes(0).read_all().drop_columns(["_commit_timestamp"])
    return Counter(tuple(row.items()) for row in changes.to_pylist())


def _clauses(merge: Merge) -> Merge:
    return (
        merge.when_matched_delete("s.id = 4")
        .when_matched_update({"v": "t.v + s.v", "p": "s.p"}, "s.v < 2")
        .when_matched_update("*")
        .when_not_matched_insert({"id": "s.id", "v": "s.v * 2"}, "s.id IS NULL")
        .when_not_matched_insert("*")
        .when_not_matched_by_source_delete("t.id > 37")
        .when_not_matched_by_source_update({"v": "-t.v"}, "t.id > 34")
    )


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in ("mapped", "vectors") else [pytest.mark.exhaustive]) for kind in TABLES],
)
def test_the_same_as_in_one_process(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    local, distributed = _create(tmp_path / "here", kind), _create(tmp_path / "there", kind)
    frame = spark.createDataFrame(SOURCE)
    for mine, others in (
        (local.delete("id % 4 = 1"), delete_delta(spark, distributed, "id % 4 = 1")),
        (
            local.update({"v": "v * 10", "p": "concat(p, 'x')"}, "id < 4"),
            update_delta(spark, distributed, {"v": "v * 10", "p": "concat(p, 'x')"}, "id < 4"),
        ),
        (
            _clauses(local.merge(SOURCE, "t.id = s.id")).execute(txn=("app", 1)),
            _clauses(merge_delta(frame, distributed, "t.id = s.id")).execute(txn=("app", 1)),
        ),
    ):
        counted = {
            key for key in mine.metrics if key.endswith(("Rows", "Updated", "Deleted", "Inserted", "Copied", "Removed"))
        }
        assert {key: mine.metrics[key] for key in counted} == {key: others.metrics[key] for key in counted}
        assert _rows(distributed) == _rows(local)
    again = _clauses(merge_delta(frame, distributed, "t.id = s.id")).execute(txn=("app", 1))
    assert again.skipped
    assert again.metrics["numTargetRowsDeleted"] == 3
    assert distributed.version == 7
    if "properties" in TABLES[kind]:
        assert _changes(distributed) == _changes(local)
    before = _rows(distributed)
    optimized = optimize_delta(spark, distributed)
    assert optimized.metrics["numAddedFiles"] < optimized.metrics["numRemovedFiles"]
    optimize_delta(spark, distributed, zorder_by=["id", "v"])
    assert _rows(distributed) == before == _rows(DeltaTable.open(distributed.store))


def test_executors_give_each_new_row_a_number_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    numbered = {
        "delta.identity.start": "1",
        "delta.identity.step": "1",
        "delta.identity.allowExplicitInsert": "true",
    }
    schema = pa.schema([pa.field("n", pa.int64(), metadata=numbered), ("v", pa.int64())])
    table = DeltaTable.create(str(tmp_path), schema)
    register(spark)
    frame = spark.range(0, 5000, 1, 3).withColumnRenamed("id", "v")
    write_delta(frame, table)
    frame.write.format("lake").mode("append").save(str(tmp_path))
    write_delta(spark.createDataFrame(pa.table({"n": [10**12], "v": [-1]})), table.refresh())
    table.refresh().append(pa.table({"v": [-2]}))
    numbers = {row["n"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert len(numbers) == 10_002
    by_row = {value: number for number, value in numbers.items()}
    assert by_row[-1] == 10**12
    assert by_row[-2] == max(number for number in numbers if number != 10**12) < 10**9
    merge = merge_delta(frame, table, "t.v = s.v + 1").when_matched_update({"v": "t.v"})
    merge.when_not_matched_insert({"v": "s.v"}, "s.v % 2 = 0").when_not_matched_insert(
        {"n": "-s.v", "v": "s.v"}
    ).execute()
    table.append(pa.table({"v": [-3]}))
    after = {row["n"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert len(after) == table.to_arrow().num_rows > len(numbers)
    assert {value: number for number, value in after.items()}[-3] == max(n for n in after if n != 10**12)


def test_files_with_vectors_are_purged_as_the_caller_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    table = _create(tmp_path, "vectors")
    delete_delta(spark, table, "id % 4 = 1")
    before, holes = _rows(table), len(table.snapshot.files(["deletionVector"])["deletionVector"].drop_null())
    result = optimize_delta(spark, table, purge=True, writer_properties=WriterProperties(compression="gzip"))
    assert result.metrics["numRemovedFiles"] == holes > 0
    assert _rows(table) == before
    files = table.snapshot.files(["path", "deletionVector"])
    assert files["deletionVector"].null_count == len(files)
    names = [path for path in files["path"].to_pylist() if ".gz." in path]
    assert len(names) == result.metrics["numAddedFiles"]


def test_a_clustered_table_is_sorted_by_a_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    table = DeltaTable.create(str(tmp_path), schema, cluster_by=["x", "y"])
    for start in range(0, 4096, 1024):
        numbers = list(range(start, start + 1024))
        table.append(pa.table({"x": [n * 7 % 64 for n in numbers], "y": [n // 64 for n in numbers]}, schema=schema))
    before = _rows(table)
    result = optimize_delta(spark, table, target_size=600)
    assert result.metrics["numAddedFiles"] > MANY_OUTPUTS
    assert _rows(table) == before
    files = table.snapshot.files(["clusteringProvider", "tags"]).to_pylist()
    assert {row["clusteringProvider"] for row in files} == {"liquid"}
    assert len({dict(row["tags"])["ZCUBE_ID"] for row in files}) == 1
    assert optimize_delta(spark, table).version == result.version


@pytest.mark.parametrize(
    ("on", "clauses"),
    [
        ("t.id > s.id AND s.id = 3 AND t.id < 6", lambda merge: merge.when_matched_delete()),
        ("t.id <=> s.id", lambda merge: merge.when_matched_update({"v": "0.5"}).when_not_matched_insert("*")),
        pytest.param(
            "t.v = s.v AND t.p = 'p2'",
            lambda merge: merge.when_matched_update({"v": "-s.v"}),
            marks=pytest.mark.exhaustive,
        ),
        ("lower(t.p) = s.p AND t.id = s.id + 26", lambda merge: merge.when_matched_update({"v": "s.id"})),
        pytest.param("FALSE", lambda merge: merge.when_not_matched_insert("*", "s.v > 1"), marks=pytest.mark.extended),
        pytest.param(
            "t.id = s.id", lambda merge: merge.when_not_matched_by_source_delete(), marks=pytest.mark.exhaustive
        ),
        pytest.param("t.id = s.id", lambda merge: merge.when_not_matched_insert("*"), marks=pytest.mark.exhaustive),
    ],
)
def test_merge_conditions(spark: SparkSession, tmp_path: Path, on: str, clauses: Callable[[Merge], Merge]) -> None:
    local, distributed = _create(tmp_path / "here", "partitioned"), _create(tmp_path / "there", "partitioned")
    mine = clauses(local.merge(SOURCE, on)).execute()
    others = clauses(merge_delta(spark.createDataFrame(SOURCE), distributed, on)).execute()
    assert _rows(distributed) == _rows(local) != _rows(DeltaTable.open(local.store, version=4))
    assert mine.metrics["numOutputRows"] == others.metrics["numOutputRows"]
    assert mine.metrics["numTargetFilesRemoved"] == others.metrics["numTargetFilesRemoved"]


@pytest.mark.extended
def test_a_large_source_is_sorted_not_broadcast(spark: SparkSession, tmp_path: Path) -> None:
    table = _create(tmp_path, "plain")
    source = spark.range(0, 12_000).selectExpr("id * 3 id", "'q' p", "cast(id as double) v")
    result = merge_delta(source, table, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    assert (result.metrics["numTargetRowsUpdated"], result.metrics["numTargetRowsInserted"]) == (14, 11_986)
    assert ids(table.to_arrow()) == sorted({*range(40), *range(0, 36_000, 3)})
    assert table.to_arrow(where="p = 'q'").num_rows == 12_000


@pytest.mark.extended
def test_clock_times_stay_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """In any session: these fall into the hours that daylight saving skips and repeats."""
    query = "select id, timestamp_ntz'2024-03-10 02:30:00' at, id % 2 p from range({}, {})"
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("p", pa.int64())])
    with pytest.raises(UnsupportedType, match="without a time zone"):
        write_delta(spark.sql(query.format(0, 4)), str(tmp_path / "plain"))
    table = DeltaTable.create(
        tmp_path / "t", schema, partition_by=["p"], properties={"delta.feature.timestampNtz": "supported"}
    )
    with settings(spark, {"spark.sql.session.timeZone": "America/Los_Angeles"}):
        write_delta(spark.sql(query.format(0, 4)), table)
        source = spark.sql(query.format(2, 6).replace("p from", "p, timestamp_ntz'2024-11-03 01:30:00' w from"))
        merge = merge_delta(source, table, "t.id = s.id and t.at = s.at").with_schema_evolution()
        merge.when_matched_update("*").when_not_matched_insert("*").execute()
        update_delta(spark, table, {"at": "w"}, "w = TIMESTAMP_NTZ '2024-11-03 01:30:00' and id < 4")
        records = [
            tuple(row)
            for row in read_delta(spark, table, where="at IS NOT NULL").select("id", "at", "w").orderBy("id").collect()
        ]
    spring, autumn = dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 11, 3, 1, 30)
    assert records == [(n, spring, None) for n in (0, 1)] + [(n, autumn, autumn) for n in (2, 3)] + [
        (n, spring, autumn) for n in (4, 5)
    ]


@pytest.mark.extended
def test_what_is_refused_leaves_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = _create(tmp_path, "logged")
    twice = spark.createDataFrame(pa.concat_tables([SOURCE, SOURCE]))
    with pytest.raises(MultipleSourceRows, match="more than one source row"):
        merge_delta(twice, table, "t.id = s.id").when_matched_update("*").execute()
    with pytest.raises(ConstraintViolation, match="low"):
        merge_delta(spark.createDataFrame(SOURCE), table, "t.id = s.id").when_matched_update({"v": "2000"}).execute()
    with pytest.raises(ConstraintViolation, match="low"):
        update_delta(spark, table, {"v": "v + 990"}, "id > 0")
    with pytest.raises(InvalidMerge):
        merge_delta(twice.select("v"), table, "t.v = s.v").when_not_matched_insert("*").execute()
    assert table.refresh().version == 4
    merge_delta(twice, table, "t.id = s.id").when_matched_delete().execute()
    assert ids(table.to_arrow()) == [0, 1, *range(5, 40)]


@pytest.mark.extended
def test_overwrites_of_a_part(spark: SparkSession, tmp_path: Path) -> None:
    for kind in ("partitioned", "logged"):
        table = _create(tmp_path / kind, kind)
        frame = spark.range(2, 4).selectExpr("id", "concat('p', id % 3) p", "id / 2D v")
        write_delta(frame, table, mode="overwrite", where="id IN (2, 3, 5) OR v > 17")
        assert ids(table.to_arrow()) == [*range(5), *range(6, 35)]
        write_delta(frame.where("id = 2"), table, mode="overwrite", dynamic=True)
        assert ids(table.to_arrow(where="p = 'p2'")) == [2]
        wide = frame.selectExpr("id + 50 id", "p", "id w")
        write_delta(wide, table, schema_mode="merge")
        assert table.schema.names == ["id", "p", "v", "w"]
        assert read_delta(spark, table, where="w IS NOT NULL").count() == 2
    assert Counter(_changes(table).keys())
    assert table.changes(5, 5).read_all()["_change_type"].value_counts().to_pylist() == [
        {"values": "delete", "counts": 8},
        {"values": "insert", "counts": 2},
    ]


def test_convert(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / f"day={day}" / "x.parquet")
    table = convert_delta(spark, str(tmp_path))
    assert table.metadata.partition_columns == ("day",)
    assert read_delta(spark, table, where="day > DATE '2024-01-01'").count() == 2
    assert delete_delta(spark, table, "a = 1").metrics["numDeletedRows"] == 2


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_memory_stays_flat(spark: SparkSession, tmp_path: Path) -> None:
    """A million rows into ten million: the JVM and all Python workers together stay under 4 GB."""
    total, step = 10_000_000, 1_000_000
    schema = pa.schema([("id", pa.int64()), ("group", pa.int32()), ("x", pa.float64()), ("name", pa.string())])
    table = DeltaTable.create(str(tmp_path), schema)
    for start in range(0, total, step):
        number = np.arange(start, start + step)
        names = pa.array(np.char.add("name-", (number % 100_000).astype(str)))
        table.append(
            pa.table(
                {"id": number, "group": (number % 100).astype("int32"), "x": number * 0.5, "name": names}, schema=schema
            )
        )
    peak, stop = [0], threading.Event()

    def sample() -> None:
        while not stop.wait(0.1):
            peak[0] = max(peak[0], _resident())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        source = spark.range(0, step).selectExpr(
            "id * 11 id", "cast(id % 7 as int) group", "id * 1D x", "concat('new-', id) name"
        )
        result = (
            merge_delta(source, table, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
        )
    finally:
        stop.set()
        sampler.join()
    assert result.metrics["numTargetRowsUpdated"] == len(range(0, total, 11))
    assert table.to_arrow(columns=["id"]).num_rows == total + step - len(range(0, total, 11))
    print(f"peak of the JVM and all workers: {peak[0] >> 20} MB")
    assert 200 << 20 < peak[0] < 4 << 30


def _resident() -> int:
    """Return the bytes that this process and its descendants hold in memory."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,rss="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    resident = {}
    for line in listed.splitlines():
        process, parent, kilobytes = map(int, line.split())
        children.setdefault(parent, []).append(process)
        resident[process] = kilobytes << 10
    total, pending = 0, [os.getpid()]
    while pending:
        process = pending.pop()
        total += resident.get(process, 0)
        pending += children.get(process, [])
    return total


def test_a_vacuum_in_the_executors_deletes_what_one_in_this_process_would(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.delta.operations.listing._KEYS_A_TASK", 3)
    monkeypatch.setattr("lake_core.delta.operations.listing._DELETED_AT_ONCE", 3)
    table = _create(tmp_path, "partitioned")
    table.overwrite(rows(0, 3))
    for name in (new_name(0), "mine.parquet"):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (0, 0))
    options: dict[str, Any] = {"retention": dt.timedelta(), "allow_unsafe": True}
    expected = table.vacuum(**options, dry_run=True)
    vacuumed = vacuum_delta(spark, str(tmp_path), **options)
    assert len(vacuumed.files) > 3
    assert sorted(vacuumed.files.to_pylist()) == sorted(expected.files.to_pylist())
    assert (vacuumed.bytes, vacuumed.unknown) == (expected.bytes, expected.unknown)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert left == {"mine.parquet", *(key.replace("%25", "%") for key in table.files(["path"])["path"].to_pylist())}
    assert ids(table.to_arrow()) == [0, 1, 2]


KEYS = pa.table(
    {
        "k": ["1", " 1", None, "A", "é", "", "12"],
        "x": pa.array([1.0, -0.0, float("nan"), None, 2.5, 7.0, 0.1]),
        "d": pa.array([Decimal(text) for text in ("1.10", "0.00", "-3.25", "7.00", "9.99", "1.00", "2.00")]),
        "n": pa.array([1, 2, None, 4, 5, 6, 7], pa.int32()),
    }
)
OTHERS = pa.table(
    {
        "k": [None, "a", "É", "1", "", "13", "14"],
        "x": pa.array([float("nan"), 0.0, None, 7.0, 1.5, 2.5, 3.5]),
        "d": pa.array(
            [Decimal(text) for text in ("1.1000", "0.0001", "7.0000", "9.9900", "3.0000", "4.0000", "5.0000")]
        ),
        "n": pa.array([1, None, 3, 4, 5, 60, 2], pa.int64()),
    }
)


@pytest.mark.parametrize(
    "on",
    [
        "lower(t.k) = lower(s.k)",
        "coalesce(t.k, '') = coalesce(s.k, '') AND t.n > 2",
        "t.k = s.k OR (t.k IS NULL AND s.k IS NULL)",
        "t.x <=> s.x",
        "t.d = s.d AND t.n <> s.n",
        "t.n = s.d",
        "t.n = s.x - 1 AND s.n > 0",
        "t.n + 1 = s.n AND TRY_CAST(t.k AS INT) IS NULL",
        # A text is no number, which matters only where the other key is equal.
        "CAST(s.k AS INT) = t.n AND t.x = s.x AND s.n = 4",
        "t.n = s.n AND CAST(t.k AS INT) = s.x",
        "FALSE",
    ],
)
@pytest.mark.sampled(6)
def test_keys_of_every_form(spark: SparkSession, tmp_path: Path, on: str) -> None:
    tables = [DeltaTable.create(str(tmp_path / name), KEYS.schema) for name in ("here", "there")]
    for table in tables:
        table.append(KEYS.slice(0, 4))
        table.append(KEYS.slice(4))

    def execute(merge: Merge) -> Any:
        return merge.when_matched_delete().when_not_matched_insert({"k": "'new'", "x": "s.x"}).execute().metrics

    local, distributed = tables
    try:
        expected = execute(local.merge(OTHERS, on))
    except EvaluationFailed:
        with pytest.raises(EvaluationFailed):
            execute(merge_delta(spark.createDataFrame(OTHERS), distributed, on))
        return
    metrics = execute(merge_delta(spark.createDataFrame(OTHERS), distributed, on))
    assert str(sorted(_rows(local).items(), key=str)) == str(sorted(_rows(distributed).items(), key=str))
    assert metrics["numTargetRowsDeleted"] == expected["numTargetRowsDeleted"]
    assert metrics["numTargetFilesRemoved"] == expected["numTargetFilesRemoved"]


def test_an_evolving_merge_fills_what_the_source_lacks(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("p", pa.struct([("x", pa.int64()), ("y", pa.int64())])), ("v", pa.string())]
    )
    table = DeltaTable.create(str(tmp_path), schema)
    table.append(pa.table({"id": [0, 1], "p": [{"x": 1, "y": 2}] * 2, "v": ["old"] * 2}))
    source = spark.sql("SELECT id, named_struct('y', id + 7, 'z', true) p FROM range(1, 3)")
    merge = merge_delta(source, table, "t.id = s.id").with_schema_evolution()
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 0, "p": {"x": 1, "y": 2, "z": None}, "v": "old"},
        {"id": 1, "p": {"x": 1, "y": 8, "z": True}, "v": "old"},
        {"id": 2, "p": {"x": None, "y": 9, "z": True}, "v": None},
    ]
