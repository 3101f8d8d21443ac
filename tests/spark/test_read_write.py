"""DataFrames into tables and back, by Spark and by Arrow alike."""

from __future__ import annotations

import datetime as dt
import os
import signal
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    ConstraintViolation,
    DataFileMissing,
    RowsOutsidePredicate,
    SchemaMismatch,
    TableAlreadyExists,
    UnsupportedType,
)
from lake_core.expression import InvalidExpression
from lake_core.spark import SparkJobFailed, UnreachableStore, read_delta, session, write_delta
from lake_core.store import LocalStore, MemoryStore
from tests.delta.tables import SCHEMA, ids, rows

EVERYTHING = """
    id, cast(id as tinyint) i8, cast(id as smallint) i16, cast(id as int) i32, cast(id as float) f32, id / 3 f64,
    cast(id as decimal(20, 3)) n, concat('text ', id) s, cast(concat('b', id) as binary) b, id % 2 = 0 flag,
    date_add(DATE '2020-02-27', cast(id as int)) d,
    TIMESTAMP '2020-01-01 00:00:00.123456Z' + make_interval(0, 0, 0, cast(id as int)) t,
    named_struct('x', id, 'inner', named_struct('y', array(id, null))) st,
    map(concat('k', id), array(named_struct('z', id))) m,
    if(id = 3, null, concat('p/', id % 3, ' %')) p
"""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(child) for child in value]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def _by_id(table: pa.Table) -> list[Any]:
    return sorted((_plain(row) for row in table.to_pylist()), key=lambda row: row["id"])


def _frame(spark: SparkSession, start: int, stop: int, parts: int = 3) -> DataFrame:
    return spark.range(start, stop).selectExpr("id", f"concat('p', id % {parts}) p", "id / 2D v")


@pytest.mark.parametrize(
    "partition_by",
    [*(pytest.param(columns, marks=pytest.mark.exhaustive) for columns in ((), ("p",))), ("d", "p", "t")],
)
def test_every_type_comes_back(spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    frame = spark.sql(f"select {EVERYTHING} from range(20)")
    result = write_delta(frame, str(tmp_path), partition_by=partition_by)
    assert (result.version, result.rows, result.skipped) == (1, 20, False)
    expected = _by_id(frame.toArrow())
    assert _by_id(read_delta(spark, str(tmp_path)).toArrow()) == expected
    assert _by_id(DeltaTable.open(tmp_path).to_arrow()) == expected
    oracle = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    assert _by_id(pa.table(oracle.execute("select * from t").read_all())) == expected


def test_the_session_zone_changes_no_instant(spark: SparkSession, tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql("select TIMESTAMP '2020-06-01 12:00:00' t, DATE '2020-06-01' d, 1L id")
        write_delta(frame, str(tmp_path), partition_by=["d"])
        table = DeltaTable.open(tmp_path)
        assert table.to_arrow()["t"].to_pylist() == [dt.datetime(2020, 6, 1, 16, tzinfo=dt.UTC)]
        assert read_delta(spark, table, where="t = TIMESTAMP '2020-06-01 16:00:00'").count() == 1
        assert read_delta(spark, table, where="t < '2020-06-01 16:00:00'").count() == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.extended
@pytest.mark.parametrize("parts", [3, 40])
def test_both_ways_of_giving_partition_values(spark: SparkSession, tmp_path: Path, parts: int) -> None:
    """Few partitions are a union of scans, many a join on the file's name; odd characters must survive either."""
    frame = spark.range(100).selectExpr(
        "id", f"concat('é %[x]{{y}}?*#=&+ ', id % {parts}, ';\\'\"\\\\') p", "id % 2 = 0 q"
    )
    write_delta(frame, str(tmp_path), partition_by=["p", "q"])
    expected = _by_id(frame.toArrow())
    assert _by_id(read_delta(spark, str(tmp_path)).toArrow()) == expected
    assert _by_id(DeltaTable.open(tmp_path).to_arrow()) == expected
    partition = expected[7]["p"].replace("\\", "\\\\").replace("'", "\\'")
    assert sorted(
        row.id for row in read_delta(spark, str(tmp_path), columns=["id"], where=f"p = '{partition}'").collect()
    ) == [row["id"] for row in expected if row["p"] == expected[7]["p"]]


@pytest.mark.extended
def test_names_that_spark_will_not_open_are_read_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(6).selectExpr("id", "concat('12:', id % 2) p")
    write_delta(frame, str(tmp_path / "a:b"), partition_by=["p"])
    assert _by_id(read_delta(spark, str(tmp_path / "a:b")).toArrow()) == _by_id(frame.toArrow())
    store = LocalStore(tmp_path / "hidden")
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 2))
    data_path = table.files()["path"][0].as_py()
    os.rename(tmp_path / "hidden" / data_path, tmp_path / "hidden" / f"_{data_path}")
    commit = tmp_path / "hidden" / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace(data_path, f"_{data_path}"))
    assert read_delta(spark, store.url()).count() == 2


def test_columns_where_and_version(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path)
    write_delta(_frame(spark, 0, 10), table, partition_by=["p"])
    write_delta(_frame(spark, 10, 20), table)
    assert read_delta(spark, table, version=1).count() == 10
    narrowed = read_delta(spark, table, columns=["v", "ID"], where="p = 'p1' AND id BETWEEN 3 AND 8")
    assert narrowed.columns == ["v", "id"]
    assert sorted(row.id for row in narrowed.collect()) == [4, 7]
    assert read_delta(spark, table, where="p = 'nope'").count() == 0
    assert read_delta(spark, table, where="FALSE").columns == ["id", "p", "v"]
    with pytest.raises(SchemaMismatch):
        read_delta(spark, table, columns=["nope"])
    with pytest.raises(InvalidExpression):
        read_delta(spark, table, where="reflect('java.lang.System', 'exit', 1) = 'x'")
    pinned = read_delta(spark, table)
    write_delta(_frame(spark, 20, 30), table)
    assert (pinned.count(), read_delta(spark, table).count()) == (20, 30)


def test_modes(spark: SparkSession, tmp_path: Path) -> None:
    url = str(tmp_path)
    first = write_delta(_frame(spark, 0, 9), url, mode="error", partition_by=["p"], txn=("run", 0))
    assert write_delta(_frame(spark, 0, 9), url, mode="error", txn=("run", 0)).skipped
    with pytest.raises(TableAlreadyExists):
        write_delta(_frame(spark, 0, 9), url, mode="error", txn=("other", 0))
    write_delta(_frame(spark, 100, 101, 1), url, mode="overwrite", where="p = 'p0'")
    table = DeltaTable.open(url)
    assert ids(table.to_arrow()) == [1, 2, 4, 5, 7, 8, 100]
    with pytest.raises(RowsOutsidePredicate, match="rows lie outside"):
        write_delta(_frame(spark, 0, 9), url, mode="overwrite", where="p = 'p0'")
    write_delta(_frame(spark, 0, 0), url, mode="overwrite", where="p = 'p2'")
    assert ids(table.refresh().to_arrow()) == [1, 4, 7, 100]
    write_delta(_frame(spark, 5, 6), table, mode="overwrite", txn=("run", 1))
    assert ids(table.to_arrow()) == [5]
    assert first.files is not None
    assert first.bytes is not None
    with pytest.raises(RowsOutsidePredicate):
        write_delta(_frame(spark, 0, 1), url, mode="overwrite", where="id = 1")
    with pytest.raises(ValueError):
        write_delta(_frame(spark, 0, 1), url, where="p = 'p0'")
    with pytest.raises(SchemaMismatch, match="partitioned by"):
        write_delta(_frame(spark, 0, 1), url, partition_by=["id"])


@pytest.mark.extended
def test_a_crash_between_creation_and_the_first_write_is_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, SCHEMA)
    assert write_delta(_frame(spark, 0, 3), str(tmp_path), mode="error").version == 1


def test_a_skipped_write_does_not_ask_spark(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(_frame(spark, 0, 9), str(tmp_path), txn=("run", 3))
    never = _frame(spark, 0, 9).selectExpr("id", "p", "cast(raise_error('evaluated') as double) v")
    result = write_delta(never, str(tmp_path), txn=("run", 3))
    assert (result.skipped, result.version, result.rows) == (True, 1, 9)


def test_bad_frames_are_refused_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(
        tmp_path, pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.float64())])
    )
    before = sorted(path for path in tmp_path.rglob("*"))
    for sql, error in [
        ("select id, 1 as extra from range(1)", SchemaMismatch),
        ("select cast(id as string) id from range(1)", SchemaMismatch),
        ("select 1D v from range(1)", SchemaMismatch),
        ("select id, id ID from range(1)", SchemaMismatch),
        ("select id, TIMESTAMP_NTZ '2020-01-01 00:00:00' v from range(1)", UnsupportedType),
    ]:
        with pytest.raises(error):
            write_delta(spark.sql(sql), table)
    assert sorted(path for path in tmp_path.rglob("*")) == before
    with pytest.raises(UnsupportedType):
        write_delta(spark.sql("select null x, 1 y"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        write_delta(spark.sql("select if(id = 3, null, id) id from range(5)"), table)
    with pytest.raises(SparkJobFailed, match="boom"):
        write_delta(spark.sql("select id from range(5) where raise_error('boom') is null"), table)
    assert table.refresh().version == 0


def test_a_memory_store_cannot_be_reached_by_executors(spark: SparkSession) -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    with pytest.raises(UnreachableStore):
        write_delta(_frame(spark, 0, 3), table)
    assert table.refresh().version == 0


@pytest.mark.extended
def test_a_lost_file_fails_the_read(spark: SparkSession, tmp_path: Path) -> None:
    write_delta(_frame(spark, 0, 9), str(tmp_path))
    table = DeltaTable.open(tmp_path)
    (tmp_path / table.files()["path"][0].as_py()).unlink()
    with pytest.raises(DataFileMissing):
        read_delta(spark, table).count()
    with pytest.raises(DataFileMissing):
        table.to_arrow()


def test_session_is_found_again(spark: SparkSession) -> None:
    assert session() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.parametrize("seam", ["before files", "after files"])
def test_a_python_worker_killed_half_way_doubles_nothing(spark: SparkSession, tmp_path: Path, seam: str) -> None:
    """The worker of one task is killed, before or after it has written its files.

    Spark runs the task again, and only its last files count.
    """
    flag = str(tmp_path / "killed")
    table = str(tmp_path / "table")

    def die_once(batches: Any) -> Any:
        from pyspark import TaskContext

        held = list(batches)
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and seam == "before files" and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from held

    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "concat('p', id % 3) p", "id / 2D v")
    if seam == "before files":
        frame = frame.mapInArrow(die_once, frame.schema)
        result = write_delta(frame, table)
    else:
        result = _write_with_death_after_files(frame, table, flag)
    assert os.path.exists(flag)
    assert result.rows == 1000
    opened = DeltaTable.open(table)
    assert (opened.version, ids(opened.to_arrow())) == (1, list(range(1000)))
    listed = set(opened.files()["path"].to_pylist())
    on_disk = {str(path.relative_to(table)) for path in Path(table).rglob("*.parquet")}
    assert listed <= on_disk
    if seam == "after files":
        assert len(on_disk) > len(listed)


class DiesAfterFiles(LocalStore):
    """A store whose first data file is the last thing that its process does."""

    flag = ""

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        meta = super()._put(key, data, if_absent, if_match, unique)
        if key.endswith(".parquet") and not os.path.exists(self.flag):
            open(self.flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return meta


def _write_with_death_after_files(frame: DataFrame, url: str, flag: str) -> Any:
    from pyspark import cloudpickle

    import tests.spark.test_read_write as here

    store = DiesAfterFiles(url)
    store.flag = flag
    table = DeltaTable.create(store, SCHEMA)
    cloudpickle.register_pickle_by_value(here)
    try:
        return write_delta(frame, table)
    finally:
        cloudpickle.unregister_pickle_by_value(here)


@pytest.mark.extended
def test_decimals_and_reals_survive_the_statistics(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select cast('12345678901234567.891' as decimal(20,3)) n, cast('NaN' as double) f, cast(0.1 as float) r, 1L id"
    )
    write_delta(frame, str(tmp_path))
    for where in ("n = 12345678901234567.891", "f > 1e300", "r = 0.10000000149011612"):
        assert read_delta(spark, str(tmp_path), where=where).count() == 1, where
    assert DeltaTable.open(tmp_path).to_arrow()["n"].to_pylist() == [Decimal("12345678901234567.891")]


def test_columns_that_spark_s_plan_takes_for_not_null_are_nullable(spark: SparkSession, tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 'a' AS src, array(1) AS numbers, named_struct('x', 1) AS s"), url)
    table = DeltaTable.open(url)
    assert all(child.nullable for child in table.schema)
    assert table.schema.field("numbers").type.value_field.nullable
    assert table.schema.field("s").type.field("x").nullable
    write_delta(
        spark.sql("SELECT CAST(NULL AS string) AS src, array(CAST(NULL AS int)) AS numbers, named_struct('x', 1) AS s"),
        url,
    )
    assert table.refresh().to_arrow()["src"].null_count == 1


def test_an_error_of_a_worker_comes_without_the_jvm_s_trace(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(ConstraintViolation, match=r"^column 'id' is NOT NULL, but 1 of its values are null$") as raised:
        write_delta(spark.sql("SELECT CAST(NULL AS bigint) AS id"), table)
    trace = "".join(traceback.format_exception(raised.value))
    assert "JVM" not in trace
    assert "org.apache.spark" not in trace


def test_an_error_of_a_user_s_function_comes_with_its_own_trace_alone(spark: SparkSession, tmp_path: Path) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ZeroDivisionError("nothing to divide by")

    with pytest.raises(SparkJobFailed, match="ZeroDivisionError: nothing to divide by") as raised:
        write_delta(spark.range(1).mapInArrow(fail, "id bigint"), str(tmp_path / "t"))
    trace = "".join(traceback.format_exception(raised.value))
    assert 'raise ZeroDivisionError("nothing to divide by")' in trace
    assert "org.apache.spark" not in trace
