"""Spark finds the rows that Arrow finds, in a session of any time zone and settings, by the same predicates."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake_core.delta import DeltaTable
from lake_core.expression import parse_predicate
from lake_core.spark import read_delta, write_delta
from lake_core.spark.predicate import to_column
from tests.expression.test_predicates import PREDICATES, ROWS, SCHEMA
from tests.spark.settings import settings


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    table = DeltaTable.create(tmp_path_factory.mktemp("predicates"), SCHEMA)
    table.append(ROWS)
    return table


@pytest.mark.parametrize(
    ("conf", "every"),
    [
        ({"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}, 3),
        pytest.param(
            {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}, 1, marks=pytest.mark.exhaustive
        ),
        pytest.param(
            {
                "spark.sql.session.timeZone": "Asia/Tokyo",
                "spark.sql.ansi.enabled": "false",
                "spark.sql.caseSensitive": "true",
                "spark.sql.parser.escapedStringLiterals": "true",
            },
            1,
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["ansi, each third", "ansi", "other settings"],
)
def test_every_predicate(spark: SparkSession, table: DeltaTable, conf: Mapping[str, str], every: int) -> None:
    wrong = {}
    predicates = PREDICATES[::every]
    with settings(spark, conf):
        # All scans run in one job, because starting a job takes longer than a scan.
        for start in range(0, len(predicates), 24):
            chosen = predicates[start : start + 24]
            frames = [
                read_delta(spark, table, columns=["id"], where=where).withColumn("n", F.lit(n))
                for n, (where, _) in enumerate(chosen)
            ]
            rows = reduce(DataFrame.unionAll, frames).collect()
            for n, (where, expected) in enumerate(chosen):
                ids = sorted(row.id for row in rows if row.n == n)
                if ids != expected:
                    wrong[where] = ids
                assert sorted(table.to_arrow(columns=["id"], where=where)["id"].to_pylist()) == expected, where
    assert not wrong


def test_other_readers_find_nan_too(spark: SparkSession, table: DeltaTable) -> None:
    """Spark's own scan skips row groups by the bounds in Parquet footers, which know nothing of NaN."""
    files = [table.store.url(path) for path in table.files()["path"].to_pylist()]
    assert [row.id for row in spark.read.parquet(*files).where("f > 2").collect()] == [2]


@pytest.mark.parametrize(
    "where", ["zero = 0", "zero <=> 0", "zero IN (0, 0.0)", "zero IN (0, 5)", "NOT (one <=> 1)", "one NOT IN (1)"]
)
def test_what_parquet_decides_otherwise_is_not_pushed_down(
    spark: SparkSession, table: DeltaTable, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read_delta(spark, table, where=where).explain(mode="formatted")
    plan = capsys.readouterr().out
    assert "FileScan" in plan or "Scan parquet" in plan
    pushed = "".join(line for line in plan.splitlines() if line.startswith("PushedFilters"))
    assert not any(name in pushed for name in ("EqualTo", "EqualNullSafe", "In(", "Not(")), pushed


_ZEROS = [[-0.0] * 3, [0.0] * 3, [-0.0, float("nan")], [-1.0, -0.0], [0.0, 1.0]]
_USUAL = {(2, "ours"), (0, "another")}


@pytest.mark.parametrize(
    ("values", "writer"),
    [
        pytest.param(values, writer, marks=[] if (number, writer) in _USUAL else pytest.mark.exhaustive)
        for number, values in enumerate(_ZEROS)
        for writer in ("ours", "another")
    ],
)
def test_zeros_and_nan_in_files(spark: SparkSession, tmp_path: Path, values: list[float], writer: str) -> None:
    data = pa.table({"g": pa.array(values, pa.float64()), "f": pa.array(values, pa.float32())})
    if writer == "ours":
        DeltaTable.create(tmp_path / "t", data.schema).append(data)
    else:
        write_deltalake(tmp_path / "t", data)
    table = DeltaTable.open(tmp_path / "t")
    for name in ("g", "f"):
        wheres = [
            f"{name} {condition}"
            for condition in ("= 0", "<=> 0", "IN (0, 7)", "NOT IN (0)", "!= 0", "< 0", "<= 0", ">= 0", "> 0")
        ]
        # All scans run in one job, because starting a job takes longer than a scan.
        frames = [read_delta(spark, table, where=where).select(F.lit(where).alias("where")) for where in wheres]
        rows = Counter(row[0] for row in reduce(DataFrame.unionAll, frames).collect())
        assert {where: rows[where] for where in wheres} == {
            where: table.to_arrow(where=where).num_rows for where in wheres
        }


@pytest.mark.exhaustive
def test_long_lists_and_chains(spark: SparkSession, table: DeltaTable) -> None:
    for where in (
        f"int IN ({', '.join(map(str, range(20_000)))})",
        f"s IN ('one', {', '.join(repr(str(number)) for number in range(2000))})",
        " OR ".join(f"(int = {number} AND id = 1)" for number in range(200)),
        " AND ".join(f"id < {number}" for number in range(2, 200)),
    ):
        assert [row.id for row in read_delta(spark, table, where=where).collect()] == [1], where[:80]


@pytest.mark.extended
@pytest.mark.parametrize("zone", [pytest.param("UTC", marks=pytest.mark.exhaustive), "America/New_York"])
def test_timestamps_without_zone(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    moments = [dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 1, 12, 0, 0, 1), None]
    write_deltalake(tmp_path / "t", pa.table({"id": [1, 2, 3], "t": pa.array(moments, pa.timestamp("us"))}))
    table = DeltaTable.open(tmp_path / "t")
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        for where, expected in {
            "t = '2020-01-01 12:00:00'": [1],
            "t > TIMESTAMP_NTZ '2020-01-01 12:00:00'": [2],
            "t IN ('2020-01-01 12:00:00', '2020-01-01T12:00:00.000001')": [1, 2],
            "t != '2020-01-01 12:00'": [2],
        }.items():
            assert sorted(row.id for row in read_delta(spark, table, where=where).collect()) == expected, where
            assert table.to_arrow(where=where)["id"].to_pylist() == expected, where


def test_timestamps_without_zone_in_any_frame(spark: SparkSession) -> None:
    """Not only where a scan or the optimizer takes the predicate apart."""
    predicate = parse_predicate("t = '2020-01-01 12:00:00'", pa.schema([("t", pa.timestamp("us"))]))
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        frame = spark.sql(
            "SELECT * FROM VALUES (TIMESTAMP_NTZ '2020-01-01 12:00:00'), (TIMESTAMP_NTZ '2020-01-01 17:00:00') AS v(t)"
        )
        assert frame.where(to_column(predicate)).count() == 1


@pytest.mark.extended
def test_text_that_looks_like_a_variable(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.table({"id": [1], "k${spark.app.name}": ["${spark.app.name}"], "p": ["${x}"]})
    frame = spark.createDataFrame(data)
    write_delta(frame, str(tmp_path), partition_by=["p"])
    for where in (
        "p = '${x}'",
        "`k${spark.app.name}` = '${spark.app.name}'",
        "`k${spark.app.name}` LIKE '${spark%'",
        "p IN ('${x}')",
    ):
        assert read_delta(spark, str(tmp_path), where=where).count() == 1, where
