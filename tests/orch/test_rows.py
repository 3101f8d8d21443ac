"""Rows of either kind: what the writer asks of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lake_core.delta.errors import DuplicateKeys, RowsOutsidePredicate, SchemaMismatch
from lake_core.spark.executor import lake_error
from lake_orch.assets.tables.casting import cast_rows
from lake_orch.assets.tables.rows import RowCondition, Rows, rows_of
from lake_orch.assets.tables.rows.arrow import ArrowRows
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard
from lake_orch.assets.tables.rows.spark import SparkRows
from lake_orch.errors import DefinitionMismatch, InvalidDefinition
from tests.examples import exhaustive
from tests.spark.settings import settings

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


NESTED_IN = ("plain", "record", "list", "map")


def within(place: str, kind: pa.DataType) -> pa.DataType:
    """Return a type that has another one in it."""
    return {
        "plain": kind,
        "record": pa.struct([("n", pa.string()), ("V", kind)]),
        "list": pa.list_(kind),
        "map": pa.map_(pa.string(), kind),
    }[place]


def placed(place: str, value: Any, name: str = "V") -> Any:
    return {"plain": value, "record": {name: value, "n": "x"}, "list": [value, None], "map": [("k", value)]}[place]


SAME = [
    (2.0, pa.float64(), pa.int64(), 2),
    (0.5, pa.float64(), pa.float32(), 0.5),
    (0.15, pa.float64(), pa.decimal128(5, 2), Decimal("0.15")),
    (Decimal("1.10"), pa.decimal128(10, 2), pa.float64(), 1.1),
    (Decimal("1.100"), pa.decimal128(10, 3), pa.decimal128(5, 1), Decimal("1.1")),
    (2**31 - 1, pa.int64(), pa.int32(), 2**31 - 1),
    (2**60, pa.int64(), pa.float64(), 2.0**60),
    (Decimal(7), pa.decimal128(10, 0), pa.int32(), 7),
]
OTHER = [
    (1.5, pa.float64(), pa.int64()),
    (float("nan"), pa.float64(), pa.int64()),
    (2.0**63, pa.float64(), pa.int64()),
    (0.1, pa.float64(), pa.float32()),
    (1e300, pa.float64(), pa.float32()),
    (0.155, pa.float64(), pa.decimal128(5, 2)),
    (float("nan"), pa.float64(), pa.decimal128(5, 2)),
    (Decimal("0.155"), pa.decimal128(10, 3), pa.decimal128(5, 2)),
    (Decimal(2**53 + 1), pa.decimal128(20, 0), pa.float64()),
    (Decimal("1.5"), pa.decimal128(10, 1), pa.int32()),
    (2**31, pa.int64(), pa.int32()),
    (2**53 + 1, pa.int64(), pa.float64()),
    (2**63 - 1, pa.int64(), pa.float64()),
    (2**31 - 1, pa.int32(), pa.float32()),
]


def column(place: str, value: Any, kind: pa.DataType) -> pa.Table:
    return pa.table({"C": pa.array([placed(place, value), None], within(place, kind))})


def cast(rows: Rows, place: str, kind: pa.DataType) -> Rows:
    return cast_rows(rows, pa.schema([("c", within(place, kind))]), "the rows")


@pytest.mark.parametrize("place", NESTED_IN)
@pytest.mark.parametrize(("value", "source", "target", "expected"), SAME, ids=str)
def test_values_that_are_the_same_in_the_declared_type_are_cast(
    place: str, value: Any, source: pa.DataType, target: pa.DataType, expected: Any
) -> None:
    found = cast(ArrowRows(column(place, value, source)), place, target).data
    assert found["c"].to_pylist() == pa.array([placed(place, expected), None], within(place, target)).to_pylist()


@pytest.mark.parametrize("place", NESTED_IN)
@pytest.mark.parametrize(("value", "source", "target"), OTHER, ids=str)
def test_a_value_that_a_declared_type_would_change_is_refused(
    place: str, value: Any, source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(DefinitionMismatch, match="column 'c' of the rows has a value that is not "):
        cast(ArrowRows(column(place, value, source)), place, target)


NAIVE = pa.timestamp("us")
FIELDS_THAT_DIFFER = [
    (pa.struct([("a", pa.int64()), ("z", pa.int64())]), pa.struct([("a", pa.int64())]), "it has c.z too"),
    (pa.struct([("a", pa.int64()), ("A", pa.int64())]), pa.struct([("a", pa.int64())]), "c.a, c.A, which are one"),
    (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int64())]), "c.a is string instead of bigint"),
    (pa.list_(pa.int64()), pa.list_(pa.bool_()), "c.element is bigint instead of boolean"),
    (pa.list_(NAIVE), pa.list_(pa.timestamp("us", "UTC")), "c.element is timestamp_ntz instead of timestamp"),
    (pa.map_(pa.string(), NAIVE), pa.map_(pa.string(), pa.timestamp("us", "UTC")), "c.value is timestamp_ntz instead"),
    (pa.map_(pa.string(), pa.int64()), pa.list_(pa.int64()), "c is map<string,bigint> instead of array<bigint>"),
]


@pytest.mark.parametrize(("source", "target", "message"), FIELDS_THAT_DIFFER, ids=str)
def test_fields_that_differ_from_the_declared_ones_are_refused(
    source: pa.DataType, target: pa.DataType, message: str
) -> None:
    with pytest.raises(DefinitionMismatch, match=message):
        cast_rows(ArrowRows(pa.table({"c": pa.nulls(1, source)})), pa.schema([("c", target)]), "the rows")


def test_fields_are_matched_by_name_and_case_is_ignored() -> None:
    rows = ArrowRows(pa.table({"c": [{"b": "x", "A": 1}]}))
    target = pa.schema([("c", pa.struct([("a", pa.int32()), ("b", pa.string()), ("new", pa.int64())]))])
    assert cast_rows(rows, target, "the rows").data["c"].to_pylist() == [{"a": 1, "b": "x", "new": None}]


@pytest.mark.spark
@pytest.mark.parametrize("ansi", ["true", *exhaustive(["false"])])
def test_spark_casts_exactly_or_fails(spark: SparkSession, ansi: str) -> None:
    with settings(spark, {"spark.sql.ansi.enabled": ansi}):
        for place in NESTED_IN:
            for value, source, target, expected in SAME:
                rows = SparkRows(spark.createDataFrame(column(place, value, source)))
                found = cast(rows, place, target).data.toArrow()
                assert found["c"].to_pylist() == [placed(place, expected), None], (place, value, source, target)
        for number, (value, source, target) in enumerate(OTHER):
            place = NESTED_IN[number % len(NESTED_IN)]
            rows = SparkRows(spark.createDataFrame(column(place, value, source)))
            with pytest.raises(PySparkException) as raised:
                cast(rows, place, target).data.toArrow()
            ours = lake_error(raised.value)
            assert isinstance(ours, SchemaMismatch), (place, value, source, target, raised.value)
            assert "column 'c' of the rows has a value that is not" in str(ours)
