"""Datasets of any format as DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.dataset import UnknownFormat
from lake_core.lake.errors import DatasetNotFound
from lake_core.spark import read_dataset
from tests.lake.lakes import TOY_FORMATS, forget_formats

sys.path.insert(0, str(TOY_FORMATS))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    forget_formats()
    lake = Lake.create(tmp_path)
    rows = pa.table({"id": [1, 2]})
    with lake.session() as session:
        session.create_delta("table", rows.schema).append(rows)
        session.create_pool("pool", key="id").load(rows)
        session.create("note", "note", "first\nsecond")
        session.create("names", "register")
    yield lake
    forget_formats()


@pytest.mark.parametrize(("path", "rows"), [("table", [1, 2]), ("pool", [1, 2]), ("note", ["first", "second"])])
def test_the_format_decides_how_a_dataset_is_read(
    spark: SparkSession, lake: Lake, path: str, rows: list[object]
) -> None:
    assert sorted(row[0] for row in read_dataset(spark, lake.at(), path).collect()) == rows


def test_options_are_those_of_the_format(spark: SparkSession, lake: Lake) -> None:
    assert [row.id for row in read_dataset(spark, lake.at(), "table", where="id = 2").collect()] == [2]


def test_a_format_without_a_reader_is_refused(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(UnknownFormat, match="register are not read in Spark, but those of delta"):
        read_dataset(spark, lake.at(), "names")


def test_what_is_not_there_is_refused(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(DatasetNotFound):
        read_dataset(spark, lake.at(), "absent")
