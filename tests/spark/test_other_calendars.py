"""Spark's own files with old dates and times are read here as Spark reads them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConvertFailed
from lake_core.hybrid_calendar import gregorian_micros
from lake_core.spark import read_delta
from tests.spark.settings import settings

ZONES = ["UTC", "America/Los_Angeles", "Asia/Shanghai", "Europe/Berlin", "Asia/Kolkata", "Europe/Dublin", "+05:30"]
"""Zones of which the database of time zones has kept the history. It has merged the oldest times of some others."""


def instants(table: pa.Table) -> list[list[object]]:
    """Return rows as numbers: Python has no years beyond 9999, and a zone of its own."""
    columns = []
    for column in table.columns:
        column = column.combine_chunks()
        column = column.flatten() if pa.types.is_list(column.type) else column
        integers = pa.int32() if pa.types.is_date(column.type) else pa.int64()
        columns.append((column if pa.types.is_integer(column.type) else column.cast(integers)).to_pylist())
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "TIMESTAMP_MILLIS", "INT96"])
@pytest.mark.sampled(4)
def test_old_times_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, zone: str, kind: str) -> None:
    folder = tmp_path / "t"
    legacy = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.parquet.outputTimestampType": kind,
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    }
    with settings(spark, legacy):
        spark.sql(
            "SELECT id, date_add(DATE '0001-01-01', CAST(id * 3653 AS INT)) AS d,"
            " timestamp_seconds(-62135596800 + 86400 * 2 + id * 315619200 + id * 4321) AS t,"
            " array(date_add(DATE '0001-03-01', CAST(id * 3653 AS INT))) AS l FROM range(210)"
        ).coalesce(1).write.parquet(f"file://{folder}")
        expected = spark.read.parquet(f"file://{folder}").orderBy("id").toArrow()
        table = DeltaTable.convert(folder)
        found = table.to_arrow().sort_by("id")
        by_spark = read_delta(spark, table).orderBy("id").toArrow()
    assert instants(found) == instants(expected)
    assert instants(by_spark) == instants(expected)


def test_the_calendar_agrees_with_the_tables_that_spark_has() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    with zipfile.ZipFile(jar) as archive:
        zones = json.loads(archive.read("julian-gregorian-rebase-micros.json"))
    random = np.random.default_rng(1)
    compared = 0
    for zone in (zone for zone in zones if zone["tz"] in ZONES):
        switches, differences = np.array(zone["switches"]), np.array(zone["diffs"])
        seconds = random.integers(switches[0], -2_208_988_800 + 10**7, 5_000)
        expected = seconds + differences[np.searchsorted(switches, seconds, side="right") - 1]
        assert (gregorian_micros(seconds * 10**6, zone["tz"]) // 10**6).tolist() == expected.tolist(), zone["tz"]
        compared += 1
    assert compared == 6


TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.decimal128(9, 2), pa.decimal128(18, 2), pa.decimal128(38, 2)),
    *(pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us")),
    *(pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 1), pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_spark_reads_what_convert_makes_of_a_type(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    types = pa.types
    value: object = [1] if types.is_nested(kind) else 1
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        value = "abc"
    elif types.is_binary(kind) or types.is_fixed_size_binary(kind):
        value = b"abc"
    column = pa.array([value], kind) if not types.is_date(kind) else pa.array([86_400_000]).cast(pa.date64()).cast(kind)
    pq.write_table(pa.table({"c": column}), tmp_path / "a.parquet")
    table = DeltaTable.convert(tmp_path)
    found = read_delta(spark, table).toArrow()["c"]
    assert found.to_pylist() == table.to_arrow()["c"].to_pylist()


def test_half_floats_are_not_converted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([1.5], pa.float16())}), tmp_path / "a.parquet")
    with pytest.raises(ConvertFailed, match=r"'c' of .* has half floats"):
        DeltaTable.convert(tmp_path)
