"""Rows of either kind: what the writer asks of them."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.delta.errors import DuplicateKeys, RowsOutsidePredicate
from lake_orch.errors import DefinitionMismatch, InvalidDefinition
from lake_orch.tables.rows import RowCondition, Rows, rows_of
from lake_orch.tables.rows.arrow import ArrowRows
from lake_orch.tables.rows.partition_guard import PartitionGuard

TABLE = pa.table({"id": [2, 1], "day": ["a", "b"]})
GUARD = PartitionGuard("day = 'a'", "partition 'a' of asset x", "Filter the rows")


def stream() -> Rows:
    return ArrowRows(TABLE.to_reader())


@pytest.mark.parametrize(
    "value", [None, 1, {"id": [1]}, pd.DataFrame({"id": [1]})], ids=["none", "number", "dict", "pandas"]
)
def test_other_values_are_no_rows(value: object) -> None:
    assert rows_of(value) is None


def test_a_guard_lets_no_other_row_through() -> None:
    with pytest.raises(RowsOutsidePredicate, match="partition 'a' of asset x"):
        ArrowRows(TABLE).guarded(GUARD, "the rows")


def test_a_guard_of_a_stream_waits_until_it_is_read() -> None:
    guarded = stream().guarded(GUARD, "the rows")
    with pytest.raises(RowsOutsidePredicate):
        guarded.data.read_all()


def test_a_guard_needs_the_columns_that_it_speaks_of() -> None:
    with pytest.raises(DefinitionMismatch, match="the rows would be merged"):
        ArrowRows(TABLE.select(["id"])).guarded(GUARD, "the rows")


def test_rows_in_memory_are_sorted_and_a_stream_comes_as_it_is() -> None:
    assert ArrowRows(TABLE).sorted_by(["ID"]).data["id"].to_pylist() == [1, 2]
    assert stream().sorted_by(["ID"]).data.read_all() == TABLE


def test_keys_of_a_stream_are_told_apart_and_its_rows_kept() -> None:
    assert stream().with_unique(["id"]).data == TABLE
    with pytest.raises(DuplicateKeys):
        ArrowRows(pa.table({"id": [1, 1]})).with_unique(["id"])


def test_a_stream_has_no_rows_to_show_after_it_was_written() -> None:
    assert stream().head(1) is None
    assert ArrowRows(TABLE).head(1) == TABLE.slice(0, 1)


def test_rows_that_break_a_condition_are_counted_and_shown() -> None:
    total, (broken,) = ArrowRows(TABLE).broken([RowCondition("a check", "id < 2", 1)])
    assert total == 2
    assert broken.count == 1
    assert broken.sample == TABLE.slice(0, 1)


def test_a_stream_is_read_once_and_cannot_be_checked() -> None:
    with pytest.raises(InvalidDefinition, match="a stream can be read once"):
        stream().broken([RowCondition("a check", "id < 2", 1)])


@pytest.mark.spark
def test_a_dataframe_is_rows_and_does_the_same(spark: SparkSession) -> None:
    rows = rows_of(spark.createDataFrame(TABLE))
    assert rows is not None
    assert rows.schema.names == ["id", "day"]
    assert rows.head(1) is None
    assert rows.broken([RowCondition("a check", "id < 2", 1)])[0] == 2
    with pytest.raises(Exception, match="partition 'a' of asset x"):
        rows.guarded(GUARD, "the rows").data.collect()
    with rows.held():
        assert rows.data.is_cached
    assert not rows.data.is_cached
