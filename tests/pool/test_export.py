"""Pools as columns: what Parquet files and Delta tables hold of them, and what comes back."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import InvalidJson, InvalidValue
from lake_core.pool.export import to_columns, to_delta_columns
from lake_core.pool.fused_type import fused_column_type, fused_types
from lake_core.pool.zson.reader import parse_type, parse_values
from lake_core.store import MemoryStore

RECORDS = """
{k:1,t:2026-01-01T00:00:00.000001Z,d:2s,ip:1.2.3.4,net:10.0.0.0/8,b:0x01ff,u:3(uint64),f:1.5(float16),n:null,set:|["a"]|,map:|{"a":1(uint8)}|,type:<int64>,
 err:error("x"),r:{d:2s,u:1(uint8)},named:80(port=uint16)}
{k:2}
"""
MIXED = """
{k:1,v:7,u:1((int64,string)),list:[1,"x"],empty:{}}
{k:2,v:"a",u:"a"((int64,string)),list:[],empty:null({})}
"""


def pool_of(rows: object) -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("raw", key="k", order="asc")
    pool.load(rows)
    return pool


def texts(pool: Pool) -> str:
    return pool.scan().to_zson()


@pytest.fixture
def pool() -> Pool:
    return pool_of(list(parse_values(RECORDS)))


def fused(pool: Pool) -> Pool:
    """Return a pool of the same records with all fields, as a table has them."""
    return pool_of(pool.scan().to_table())


def test_parquet_brings_every_type_back(pool: Pool, tmp_path: Path) -> None:
    pq.write_table(to_columns(pool.scan()).read_all(), tmp_path / "rows.parquet")
    assert texts(pool_of(pq.read_table(tmp_path / "rows.parquet"))) == texts(fused(pool))


def test_a_delta_table_brings_every_type_back(pool: Pool, tmp_path: Path) -> None:
    rows = to_delta_columns(pool.scan())
    table = DeltaTable.create(tmp_path, rows.schema)
    table.append(rows)
    assert texts(pool_of(table.to_arrow())) == texts(fused(pool))


def test_a_filter_and_columns_hold_for_what_is_exported() -> None:
    pool = pool_of([{"k": 1, "a": 1, "b": 2}, {"k": 2, "b": "x"}, {"k": 3, "a": 5, "b": 3}])
    assert to_columns(pool.scan(where="k < 3", columns=["b", "k"])).read_all().to_pylist() == [
        {"b": "2", "k": 1},
        {"b": '"x"', "k": 2},
    ]


def test_what_has_several_types_becomes_json_text() -> None:
    rows = to_columns(pool_of(list(parse_values(MIXED))).scan()).read_all().drop_columns(["k"])
    assert rows.to_pylist() == [
        {"v": "7", "u": "1", "list": ["1", '"x"'], "empty": "{}"},
        {"v": '"a"', "u": '"a"', "list": [], "empty": None},
    ]


EXACT = "{k:1,v:1,n:{w:[1]}} {k:2,v:2.5,n:{w:[2.5]}} {k:3,v:9007199254740992,n:{w:[]}}"


@pytest.mark.parametrize("options", [{}, {"where": "k < 9"}, {"columns": ["v", "n"]}], ids=["all", "where", "columns"])
def test_whole_numbers_and_fractions_become_doubles_where_none_loses_a_digit(options: dict[str, Any]) -> None:
    rows = to_columns(pool_of(list(parse_values(EXACT))).scan(**options)).read_all()
    assert rows["v"].to_pylist() == [1.0, 2.5, 2.0**53]
    assert rows["n"].to_pylist() == [{"w": [1.0]}, {"w": [2.5]}, {"w": []}]
    assert rows.schema.field("v").metadata == {b"zed.type": b"float64"}


NUMBERS = ("int8", "int16", "int64", "uint8", "uint32", "uint64", "float16", "float64")


@pytest.mark.parametrize("round_integers", [False, True])
@pytest.mark.parametrize("types", [*itertools.combinations(NUMBERS, 3)], ids="-".join)
def test_the_common_type_of_numbers_does_not_depend_on_their_order(
    types: tuple[str, ...], round_integers: bool
) -> None:
    fused = {
        fused_column_type(map(parse_type, ordered), round_integers=round_integers)
        for ordered in itertools.permutations(types)
    }
    assert len(fused) == 1
    union = {fused_types(map(parse_type, ordered), "union") for ordered in itertools.permutations(types)}
    assert len(union) == 1


def test_signed_and_unsigned_numbers_and_fractions_become_doubles() -> None:
    rows = to_columns(pool_of(list(parse_values("{k:0,v:1(uint64)} {k:1,v:2} {k:2,v:1.5}"))).scan()).read_all()
    assert rows["v"].to_pylist() == [1.0, 2.0, 1.5]


def test_records_that_become_json_text_have_their_own_fields() -> None:
    values = "{k:0,v:{w:2}} {k:1,v:{q:1}} {k:2,v:5} {k:3,v:{}}"
    rows = to_columns(pool_of(list(parse_values(values))).scan()).read_all()
    assert rows["v"].to_pylist() == ['{"w":2}', '{"q":1}', "5", "{}"]


def test_whole_numbers_that_a_double_would_round_become_json_text_with_fractions() -> None:
    rows = to_columns(pool_of(list(parse_values("{k:1,v:9007199254740993} {k:2,v:2.5}"))).scan()).read_all()
    assert rows["v"].to_pylist() == ["9007199254740993", "2.5"]


def test_a_filter_leaves_the_columns_of_all_values() -> None:
    rows = to_columns(pool_of(list(parse_values(EXACT + '{k:4,other:"x"}'))).scan(where="other = 'x'")).read_all()
    assert (rows.num_rows, rows.schema.field("v").type) == (1, pa.float64())


def test_numbers_of_a_union_stay_json_text() -> None:
    values = "{k:1,v:1((int64,float64))} {k:2,v:2.5((int64,float64))}"
    rows = to_columns(pool_of(list(parse_values(values))).scan()).read_all()
    assert rows["v"].to_pylist() == ["1", "2.5"]


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (
            [{"sku": "a", "price": 10}, {"sku": "b", "price": 10.5}],
            ['{"sku":"a","price":10}', '{"sku":"b","price":10.5}'],
        ),
        ([{"x": 1}, {"y": 2}], ['{"x":1}', '{"y":2}']),
        ([[1], [1.5]], ["[1]", "[1.5]"]),
        ([[1], ["x"]], ["[1]", '["x"]']),
        ([{"x": [1, 2.5]}, {"x": [1]}], ['{"x":[1,2.5]}', '{"x":[1]}']),
    ],
)
def test_records_and_arrays_of_several_types_in_one_array_become_json_text(
    value: list[object], texts: list[str]
) -> None:
    rows = to_columns(pool_of([{"k": 1, "list": value}]).scan()).read_all()
    assert rows["list"].to_pylist() == [texts]


def test_numbers_that_are_no_records_become_doubles() -> None:
    rows = to_columns(pool_of(list(parse_values("1 2.5"))).scan()).read_all()
    assert sorted(rows["this"].to_pylist()) == [1.0, 2.5]


def test_values_that_are_no_records_are_one_column() -> None:
    rows = to_columns(pool_of(list(parse_values('1 "a" {k:1}'))).scan()).read_all()
    assert sorted(rows["this"].to_pylist()) == ['"a"', "1", '{"k":1}']


def test_times_that_a_delta_table_cannot_hold_are_refused() -> None:
    pool = pool_of(list(parse_values("{k:1,t:2026-01-01T00:00:00.000000001Z}")))
    with pytest.raises(InvalidValue, match=r"the field 't': .* export to Parquet"):
        to_delta_columns(pool.scan()).read_all()


@pytest.mark.parametrize("others", ["", " {k:3,n:1} {k:4,n:2.5}"], ids=["alone", "with numbers to round"])
def test_the_field_with_a_number_that_json_lacks_is_named(others: str) -> None:
    pool = pool_of(list(parse_values('{k:1,a:"x",v:NaN} {k:2,a:7,v:"x"}' + others)))
    with pytest.raises(InvalidJson, match="the field 'v' becomes JSON text: nan cannot be written as JSON"):
        to_columns(pool.scan()).read_all()
