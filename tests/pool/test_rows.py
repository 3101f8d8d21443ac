"""Rows of callers: Python objects and Arrow data become the values that they are, or are refused with our errors."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from lake_core.pool.errors import InvalidType, InvalidValue
from lake_core.pool.lake import PoolLake
from lake_core.pool.ndjson import parse_json
from lake_core.pool.pool import Pool
from lake_core.pool.rows import batches_of_rows, value_of
from lake_core.pool.value import Tagged
from lake_core.pool.zson.formatter import format_value
from lake_core.store import MemoryStore


@pytest.fixture
def pool() -> Pool:
    return PoolLake.create(MemoryStore()).create_pool("p", key="k", order="asc")


@pytest.mark.parametrize(
    "row",
    [
        {"k": [1, "a", None, [1], {"a": 1}]},
        {"k": [{"a": 1}, {"b": 2}, {"a": "x"}]},
        {"k": [1, 2.5]},
        {"k": [True, 1]},
        {"k": {"x": {}, "y": [], "z": [[]]}},
        {"k": [None, None], "l": None},
    ],
)
def test_mappings_are_the_values_of_their_json(row: Any) -> None:
    assert value_of(row) == parse_json(json.dumps(row))


@pytest.mark.parametrize(
    ("row", "zson"),
    [
        ({"k": 1 << 63}, "{k:9223372036854775808(uint64)}"),
        ({"k": -(1 << 63)}, "{k:-9223372036854775808}"),
        ({"k": datetime(2024, 1, 1, tzinfo=UTC)}, "{k:2024-01-01T00:00:00Z}"),
        ({"k": date(2024, 1, 1)}, "{k:2024-01-01T00:00:00Z}"),
        ({"k": timedelta(seconds=90)}, "{k:1m30s}"),
        ({"k": ip_address("1.2.3.4"), "n": ip_network("10.0.0.0/8")}, "{k:1.2.3.4,n:10.0.0.0/8}"),
        ({"k": np.int8(3), "a": np.array([1.5, 2])}, "{k:3(int8),a:[1.5,2.]}"),
        ({"k": (1, 2)}, "{k:[1,2]}"),
        ([Tagged(1, "a"), Tagged(0, 1)], '["a",1]'),
        (np.int64(7), "7"),
    ],
)
def test_python_objects_become_values(row: Any, zson: str) -> None:
    assert format_value(value_of(row)) == zson


def _list_in_itself() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


@pytest.mark.parametrize(
    "row",
    [
        *({"k": "\ud800"}, {"\ud800": 1}, {1: 2}),
        *({"k": 1 << 64}, {"k": Decimal("1.5")}, {"k": datetime(9999, 1, 1)}, {"k": object()}),
        _list_in_itself(),
    ],
    ids=["text", "name", "number as a name", "number", "decimal", "time", "object", "circle"],
)
def test_objects_without_a_form_are_refused(row: Any) -> None:
    with pytest.raises((InvalidValue, InvalidType)):
        value_of(row)


def test_a_column_alone_is_refused(pool: Pool) -> None:
    with pytest.raises(InvalidValue, match="pass a list of mappings"):
        pool.load(pl.Series("k", [1, 2]))


def test_a_data_frame_whose_column_has_several_types_is_refused(pool: Pool) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidValue, match="give each column one type"):
        pool.load(pandas.DataFrame({"k": [1, 2], "o": ["x", 1]}))


def test_categories_of_polars_become_strings() -> None:
    rows = pl.DataFrame({"k": ["b", None, "a"]}, schema={"k": pl.Categorical})
    values = [format_value(value) for batch in batches_of_rows(rows) for value in batch.values()]
    assert values == ['{k:"b"}', "{k:null(string)}", '{k:"a"}']


def test_a_column_that_zed_has_no_type_for_is_named() -> None:
    table = pa.table({"id": [1], "price": pa.array([Decimal("2.5")])})
    with pytest.raises(InvalidType, match=r"the column 'price': .* cast the column to another type, such as float64"):
        list(batches_of_rows(table))
