"""Operations in Spark's executors where the session, the source or the store is unkind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.spark import (
    convert_delta,
    delete_delta,
    merge_delta,
    optimize_delta,
    read_delta,
)

EVERY_TYPE = """
    id, timestamp_seconds(1600000000 + id * 3600) ts, DATE '1500-01-01' + int(id) d, cast(id / 3 as decimal(38, 10)) n,
    cast(concat('b', id) as binary) b, concat('s', id) s, array(id) a, map(id, array(struct(timestamp_seconds(id) as a))) m,
    struct(id as x, array(id, null) as y, map('k', timestamp_seconds(id)) as z, struct(date '2000-01-01' as w) as q) st
"""


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            assert old is not None
            spark.conf.set(key, old)


def _rows(table: pa.Table) -> list[str]:
    return sorted(str(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.session.timeZone": "America/New_York", "spark.sql.execution.arrow.maxRecordsPerBatch": "2"},
        {"spark.sql.execution.arrow.useLargeVarTypes": "true", "spark.sql.adaptive.enabled": "false"},
        {"spark.sql.caseSensitive": "true", "spark.sql.ansi.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"},
    ],
)
def test_a_merge_is_the_same_in_any_session(spark: SparkSession, tmp_path: Path, settings: dict[str, str]) -> None:
    with _settings(spark, settings):
        source = spark.sql(f"select {EVERY_TYPE} from range(4, 10)")
        old = spark.sql(f"select {EVERY_TYPE} from range(6)").toArrow()
        here, there = (DeltaTable.create(str(tmp_path / name), source.toArrow().schema) for name in ("here", "there"))
        merges = [here.merge(source.toArrow(), on := "t.ts = s.ts AND t.n <=> s.n AND t.d = s.d AND s.st.x > 3 AND t.b = s.b")]
        merges.append(merge_delta(source, there, on))
        for table, merge in zip((here, there), merges, strict=True):
            table.append(old)
            merge.when_matched_update({"st": "s.st", "m": "s.m", "s": "concat(s.s, '!')"}).when_not_matched_insert("*")
            merge.when_not_matched_by_source_update({"s": "concat(t.s, '?')"}, "t.ts < TIMESTAMP '2020-09-13 14:00:00Z'").execute()
        assert _rows(there.to_arrow()) == _rows(here.to_arrow()) != _rows(old)
        deleted = delete_delta(spark, there, "ts >= TIMESTAMP '2020-09-13 20:00:00Z'")
        assert deleted.metrics["numDeletedRows"] == here.delete("ts >= TIMESTAMP '2020-09-13 20:00:00Z'").metrics["numDeletedRows"] > 0


@pytest.mark.parametrize("size", [3, 2000])
def test_texts_are_compared_byte_by_byte_whatever_the_source_collates(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """Keys that the source's collation takes for one, or sorts otherwise, must not hide files that hold their matches."""
    table = DeltaTable.create(str(tmp_path), pa.schema([("k", pa.string()), ("v", pa.int64())]))
    for text in ("a0", "A0", "b1", "B1"):
        table.append(pa.table({"k": [text], "v": [-1]}))
    texts = spark.range(size).selectExpr("concat(if(id % 2 = 0, 'a', 'B'), id) k", "id v").union(spark.sql("select 'A0', 7L"))
    done = (
        merge_delta(texts.selectExpr("k collate UTF8_LCASE k", "v"), table, "t.k = s.k")
        .when_matched_update("*")
        .when_not_matched_insert("*")
        .execute()
    )
    assert done.metrics["numTargetRowsUpdated"] == 3 and done.metrics["numTargetRowsInserted"] == size - 2
    assert sorted(table.to_arrow(where="k IN ('a0', 'A0', 'b1', 'B1')")["v"].to_pylist()) == [-1, 0, 1, 7]


def test_convert_takes_old_timestamps_at_any_depth(spark: SparkSession, tmp_path: Path) -> None:
    with _settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        t = "timestamp_seconds(id)"
        frame = spark.sql(f"select id, {t} t, struct({t} x) st, array(struct({t} y)) a, map('k', {t}) m from range(5)")
        frame.write.parquet(str(tmp_path / "files"))
    table = convert_delta(spark, str(tmp_path / "files"))
    assert _rows(table.to_arrow()) == _rows(frame.toArrow()) == _rows(read_delta(spark, table).toArrow())
    assert table.to_arrow(where="st.x = TIMESTAMP '1970-01-01 00:00:03Z'").num_rows == 1
    optimize_delta(spark, table, zorder_by=["st.x", "t"])
    assert _rows(table.to_arrow()) == _rows(frame.toArrow())
