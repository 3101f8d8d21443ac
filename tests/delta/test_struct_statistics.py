"""Statistics in columns become the JSON that writers would have written, value by value."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta.struct_statistics import stats_json

BOUNDS = pa.struct(
    [
        ("i", pa.int64()),
        ("b", pa.int8()),
        ("f", pa.float64()),
        ("r", pa.float32()),
        ('s "\\', pa.string()),
        ("x", pa.binary()),
        ("y", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("z", pa.timestamp("ns", tz="UTC")),
        ("w", pa.timestamp("us")),
        ("n", pa.decimal128(38, 10)),
        ("l", pa.list_(pa.int32())),
        ("nested", pa.struct([("a", pa.string()), ("b", pa.struct([("c", pa.int32())]))])),
    ]
)
STATS = pa.struct([("numRecords", pa.int64()), ("minValues", BOUNDS), ("nullCount", pa.struct([("i", pa.int64())]))])


def _row() -> st.SearchStrategy[Any]:
    utc = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))
    near = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))
    values: dict[str, st.SearchStrategy[Any]] = {
        "i": st.integers(-(2**63), 2**63 - 1),
        "b": st.integers(-128, 127),
        "f": st.floats(),
        "r": st.floats(width=32),
        's "\\': st.text(st.characters(codec="utf-8")),
        "x": st.binary(),
        "y": st.booleans(),
        "d": st.dates(max_value=dt.date(9999, 12, 30)),
        "t": utc,
        "z": near,
        "w": st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 30)),
        "n": st.decimals(-(10**20), 10**20, places=10).map(
            lambda value: value.quantize(Decimal("1e-10"), context=decimal.Context(38))
        ),
        "l": st.lists(st.integers(0, 5)),
        "nested": st.fixed_dictionaries(
            {
                "a": st.none() | st.text(st.characters(codec="utf-8")),
                "b": st.none() | st.fixed_dictionaries({"c": st.none() | st.just(1)}),
            }
        ),
    }
    return st.fixed_dictionaries({name: st.none() | value for name, value in values.items()})


ROW = st.none() | st.fixed_dictionaries(
    {"numRecords": st.integers(0, 5), "minValues": st.none() | _row(), "nullCount": st.none() | st.just({"i": 0})}
)


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        children = {key: _present(child) for key, child in value.items()}
        return {key: child for key, child in children.items() if child is not None}
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return (
            value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None).isoformat(timespec="milliseconds")
            + "Z"
        )
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) else None


@pytest.mark.extended
@given(st.lists(ROW, max_size=5))
def test_as_if_written_one_by_one(rows: list[Any]) -> None:
    texts = stats_json(pa.array(rows, STATS)).to_pylist()
    expected = [None if row is None else _present(row) for row in pa.array(rows, STATS).to_pylist()]
    assert [None if text is None else json.loads(text) for text in texts] == expected


def test_slices_and_empty_structs() -> None:
    rows = pa.array([{"numRecords": 1}, None, {"numRecords": 3}], STATS)
    assert stats_json(rows.slice(1)).to_pylist() == [None, '{"numRecords":3}']
    assert stats_json(rows.slice(3)).to_pylist() == []
    assert stats_json(pa.array([{}, None], pa.struct([]))).to_pylist() == ["{}", None]
