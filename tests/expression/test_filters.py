"""Filters as values: they select what PyArrow selects by the same filters."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.expression import InvalidExpression, bind_filters, matching, parse_predicate, parse_where
from tests.imports import imported

_ZONE = dt.timezone(dt.timedelta(hours=2))
_VALUES: dict[str, list[Any]] = {
    "small": [None, -(2**7), -1, 0, 1, 2**7 - 1],
    "long": [None, -(2**63), 2**53 + 1, 7, 2**63 - 1],
    "double": [None, -1.5, 0.1, 0.5, 1e300],
    "text": [None, "", "a", "ä", "a'b\\", "Z"],
    "bytes": [None, b"", b"\x00", b"\xff"],
    "flag": [None, True, False],
    "day": [None, dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "local": [None, dt.datetime(2024, 1, 1, 12, 0, 0, 1), dt.datetime(1900, 1, 1)],
    "instant": [None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 2, 30, tzinfo=_ZONE)],
    "amount": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("99.99")],
}
_SCHEMA = pa.schema(
    {
        "small": pa.int8(),
        "long": pa.int64(),
        "double": pa.float64(),
        "text": pa.string(),
        "bytes": pa.binary(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "local": pa.timestamp("us"),
        "instant": pa.timestamp("us", "UTC"),
        "amount": pa.decimal128(4, 2),
    }
)
_COUNT = 60
_ROWS = pa.table(
    {"row": range(_COUNT)}
    | {name: [values[row % len(values)] for row in range(_COUNT)] for name, values in _VALUES.items()},
    schema=pa.schema([("row", pa.int64()), *_SCHEMA]),
)


@st.composite
def _filters(draw: st.DrawFn) -> list[tuple[str, str, Any]]:
    filters = []
    for name in draw(st.lists(st.sampled_from(_SCHEMA.names), min_size=1, max_size=3)):
        values = _VALUES[name][1:]
        operator = draw(st.sampled_from(["=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]))
        value = draw(st.lists(st.sampled_from(values), min_size=1) if "in" in operator else st.sampled_from(values))
        filters.append((name, operator, value))
    return filters


def _selected_by_arrow(groups: list[list[tuple[str, str, Any]]]) -> list[int]:
    rows: set[int] = set()
    for group in groups:
        # PyArrow counts null as not in a list. SQL does not.
        known = reduce(and_, (pc.field(name).is_valid() for name, _, _ in group))
        rows.update(_ROWS.filter(pq.filters_to_expression([group]) & known)["row"].to_pylist())
    return sorted(rows)


@given(st.lists(_filters(), min_size=1, max_size=3))
def test_they_select_what_arrow_selects(groups: list[list[tuple[str, str, Any]]]) -> None:
    chosen = matching(_ROWS, bind_filters(groups, _ROWS.schema))
    assert chosen["row"].to_pylist() == _selected_by_arrow(groups)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    schema = pa.schema([*_ROWS.schema, ("place", pa.struct([("city", pa.string())]))])
    properties = {"delta.feature.timestampNtz": "supported"}
    table = DeltaTable.create(tmp_path_factory.mktemp("table"), schema, partition_by=["day"], properties=properties)
    cities = pa.array([{"city": "Bern" if row % 2 else "Rome"} for row in range(_COUNT)], schema.field("place").type)
    table.append(_ROWS.append_column("place", cities))
    return table


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ([("small", "=", 1)], "small = 1"),
        ([("SMALL", "=", np.int64(1))], "small = 1"),
        ([("small", ">", 1000)], "small > 1000"),
        ([("small", "<", 0.5)], "small < 0.5"),
        ([("long", "in", {2**53 + 1, 2**200})], f"long = {2**53 + 1}"),
        ([("double", ">=", np.float32(0.5))], "double >= 0.5"),
        ([("double", "=", np.float64(0.1))], "double = 0.1"),
        ([("small", "in", np.array([0, 1]))], "small IN (0, 1)"),
        ([("long", "in", np.array([0]))], "long IN (0)"),
        ([("text", "=", "a'b\\")], r"text = 'a\'b\\'"),
        ([("day", "!=", dt.date(2024, 2, 29))], "day != DATE '2024-02-29'"),
        ([("day", "=", "2024-02-29"), ("flag", "=", True)], "day = '2024-02-29' AND flag"),
        ([[("small", "=", 1)], [("text", "=", "Z")]], "small = 1 OR text = 'Z'"),
        ([("place.city", "=", "Bern")], "place.city = 'Bern'"),
    ],
)
def test_a_table_is_read_as_by_text(table: DeltaTable, filters: Any, text: str) -> None:
    rows = table.to_arrow(["row"], filters)
    assert sorted(rows["row"].to_pylist()) == sorted(table.to_arrow(["row"], text)["row"].to_pylist())


@given(st.lists(_filters(), min_size=1, max_size=3))
def test_the_text_that_is_recorded_means_the_same(groups: list[list[tuple[str, str, Any]]]) -> None:
    predicate, text = parse_where(groups, _ROWS.schema)
    assert matching(_ROWS, parse_predicate(text, _ROWS.schema)) == matching(_ROWS, predicate)


def test_rows_are_deleted_updated_and_replaced_by_them(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    table.append(pa.table({"id": [1, 2, 3, 4], "name": ["a", "o'b", "c", "d"]}))
    table.delete([("name", "=", "o'b")])
    table.update({"name": "'new'"}, [("id", "in", [3, 9])])
    table.overwrite(pa.table({"id": [4], "name": ["again"]}), where=[("id", ">", 3)])
    assert table.to_arrow().sort_by("id").to_pydict() == {"id": [1, 3, 4], "name": ["a", "new", "again"]}
    operations = {entry["operation"]: entry["operationParameters"] for entry in table.history()}
    assert operations["DELETE"]["predicate"] == r"""["`name` = 'o\\'b'"]"""


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ([], "is not a list of filters"),
        ([[]], "is not a list of filters"),
        (("small", "=", 1), "is not a list of filters"),
        ([("small", 1)], "is not a list of filters"),
        ([["small", "=", 1]], "is not a list of filters"),
        ([("missing", "=", 1)], "there is no column 'missing'"),
        ([("small", "~", 1)], "the operators are"),
        ([("small", "=", None)], "small IS NULL"),
        ([("small", "in", "12")], "needs a list of values"),
        ([("small", "in", [])], "needs a list of values"),
        ([("small", "=", "one")], "is not a value of small"),
        ([("small", "=", True)], "is not a value of small"),
        ([("double", "=", float("nan"))], "is not a value of double"),
        ([("local", "=", dt.datetime(2024, 1, 1, tzinfo=dt.UTC))], "is not a value of local"),
        ([("local", "<", pd.Timestamp("2024-01-01 12:00:00.000001001"))], "is not a value of local"),
        ([("instant", "=", pd.Timestamp("2024-01-01 00:00:00.000000001Z"))], "is not a value of instant"),
        ([("instant", "=", pd.NaT)], "is not a value of instant"),
        ([("place", "=", {"city": "Bern"})], "cannot be compared"),
    ],
)
def test_what_cannot_be_compared_is_refused(table: DeltaTable, filters: Any, reason: str) -> None:
    with pytest.raises(InvalidExpression, match=reason):
        table.to_arrow(where=filters)


def test_a_column_whose_name_has_a_dot_comes_before_a_field() -> None:
    rows = pa.table({"row": [1, 2], "a": [{"b": 5}, {"b": 6}], "A.b": [6, 5]})
    assert matching(rows, bind_filters([("a.b", "=", 5)], rows.schema))["row"].to_pylist() == [2]


def test_reading_by_them_imports_no_parser(tmp_path: Path) -> None:
    rows = _ROWS.drop_columns(["local"])
    DeltaTable.create(tmp_path, rows.schema).append(rows)
    read = (
        "from lake_core.delta import DeltaTable\n"
        f"assert DeltaTable({str(tmp_path)!r}).to_arrow(where=[('small', '<', 9), ('text', 'in', ['a', 'Z'])]).num_rows"
    )
    assert imported(read, ("sqlglot", "pandas")) == []
