"""Spark is the oracle of the expression engine: types, values and failures are the same."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lake_core.expression import EvaluationFailed, InvalidExpression, evaluate, parse_expression
from tests.expression.cases import EXPRESSIONS, FAILING, ROWS, SCHEMA
from tests.spark.test_predicates import settings

ANSI = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # What expressions have in common would be computed at once, also for rows that do not reach it.
    "spark.sql.subexpressionElimination.enabled": "false",
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    with settings(spark, ANSI):
        yield typed_frame(spark)


def typed_frame(spark: SparkSession) -> DataFrame:
    """ROWS with timestamps without a zone, which Spark would take for instants."""
    return spark.createDataFrame(ROWS).withColumn("u", F.col("u").cast("timestamp_ntz")).coalesce(1)


def spark_values(frame: DataFrame, expressions: list[str]) -> pa.Table:
    """One column an expression; the rows in order."""
    selected = frame.selectExpr("id", *(f"({text}) AS v{number}" for number, text in enumerate(expressions)))
    return selected.toArrow().sort_by("id").drop_columns(["id"])


def plain(found: pa.ChunkedArray) -> list[Any]:
    """Python has no dates before the year 1 or after 9999."""
    if pa.types.is_date(found.type):
        found = found.cast(pa.int32())
    elif pa.types.is_timestamp(found.type):
        found = found.cast(pa.int64())
    values: list[Any] = found.to_pylist()
    return values


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        # Bit by bit, but for the kinds of NaN.
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    return bool(a == b)


def differences(expressions: list[str], found: pa.Table) -> dict[str, Any]:
    wrong: dict[str, Any] = {}
    for number, text in enumerate(expressions):
        theirs = found.column(number)
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


def test_values_are_those_of_spark(frame: DataFrame) -> None:
    wrong = differences(EXPRESSIONS, spark_values(frame, EXPRESSIONS))
    assert not wrong, "\n".join(f"{text}: {what}" for text, what in wrong.items())


def test_what_fails_in_spark_fails_here(frame: DataFrame) -> None:
    for text in FAILING:
        with pytest.raises((EvaluationFailed, InvalidExpression)):
            print(text, evaluate(parse_expression(text, SCHEMA), ROWS))
        with pytest.raises(PySparkException):
            print(text, spark_values(frame, [text]))
