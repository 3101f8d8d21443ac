"""Bounds of the parts of variants: files are skipped by them, and no row is lost."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable, variant
from lake_core.delta.deletion_vector import to_z85
from lake_core.delta.scan import plan_scan
from lake_core.delta.variant_statistics import _parts
from lake_core.expression import EvaluationFailed
from lake_core.store import MemoryStore
from tests.examples import examples

SCHEMA = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)])
LOG = "_delta_log/{:020}.json"


def encoded(bounds: dict[str, Any], *, value_first: bool) -> str:
    (row,) = variant.from_python([bounds]).to_pylist()
    parts = [row["value"], row["metadata"]]
    return to_z85(b"".join(parts if value_first else reversed(parts)))


def leaves(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, child in value.items():
            quoted = name.replace("\\", "\\\\").replace("'", "\\'")
            yield from leaves(child, f"{path}['{quoted}']")
    elif value is not None and not isinstance(value, list):
        yield path, value


def bounds_of(values: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the least and the greatest value of each path whose values are all of one type."""
    by_path: dict[str, list[Any]] = {}
    for value in values:
        for path, leaf in leaves(value):
            by_path.setdefault(path, []).append(leaf)
    alike = {path: found for path, found in by_path.items() if len({type(leaf) for leaf in found}) == 1}
    return {path: min(found) for path, found in alike.items()}, {path: max(found) for path, found in alike.items()}


def table_of(files: list[list[Any]], *, value_first: bool = False) -> DeltaTable:
    """Return a table of these files of variants, with bounds in its log as another writer would have them."""
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    for number, values in enumerate(files, 1):
        table.append(pa.table({"id": range(len(values)), "v": variant.from_python(values)}, schema=SCHEMA))
        actions = [json.loads(line) for line in bytes(store.get(LOG.format(number))).splitlines()]
        for action in actions:
            if "add" in action:
                statistics = json.loads(action["add"]["stats"])
                for kind, bounds in zip(("minValues", "maxValues"), bounds_of(values), strict=True):
                    statistics[kind]["v"] = encoded(bounds, value_first=value_first)
                action["add"]["stats"] = json.dumps(statistics)
        store.put(LOG.format(number), "\n".join(map(json.dumps, actions)).encode() + b"\n")
    return DeltaTable.open(store)


def files_read(table: DeltaTable, where: str) -> int:
    return len(plan_scan(table._snapshot, None, where).files)


def test_the_example_of_the_protocol_is_read() -> None:
    assert _parts("0S&u501fk+ze0(tB98CpzF6vU0rJl95HpNdvjbtatpi(cu0wW^cTu") == {
        "$['a']": "min-string",
        "$['b']['c']": 1,
    }


@pytest.mark.parametrize("value_first", [False, True], ids=["metadata first", "value first"])
@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("variant_get(v, '$.a', 'int') = 15", 1),
        ("variant_get(v, '$.a', 'bigint') > 19", 1),
        ("try_variant_get(v, '$.a', 'double') < 5.5", 1),
        ("variant_get(v, '$.a', 'int') IN (1, 25)", 2),
        ("variant_get(v, '$.a', 'int') = 15 OR variant_get(v, '$.a', 'int') = 1", 2),
        ("variant_get(v, '$.m', 'double') < 9.5", 1),
        ("variant_get(v, '$.g', 'double') < 1e18", 1),
        ("NOT variant_get(v, '$.a', 'int') < 20", 1),
        ("variant_get(v, '$.b[\"it\\'s\"]', 'string') = 'k10'", 2),
        ("variant_get(v, '$.b[\"it\\'s\"]', 'string') LIKE 'k2%'", 2),
        ("variant_get(v, '$.d', 'date') >= '2026-01-21'", 1),
        ("variant_get(v, '$.t', 'timestamp') > '2026-01-01 12:00:00.010000+00'", 2),
        # These are read whole: text does not order numbers, an array has no bounds, null is not counted.
        ("variant_get(v, '$.a', 'string') = '15'", 3),
        ("try_variant_get(v, '$.l[0]', 'int') = 15", 3),
        ("variant_get(v, '$.a', 'int') IS NULL", 3),
        ("variant_get(v, '$.missing', 'int') = 15", 3),
    ],
)
def test_files_are_skipped_by_the_bounds_of_parts(where: str, read: int, value_first: bool) -> None:
    files = [
        [
            {
                "a": number,
                "b": {"it's": f"k{number}"},
                "d": dt.date(2026, 1, 1) + dt.timedelta(number),
                "t": dt.datetime(2026, 1, 1, 11 + number // 10, 59, 59, 999_999, tzinfo=dt.UTC),
                "l": [number],
                "m": Decimal(number) + Decimal("0.50"),
                "g": number * (2**60 + 1),
            }
            for number in range(start, start + 10)
        ]
        for start in (0, 10, 20)
    ]
    assert files_read(table_of(files, value_first=value_first), where) == read


@pytest.mark.parametrize("bounds", ["", "no z85 \x7f", "00000", "#1234", "0S&u501fk+", None, {"$['a']": 1}], ids=repr)
def test_bounds_that_are_none_skip_nothing(bounds: Any) -> None:
    table = table_of([[{"a": 1}]])
    store = table.store
    log = bytes(store.get(LOG.format(1))).splitlines()
    actions = [json.loads(line) for line in log]
    for action in actions:
        if "add" in action:
            statistics = json.loads(action["add"]["stats"])
            statistics["minValues"]["v"] = statistics["maxValues"]["v"] = bounds
            action["add"]["stats"] = json.dumps(statistics)
    store.put(LOG.format(1), "\n".join(map(json.dumps, actions)).encode() + b"\n")
    assert DeltaTable.open(store).to_arrow(where="variant_get(v, '$.a', 'int') = 1").num_rows == 1


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, -(2**63), 2**70]),
    st.floats(-3, 3),
    st.sampled_from([Decimal("1.50"), Decimal("-2.25")]),
    st.sampled_from(["a", "b", "1", "10", ""]),
    st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 3)),
)
OBJECTS = st.dictionaries(st.sampled_from("ab"), st.one_of(LEAVES, st.dictionaries(st.just("c"), LEAVES)))
LITERALS = {
    "int": ["-3", "0", "1", "2", "3"],
    "bigint": ["0", "2147483648", "-9223372036854775808"],
    "double": ["0.5", "-2.25", "1.5", "3.0"],
    "string": ["'a'", "'1'", "'10'", "''"],
    "date": ["date '2026-01-01'", "date '2026-01-03'"],
}


@given(
    files=st.lists(st.lists(OBJECTS, min_size=1, max_size=3), min_size=1, max_size=3),
    path=st.sampled_from(["$.a", "$.b", "$.a.c", "$"]),
    kind=st.sampled_from(list(LITERALS)),
    operator=st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]),
    data=st.data(),
)
@settings(deadline=None, max_examples=examples(150))
def test_no_row_is_lost(files: list[list[Any]], path: str, kind: str, operator: str, data: st.DataObject) -> None:
    literal = data.draw(st.sampled_from(LITERALS[kind]))
    where = f"try_variant_get(v, '{path}', '{kind}') {operator} {literal}"
    table = table_of(files)
    try:
        # The same rows in a table without bounds, filtered without a look at files.
        plain = DeltaTable.create(MemoryStore(), SCHEMA)
        for values in files:
            plain.append(pa.table({"id": range(len(values)), "v": variant.from_python(values)}, schema=SCHEMA))
        expected = plain.to_arrow(where=where).num_rows
    except EvaluationFailed:
        return
    assert table.to_arrow(where=where).num_rows == expected
