"""Operations in Spark's executors where the session, the source or the store is unkind."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing
from lake_core.spark import (
    convert_delta,
    delete_delta,
    executor,
    merge_delta,
    optimize_delta,
    read_delta,
    runner,
    update_delta,
    write_delta,
)
from lake_core.spark import merge as spark_merge
from lake_core.spark import write as spark_write
from tests.spark.hostile import without_the_package
from tests.spark.settings import settings

EVERY_TYPE = """
    id, timestamp_seconds(1600000000 + id * 3600) ts, DATE '1500-01-01' + int(id) d, cast(id / 3 as decimal(38, 10)) n,
    cast(concat('b', id) as binary) b, concat('s', id) s, array(id) a,
    map(id, array(struct(timestamp_seconds(id) as a))) m,
    struct(id as x, array(id, null) as y, map('k', timestamp_seconds(id)) as z, struct(date '2000-01-01' as w) as q) st
"""


def _rows(table: pa.Table) -> list[str]:
    return sorted(str(sorted(row.items())) for row in table.to_pylist())


_SESSIONS = [
    {"spark.sql.session.timeZone": "America/New_York", "spark.sql.execution.arrow.maxRecordsPerBatch": "2"},
    {"spark.sql.execution.arrow.useLargeVarTypes": "true", "spark.sql.adaptive.enabled": "false"},
    {
        "spark.sql.caseSensitive": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    },
]


@pytest.mark.extended
@pytest.mark.parametrize(
    "conf",
    [
        {key: value for conf in _SESSIONS for key, value in conf.items()},
        *(pytest.param(conf, marks=pytest.mark.exhaustive) for conf in _SESSIONS),
    ],
)
def test_a_merge_is_the_same_in_any_session(spark: SparkSession, tmp_path: Path, conf: dict[str, str]) -> None:
    with settings(spark, conf):
        source = spark.sql(f"select {EVERY_TYPE} from range(4, 10)")
        old = spark.sql(f"select {EVERY_TYPE} from range(6)").toArrow()
        local, distributed = (
            DeltaTable.create(str(tmp_path / name), source.toArrow().schema) for name in ("here", "there")
        )
        merges = [
            local.merge(
                source.toArrow(), on := "t.ts = s.ts AND t.n <=> s.n AND t.d = s.d AND s.st.x > 3 AND t.b = s.b"
            )
        ]
        merges.append(merge_delta(source, distributed, on))
        for table, merge in zip((local, distributed), merges, strict=True):
            table.append(old)
            merge.when_matched_update({"st": "s.st", "m": "s.m", "s": "concat(s.s, '!')"}).when_not_matched_insert("*")
            merge.when_not_matched_by_source_update(
                {"s": "concat(t.s, '?')"}, "t.ts < TIMESTAMP '2020-09-13 14:00:00Z'"
            ).execute()
        assert _rows(distributed.to_arrow()) == _rows(local.to_arrow()) != _rows(old)
        deleted = delete_delta(spark, distributed, "ts >= TIMESTAMP '2020-09-13 20:00:00Z'")
        assert (
            deleted.metrics["numDeletedRows"]
            == local.delete("ts >= TIMESTAMP '2020-09-13 20:00:00Z'").metrics["numDeletedRows"]
            > 0
        )


@pytest.mark.extended
@pytest.mark.parametrize("size", [3, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_texts_are_compared_byte_by_byte_whatever_the_source_collates(
    spark: SparkSession, tmp_path: Path, size: int
) -> None:
    """Keys that the source's collation takes for one, or sorts differently, do not hide files with their matches."""
    table = DeltaTable.create(str(tmp_path), pa.schema([("k", pa.string()), ("v", pa.int64())]))
    for text in ("a0", "A0", "b1", "B1"):
        table.append(pa.table({"k": [text], "v": [-1]}))
    texts = (
        spark.range(size)
        .selectExpr("concat(if(id % 2 = 0, 'a', 'B'), id) k", "id v")
        .union(spark.sql("select 'A0', 7L"))
    )
    result = (
        merge_delta(texts.selectExpr("k collate UTF8_LCASE k", "v"), table, "t.k = s.k")
        .when_matched_update("*")
        .when_not_matched_insert("*")
        .execute()
    )
    assert result.metrics["numTargetRowsUpdated"] == 3
    assert result.metrics["numTargetRowsInserted"] == size - 2
    assert sorted(table.to_arrow(where="k IN ('a0', 'A0', 'b1', 'B1')")["v"].to_pylist()) == [-1, 0, 1, 7]


@pytest.mark.extended
def test_convert_takes_old_timestamps_at_any_depth(spark: SparkSession, tmp_path: Path) -> None:
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        t = "timestamp_seconds(id)"
        frame = spark.sql(f"select id, {t} t, struct({t} x) st, array(struct({t} y)) a, map('k', {t}) m from range(5)")
        frame.write.parquet(str(tmp_path / "files"))
    table = convert_delta(spark, str(tmp_path / "files"))
    assert _rows(table.to_arrow()) == _rows(frame.toArrow()) == _rows(read_delta(spark, table).toArrow())
    assert table.to_arrow(where="st.x = TIMESTAMP '1970-01-01 00:00:03Z'").num_rows == 1
    optimize_delta(spark, table, zorder_by=["st.x", "t"])
    assert _rows(table.to_arrow()) == _rows(frame.toArrow())


def test_executors_need_no_package(
    spark: SparkSession, s3_url: str, s3_options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operation works in S3 although a worker is killed once, and no secret is shown.

    The table's columns have names that the jobs inside use as well.
    """
    for module in (spark_merge, runner, spark_write):
        monkeypatch.setattr(module, "batch_function", without_the_package(executor.batch_function))
    monkeypatch.setattr(spark_merge, "table_function", without_the_package(executor.table_function))
    flag = str(tmp_path / "killed")

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not os.path.exists(flag):
                open(flag, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    columns = [
        "id c0",
        "id * 1D `Row`",
        "concat('p', id % 2) sid",
        "concat('x', id) `a.b`",
        "id k0",
        "struct(id clause) `t``k`",
    ]
    write_delta(
        spark.range(40).repartition(2).selectExpr(*columns), s3_url, partition_by=["sid"], storage_options=s3_options
    )
    table = DeltaTable.open(s3_url, storage_options=s3_options)
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    source = spark.range(30, 50, 1, 2).mapInArrow(die_once, "id long").selectExpr(*columns, "rand() draw")
    merge = merge_delta(source, table, "t.C0 = s.c0 AND t.`a.b` = s.`A.B` AND t.sid <=> s.SID")
    merge.when_matched_update({"row": "-s.row - s.draw"}, "t.k0 < 35 AND s.`t``k`.clause > 0").when_not_matched_insert(
        "*", "s.draw >= 0"
    )
    merged = merge.when_not_matched_by_source_delete("t.row = 1").execute(txn=("app", 1))
    assert os.path.exists(flag)
    assert [merged.metrics[f"numTargetRows{what}"] for what in ("Updated", "Inserted", "Deleted")] == [5, 10, 1]
    rows = table.to_arrow()
    assert sorted(rows["c0"].to_pylist()) == [0, *range(2, 50)]
    assert pc.sum(pc.less(rows["Row"], 0)).as_py() == 5
    inserted = [
        row["c0"] for row in table.changes(table.version).read_all().to_pylist() if row["_change_type"] == "insert"
    ]
    assert sorted(inserted) == list(range(40, 50))
    never = spark.range(1).selectExpr("cast(raise_error('evaluated') as bigint) c0")
    again = (
        merge_delta(never, s3_url, "t.c0 = s.c0", storage_options=s3_options)
        .when_matched_delete()
        .execute(txn=("app", 1))
    )
    assert again.skipped
    assert update_delta(spark, table, {"k0": "k0 + 1"}, "`a.b` = 'x7'").metrics["numUpdatedRows"] == 1
    assert delete_delta(spark, table, "c0 = 8").metrics["numDeletedRows"] == 1
    optimize_delta(spark, table, zorder_by=["row", "c0"])
    assert optimize_delta(spark, table).version == table.version
    table.restore(table.version - 1)
    table.vacuum()
    assert sorted(table.to_arrow()["c0"].to_pylist()) == [0, *range(2, 8), *range(9, 50)]
    # Neither the files nor an error reveal how the store was reached.
    secret = str(s3_options["secret"])
    store = table.store
    assert not any(secret in store.get(meta.key).decode("latin-1") for meta in store.list())
    store.delete([meta.key for meta in store.list() if meta.key.endswith(".parquet")])
    with pytest.raises(DataFileMissing) as failed:
        update_delta(spark, table, {"k0": "k0 + 1"}, "c0 = 5")
    assert secret not in "".join(traceback.format_exception(failed.value))


@pytest.mark.extended
def test_a_collation_stays_with_the_frame(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT k COLLATE UTF8_LCASE AS k, struct(k COLLATE UTF8_LCASE AS x) AS s FROM VALUES ('a'), ('A') AS t(k)"
    )
    table = DeltaTable.open(str(tmp_path)) if write_delta(frame, str(tmp_path)).rows == 2 else None
    assert table is not None
    assert "COLLAT" not in table.metadata.schema_string.upper()
    assert read_delta(spark, table, where="k = 'a'").count() == table.to_arrow(where="s.x = 'A'").num_rows == 1
