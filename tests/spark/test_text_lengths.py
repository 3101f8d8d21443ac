"""CHAR(n) and VARCHAR(n): a table stores the texts that Spark stores in its own tables of these types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation
from lake_core.spark import merge_delta, update_delta, write_delta
from lake_core.spark.write import arrow_schema_of

TYPES = (
    "id BIGINT, v VARCHAR(3), c CHAR(4), l ARRAY<VARCHAR(2)>, "
    "s STRUCT<a: CHAR(2), b: STRUCT<d: VARCHAR(1)>, e: INT>, "
    "m MAP<VARCHAR(2), CHAR(3)>, ll ARRAY<ARRAY<CHAR(1)>>, free STRING"
)
FITTING = (
    "SELECT 1L id, 'ab' v, 'ab' c, array('a', NULL, 'ab   ') l, "
    "named_struct('a', 'x', 'b', named_struct('d', 'y '), 'e', 1) s, "
    "map('k ', 'v', 'l', NULL) m, array(array('a', '  '), NULL) ll, 'any length' free",
    "SELECT 2L, 'é😀ß', 'äöü', array(), NULL, NULL, array(), NULL",
    "SELECT 3L, 'abc   ', 'abcd    ', NULL, named_struct('a', NULL, 'b', NULL, 'e', NULL), map(), NULL, ''",
    "SELECT 4L, '', '', array('  '), named_struct('a', '', 'b', named_struct('d', ''), 'e', 0), map('', ''), NULL, ' '",
)
TOO_LONG = (
    ("v", "'abcd'"),
    ("v", "'   d'"),
    ("v", "'abc\u00a0'"),
    ("c", "'abcde'"),
    ("l", "array('abc')"),
    ("s", "named_struct('a', 'xyz', 'b', named_struct('d', 'y'), 'e', 1)"),
    ("s", "named_struct('a', 'x', 'b', named_struct('d', 'yy'), 'e', 1)"),
    ("m", "map('abc', 'v')"),
    ("m", "map('a', 'abcd')"),
    ("ll", "array(array('a', 'bc'))"),
)


@pytest.fixture
def theirs(spark: SparkSession, tmp_path: Path) -> Any:
    spark.sql(f"CREATE TABLE lengths ({TYPES}) USING parquet LOCATION '{tmp_path}/theirs'")
    yield spark.table("lengths")
    spark.sql("DROP TABLE lengths")


def ours(theirs: DataFrame, tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path / "ours"), arrow_schema_of(theirs.schema))


def test_texts_are_stored_as_spark_stores_them(spark: SparkSession, theirs: DataFrame, tmp_path: Path) -> None:
    table = ours(theirs, tmp_path)
    rows = spark.sql(" UNION ALL ".join(FITTING))
    spark.sql(f"INSERT INTO lengths {' UNION ALL '.join(FITTING)}")
    stored = pq.read_table(f"{tmp_path}/theirs").sort_by("id").to_pylist()
    write_delta(rows, table)
    assert table.to_arrow().sort_by("id").to_pylist() == stored
    rows.write.parquet(f"{tmp_path}/plain")
    table.overwrite(pq.read_table(f"{tmp_path}/plain"))
    assert table.to_arrow().sort_by("id").to_pylist() == stored
    table.delete()
    merge_delta(rows, table, "t.id = s.id").when_not_matched_insert("*").execute()
    assert table.to_arrow().sort_by("id").to_pylist() == stored
    table.update({"c": "'x'"}, "id = 1")
    update_delta(spark, table, {"v": "'y   '"}, "id = 1")
    assert table.to_arrow(columns=["v", "c"], where="id = 1").to_pylist() == [{"v": "y  ", "c": "x   "}]


@pytest.mark.parametrize(("column", "value"), TOO_LONG)
@pytest.mark.sampled(3)
def test_longer_texts_are_refused(
    spark: SparkSession, theirs: DataFrame, tmp_path: Path, column: str, value: str
) -> None:
    table = ours(theirs, tmp_path)
    write_delta(spark.sql(FITTING[0]), table)
    with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
        spark.sql(f"INSERT INTO lengths (id, {column}) SELECT 9L, {value}")
    row = spark.sql(f"SELECT 1L id, {value} {column}")
    writes: list[Callable[[], object]] = [
        lambda: write_delta(row, table),
        lambda: table.append(row.toArrow()),
        lambda: table.merge(row.toArrow(), "t.id = s.id").when_matched_update({column: f"s.{column}"}).execute(),
        lambda: table.update({column: value}) if "(" not in value else table.append(row.toArrow()),
    ]
    for write in writes:
        with pytest.raises(ConstraintViolation, match=f"column '{column}[^']*' is (var)?char"):
            write()
    assert table.refresh().version == 1
