"""Files with several row groups: none with a matching row is passed over, and those without are not read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake_core.delta import DeltaTable
from lake_core.delta.data_file_reader import OpenDataFile
from lake_core.expression import parse_predicate
from lake_core.expression.evaluate import matching
from tests.examples import examples

_NAN = float("nan")
_MOMENTS = [dt.datetime(1960, 1, 1, 0, 0, 0, 1), dt.datetime(2020, 5, 17, 12), dt.datetime(9999, 12, 31)]
_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [-5, 0, 7, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), 3, 2**53 + 1, 2**63 - 1]),
    "x": (pa.float64(), [-1.5, -0.0, 0.0, 2.5, _NAN, float("inf")]),
    "f": (pa.float32(), [0.1, 1.5, _NAN]),
    "s": (pa.string(), ["", "a", "ab", "ä", "b" * 80]),
    "d": (pa.date32(), [dt.date(1, 1, 1), dt.date(2020, 5, 17), dt.date(9999, 12, 31)]),
    "t": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS]),
    "c": (pa.decimal128(12, 2), [Decimal("-1.50"), Decimal("0.01"), Decimal("9999999999.99")]),
    "b": (pa.bool_(), [False, True]),
    "r": (pa.struct([("v", pa.int64())]), [{"v": 1}, {"v": None}, {"v": 9}]),
}
_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _VALUES.items()])
_LITERALS = {
    "i": ["-5", "3", "7"],
    "l": ["3", "9007199254740993", "-9223372036854775808"],
    "x": ["0.0", "2.5", "CAST('NaN' AS DOUBLE)"],
    "f": ["CAST(0.1 AS FLOAT)", "1.5"],
    "s": ["'a'", "'ab'", "''"],
    "d": ["DATE '2020-05-17'", "DATE '0001-01-01'"],
    "t": ["TIMESTAMP '2020-05-17 12:00:00Z'", "TIMESTAMP '1960-01-01 00:00:00.000001Z'"],
    "c": ["0.01", "-1.5", "3"],
    "b": ["true", "false"],
    "r.v": ["1", "5"],
}


@st.composite
def predicates(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(_LITERALS)))
    value = draw(st.sampled_from(_LITERALS[name]))
    leaf = draw(
        st.sampled_from(
            [
                *(f"{name} {operator} {value}" for operator in ("=", "<", "<=", ">", ">=", "!=", "<=>")),
                f"{name} IS NULL",
                f"{name} IS NOT NULL",
                f"NOT ({name} <= {value})",
                f"{name} IN ({value}, {value})",
                f"{name} NOT IN ({value})",
            ]
        )
    )
    return leaf if draw(st.booleans()) else f"({leaf}) {draw(st.sampled_from(['AND', 'OR']))} ({draw(predicates())})"


@st.composite
def columns_of(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 12))
    return pa.table(
        {
            name: pa.array(draw(st.lists(st.sampled_from([None, *values]), min_size=count, max_size=count)), kind)
            for name, (kind, values) in _VALUES.items()
        },
        schema=_SCHEMA,
    )


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns_of(), predicates(), st.integers(1, 4), st.sets(st.integers(0, 11), max_size=4), st.booleans())
def test_every_matching_row_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    rows: pa.Table,
    where: str,
    group_rows: int,
    deleted: set[int],
    chosen: bool,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    rows = rows.append_column("number", pa.array(range(rows.num_rows), pa.int64()))
    pq.write_table(rows, folder / "1.parquet", row_group_size=group_rows)
    table = DeltaTable.convert(folder)
    if deleted:
        table.set_properties({"delta.enableDeletionVectors": "true"})
        table.delete(f"number IN ({', '.join(map(str, deleted))})")
        rows = rows.filter(pa.array([row not in deleted for row in range(rows.num_rows)]))
    names = ["s", "i"] if chosen else rows.column_names
    expected = matching(rows, parse_predicate(where, rows.schema, now=0)).select(names)
    for found in (table.to_arrow(names, where=where), table.to_batches(names, where).read_all()):
        assert str(found.to_pylist()) == str(expected.to_pylist())


class Reads:
    """Counts the row groups and the columns that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decoded: list[tuple[int, str]] = []
        decode = OpenDataFile._decoded

        def counted(file: Any, names: list[str], group: Any = None, **options: Any) -> pa.Table:
            self.decoded += [(-1 if group is None else group.number, name) for name in names]
            return decode(file, names, group, **options)

        monkeypatch.setattr(OpenDataFile, "_decoded", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Create a table of one file with four row groups, whose ids are in order, and whose keys are not."""
    numbers = np.arange(40)
    rows = pa.table({"id": numbers, "key": numbers * 7 % 40, "s": [f"text {number}" for number in numbers]})
    pq.write_table(rows, tmp_path / "1.parquet", row_group_size=10)
    return DeltaTable.convert(tmp_path)


def test_only_row_groups_whose_bounds_match_are_decoded(table: DeltaTable, reads: Reads) -> None:
    assert table.to_arrow(where="id = 25")["s"].to_pylist() == ["text 25"]
    assert {group for group, _ in reads.decoded} == {2}


def test_other_columns_are_decoded_only_where_a_row_matches(table: DeltaTable, reads: Reads) -> None:
    assert table.to_arrow(where="key = 7")["id"].to_pylist() == [1]
    assert sorted(reads.decoded) == [(0, "id"), (0, "key"), (0, "s"), (1, "key"), (2, "key"), (3, "key")]


def test_files_of_the_hybrid_calendar_are_decoded_whole(tmp_path: Path) -> None:
    # The file's numbers are days of the Julian calendar: 1001-01-07 is read as 1001-01-01.
    legacy = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    days = pa.array([dt.date(1001, 1, 7), dt.date(1001, 2, 7)])
    with pq.ParquetWriter(tmp_path / "1.parquet", pa.schema([("d", pa.date32())]), store_schema=False) as file:
        file.write_table(pa.table({"d": days}), row_group_size=1)
        file.add_key_value_metadata(legacy)
    table = DeltaTable.convert(tmp_path)
    assert table.to_arrow(where="d = DATE '1001-01-01'").num_rows == 1


@pytest.mark.parametrize("group_rows", [1, 2])
@pytest.mark.parametrize("mode", ["name", "id"])
def test_row_groups_of_mapped_columns_are_found(tmp_path: Path, mode: str, group_rows: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("r", pa.struct([("v", pa.int64())])), ("s", pa.string())])
    table = DeltaTable.create(tmp_path, schema, properties={"delta.columnMapping.mode": mode})
    table.append(pa.table({"a": [1, 2], "r": [{"v": 1}, {"v": 2}], "s": ["x", "y"]}, schema=schema))
    table.rename_column("a", "b")
    path = next(path for path in tmp_path.rglob("*.parquet"))
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows, path, row_group_size=group_rows)
    assert table.to_arrow(where="b = 2 AND r.v = 2").to_pylist() == [{"b": 2, "r": {"v": 2}, "s": "y"}]


@pytest.mark.parametrize(("where", "found"), [("r.v = 2", [2]), ("`r.v` = 8", [2]), ([("r.v", "=", 8)], [2])])
def test_a_column_named_with_a_dot_is_not_the_field_of_a_struct(tmp_path: Path, where: Any, found: list[int]) -> None:
    schema = pa.schema([("id", pa.int64()), ("r", pa.struct([("v", pa.int64())])), ("r.v", pa.int64())])
    table = DeltaTable.create(tmp_path, schema, properties={"lake.parquet.rowGroupRows": "1"})
    table.append(pa.table({"id": [1, 2], "r": [{"v": 1}, {"v": 2}], "r.v": [9, 8]}, schema=schema))
    assert table.to_arrow(where=where)["id"].to_pylist() == found


def test_a_text_named_as_a_field_of_a_struct_is_read_with_it(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("r", pa.struct([("v", pa.string())])), ("r.v", pa.int64())])
    table = DeltaTable.create(tmp_path, schema)
    rows = {"id": range(50), "r": [{"v": "x" * 9}] * 50, "r.v": range(50)}
    table.append(pa.table(rows, schema=schema))
    assert table.to_arrow(where="id = 7").to_pylist() == [{"id": 7, "r": {"v": "x" * 9}, "r.v": 7}]


def test_a_nan_has_no_bounds_in_the_footer_where_columns_swapped_their_names(tmp_path: Path) -> None:
    # The file's columns have the names of the other column each.
    table = DeltaTable.create(tmp_path, pa.schema([("x", pa.float64()), ("y", pa.float64())]))
    table.set_properties({"delta.columnMapping.mode": "name"})
    for name, other in (("x", "z"), ("y", "x"), ("z", "y")):
        table.rename_column(name, other)
    table.append(pa.table({"x": [1.0, 2.0], "y": [3.0, _NAN]}))
    [path] = tmp_path.glob("*.parquet")
    row_group = pq.read_metadata(path).row_group(0)
    columns = [row_group.column(index) for index in range(2)]
    assert {column.path_in_schema: column.is_stats_set for column in columns} == {"x": False, "y": True}
