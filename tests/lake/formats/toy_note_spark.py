"""Notes in Spark: a row for each line."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from toy_note import Note


def read_note(spark: SparkSession, note: Note) -> DataFrame:
    return spark.createDataFrame([(line,) for line in note.text.splitlines()], "line string")
