"""Spark is the oracle of the expression engine: types, values and failures are the same."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake_core.delta import DeltaTable
from lake_core.expression import (
    EvaluationFailed,
    InvalidExpression,
    evaluate,
    matching,
    parse_expression,
    parse_predicate,
)
from lake_core.spark import read_delta
from lake_core.spark.executor import batch_function, by_value, lake_error
from lake_core.spark.predicate import filtered
from tests.expression.cases import EXPRESSIONS, FAILING, ROWS, SCHEMA, plain
from tests.spark.settings import settings

ANSI = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Spark would compute common subexpressions at once, also for rows that do not reach them.
    "spark.sql.subexpressionElimination.enabled": "false",
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    with settings(spark, ANSI):
        yield typed_frame(spark).coalesce(1)


def typed_frame(spark: SparkSession) -> DataFrame:
    """Return ROWS as a DataFrame that keeps timestamps without a zone, which Spark would read as instants."""
    return spark.createDataFrame(ROWS).withColumn("u", F.col("u").cast("timestamp_ntz"))


def spark_values(frame: DataFrame, expressions: list[str]) -> pa.Table:
    """Return one column per expression, with the rows in order."""
    selected = frame.selectExpr("id", *(f"({text}) AS v{number}" for number, text in enumerate(expressions)))
    return selected.toArrow().sort_by("id").drop_columns(["id"])


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        # Bit by bit, but for the kinds of NaN.
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    return bool(a == b)


def differences(expressions: list[str], evaluated: pa.Table) -> dict[str, Any]:
    wrong: dict[str, Any] = {}
    for number, text in enumerate(expressions):
        theirs = evaluated.column(number)
        try:
            ours = evaluate(parse_expression(text, SCHEMA), ROWS)
        except (InvalidExpression, EvaluationFailed) as error:
            wrong[text] = f"{type(error).__name__}: {error}"
            continue
        if ours.type != theirs.type:
            wrong[text] = (ours.type, theirs.type)
        elif not all(map(same, plain(ours), plain(theirs))):
            wrong[text] = (plain(ours), plain(theirs))
    return wrong


@pytest.mark.extended
def test_values_are_those_of_spark(frame: DataFrame) -> None:
    wrong = differences(EXPRESSIONS, spark_values(frame, EXPRESSIONS))
    assert not wrong, "\n".join(f"{text}: {what}" for text, what in wrong.items())


@pytest.mark.extended
def test_what_fails_in_spark_fails_here(spark: SparkSession) -> None:
    with settings(spark, ANSI):
        _check_failures(typed_frame(spark))


def _check_failures(frame: DataFrame) -> None:
    for text in FAILING:
        with pytest.raises((EvaluationFailed, InvalidExpression)):
            print(text, evaluate(parse_expression(text, SCHEMA), ROWS))
        with pytest.raises(PySparkException):
            print(text, spark_values(frame, [text]))  # a plan on local rows, which fails without a task


CONDITIONS = [
    "i + j > 5",
    "upper(s) LIKE '%SS%' OR d + 1 > w",
    "id < 5 AND j <> 3 AND i / (j - 3) > 0",
    "date_format(t, 'yyyy') = '2020' AND st.a * 2 = 2",
    "u > t OR NOT (n * 2 < 0)",
    "hour(t) = 12 AND CAST(t AS STRING) LIKE '2020%' AND t > '2020-01-01'",
    "1 = 1",
    "1 = 2 AND i = 7",
]


@pytest.mark.parametrize(
    ("zone", "source"),
    [
        ("Asia/Tokyo", "native"),
        pytest.param("Asia/Tokyo", "python", marks=pytest.mark.extended),
        pytest.param("UTC", "native", marks=pytest.mark.exhaustive),
        pytest.param("UTC", "python", marks=pytest.mark.exhaustive),
    ],
)
def test_reads_are_filtered_in_executors(spark: SparkSession, tmp_path: Path, zone: str, source: str) -> None:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["y"])
    table = DeltaTable.open(tmp_path / "t")
    conf = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": "false"}
    if source == "python":
        conf["spark.sql.caseSensitive"] = "true"
    with settings(spark, conf):
        for where in CONDITIONS:
            rows = read_delta(spark, table, columns=["id"], where=where).collect()
            expected = matching(ROWS, parse_predicate(where, SCHEMA))["id"].to_pylist()
            assert (
                sorted(row.id for row in rows)
                == expected
                == sorted(table.to_arrow(columns=["id"], where=where)["id"].to_pylist())
            ), where


def test_what_spark_has_columns_for_is_still_pushed_down(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    table = DeltaTable.open(tmp_path / "t")
    read_delta(spark, table, where="id > 3 AND i + j > 0").explain(mode="formatted")
    assert "GreaterThan(id,3)" in capsys.readouterr().out


def test_a_row_that_fails_in_an_executor_is_our_error(spark: SparkSession) -> None:
    frame = filtered(spark.range(3), parse_predicate("1 / (id - 1) > 0", pa.schema([("id", pa.int64())])))
    with pytest.raises(PySparkException) as raised:
        frame.collect()
    error = lake_error(raised.value)
    assert isinstance(error, EvaluationFailed)
    assert "division by zero" in str(error)


_ALONE = """
import pickle, sys
for name in ("lake_core", "sqlglot"):
    sys.modules[name] = None
import pyarrow as pa
run, rows = pickle.loads(sys.stdin.buffer.read())
print(sum(batch.num_rows for batch in run(iter(rows.to_batches()))))
"""


def test_expressions_travel_without_the_package() -> None:
    """By value, every node and implementation: executors have neither the package nor the parser of SQL."""
    fine = [parse_expression(text, SCHEMA) for text in EXPRESSIONS]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            for expression in fine:
                evaluate(expression, rows)
            yield from matching(rows, parsed).to_batches()

    parsed = parse_predicate("abs(i) = 7 AND id < 9 AND NOT (s <=> '' OR length(s) = 0)", SCHEMA)
    process = subprocess.run([sys.executable, "-c", _ALONE], input=by_value((run, ROWS)), capture_output=True, cwd="/")
    assert process.returncode == 0, process.stderr.decode()
    assert int(process.stdout) == matching(ROWS, parsed).num_rows == 2
    assert callable(batch_function(run))
