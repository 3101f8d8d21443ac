"""Shapes of a stream: tables of one type each, and one table of all."""

from __future__ import annotations

import json
import random
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.pool import types
from lake_core.pool.arrow.columns import values_of
from lake_core.pool.arrow.fuse import fuse
from lake_core.pool.arrow.shapes import shapes
from lake_core.pool.arrow.table import from_table
from lake_core.pool.errors import InvalidJson, InvalidType, InvalidValue
from lake_core.pool.fused_type import JSON, fused_type
from lake_core.pool.ndjson import format_json
from lake_core.pool.types import ErrorType, NamedType, RecordType, Type, UnionType, record
from lake_core.pool.value import Value
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.writer import ZngWriter, encode_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_type, parse_values
from lake_core.pool.zson.type_text import format_type
from tests.pool.cases import zng_files
from tests.pool.random_values import is_finite, random_record_type, random_type, random_value, seeds
from tests.pool.tables import read_tables, write_table


def zng(zson: str) -> bytes:
    """Return values as ZNG."""
    return encode_values(parse_values(zson))


def written(table: pa.Table) -> list[Value]:
    """Return the values that a table is written as."""
    file = BytesIO()
    with ZngWriter(file) as writer:
        write_table(writer, table)
    return list(read_values(file.getvalue()))


def test_shapes_are_the_distinct_types_with_their_counts() -> None:
    data = zng('{b:1} {a:"x"} {b:2} 1 {b:3}') + zng('{a:"y"}')
    assert [(format_type(shape.type), shape.count) for shape in shapes(data)] == [
        ("{b:int64}", 3),
        ("{a:string}", 2),
        ("int64", 1),
    ]


def test_a_table_of_each_type_has_its_fields_as_columns() -> None:
    tables = read_tables(zng('{a:1,b:"x"} {c:1.5} {a:2,b:null(string)}'))
    assert [table.to_pydict() for table in tables.values()] == [{"a": [1, 2], "b": ["x", None]}, {"c": [1.5]}]


@pytest.mark.parametrize(
    "zson",
    [
        "1 2",
        "{} {}",
        "null({a:int64}) {a:1}",
        "{this:1} {this:2}",
        "null({this:int64})",
        "error({a:1})",
        "{a:1}(=named)",
    ],
)
def test_values_without_columns_of_their_own_come_back_too(zson: str) -> None:
    values = list(parse_values(zson))
    (table,) = read_tables(encode_values(values)).values()
    assert table.num_rows == len(values)
    assert written(table) == values


@pytest.mark.parametrize("seed", seeds(15, 100))
def test_tables_of_random_values_come_back_as_what_they_were(seed: int) -> None:
    rng = random.Random(seed)
    type = rng.choice((random_record_type, random_type))(rng)
    values = [random_value(rng, type) for _ in range(20)]
    (table,) = read_tables(encode_values(values)).values()
    assert written(table) == values


def test_every_table_of_every_file_comes_back() -> None:
    for name, data in list(zng_files().items())[::15]:
        for type, table in read_tables(data).items():
            assert written(table) == [value for value in read_values(data) if value.type == type], name


def test_tables_keep_their_types_through_parquet() -> None:
    values = list(
        parse_values(
            "{i:10.0.0.1,s:|[1,2]|,p:80(port=uint16),t:2024-01-01T00:00:00Z,d:1h,e:%up(enum(up,down)),m:|{1:2}|}(=row)"
        )
    )
    (table,) = read_tables(encode_values(values)).values()
    file = BytesIO()
    pq.write_table(table, file)
    assert written(pq.read_table(BytesIO(file.getvalue()))) == values


def test_columns_of_a_table_can_be_dropped_and_added() -> None:
    (table,) = read_tables(zng("{i:10.0.0.1,n:1(uint8)}(=row)")).values()
    changed = table.select(["i"]).append_column("x", pa.array([1.5]))
    assert written(changed) == list(parse_values("{i:10.0.0.1,x:1.5}"))


def test_tables_of_other_origin_are_written_with_the_types_that_are_like_theirs() -> None:
    table = pa.table(
        {
            "a": pa.chunked_array([[1], [2, None]], pa.int32()),
            "s": pa.array([{"x": 1.5}, None, {"x": None}]),
            "d": pa.array(["x", "y", None]).dictionary_encode(),
            "m": pa.array([None, [("b", 2), ("a", 3)], []], pa.map_(pa.string(), pa.int64())),
            "f": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        }
    )
    expected = [
        '{a:1(int32),s:{x:1.5},d:"x",m:null(|{string:int64}|),f:[1,2]}',
        '{a:2(int32),s:null({x:float64}),d:"y",m:|{"a":3,"b":2}|,f:null([int64])}',
        "{a:null(int32),s:{x:null(float64)},d:null(string),m:|{}|(|{string:int64}|),f:[3,4]}",
    ]
    assert [format_value(value) for value in written(table)] == expected
    assert [format_value(value) for value in written(table.slice(1, 1))] == expected[1:2]
    assert written(table.slice(0, 0)) == []


def test_columns_that_no_longer_have_the_stated_type_are_refused() -> None:
    (table,) = read_tables(zng("{i:10.0.0.1}")).values()
    with pytest.raises(InvalidValue):
        written(table.set_column(0, table.schema.field(0), pa.array(["nowhere"])))
    with pytest.raises(InvalidValue, match="remove it"):
        from_table(table.replace_schema_metadata({b"zed.type": b"{"}))
    with pytest.raises(InvalidType, match="cast the column"):
        from_table(pa.table({"a": pa.array([1], pa.decimal128(5))}))


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("int8", "int64", "int64"),
        ("uint8", "int8", "int16"),
        ("uint32", "int8", "int64"),
        ("uint64", "int8", "(uint64,int8)"),
        ("uint16", "float32", "float32"),
        ("int32", "float32", "float64"),
        ("int64", "float64", "(int64,float64)"),
        ("float16", "float64", "float64"),
        ("null", "string", "string"),
        ("port=uint16", "port=uint16", "port=uint16"),
        ("port=uint16", "uint16", "uint16"),
        ("time", "int64", "(int64,time)"),
        ("{a:int8}", "{b:string,a:int64}", "{a:int64,b:string}"),
        ("[int8]", "[int64]", "[int64]"),
        ("|{string:int64}|", "|{string:string}|", "|{string:(int64,string)}|"),
        ("(int64,string)", "ip", "(int64,string,ip)"),
        ("(int8,{a:int64})", "{b:int64}", "(int8,{a:int64,b:int64})"),
        ("[int64]", "|[int64]|", "([int64],|[int64]|)"),
        ("error(string)", "error(null)", "error(string)"),
    ],
)
def test_types_have_a_common_type(one: str, other: str, common: str) -> None:
    assert format_type(fused_type(parse_type(one), parse_type(other), "union")) == common


def test_fused_rows_keep_their_order_and_have_null_for_what_they_lack() -> None:
    table = fuse(zng('{a:1} {b:"x"} {a:2,c:{d:1}} {c:{e:true}}'))
    assert table.to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": "x", "c": None},
        {"a": 2, "b": None, "c": {"d": 1, "e": None}},
        {"a": None, "b": None, "c": {"d": None, "e": True}},
    ]


def test_conflicting_types_become_a_union_or_json_text() -> None:
    data = zng('{a:1} {a:"x"} {a:[1]} {a:null}')
    union, text = fuse(data), fuse(data, conflicts="json")
    assert from_table(union)[0] == record(a=parse_type("(int64,string,[int64])"))
    assert union.column("a").to_pylist() == [1, "x", [1], None]
    assert from_table(text)[0] == record(a=JSON)
    assert text.column("a").to_pylist() == ["1", '"x"', "[1]", None]


def test_maps_and_sets_are_fused_by_what_they_hold() -> None:
    table = fuse(zng('{a:|{"x":1}|,b:|[1(uint8)]|} {a:|{"y":"z"}|,b:|[1000]|} {a:|{}|}'))
    assert from_table(table)[0] == record(a=parse_type("|{string:(int64,string)}|"), b=parse_type("|[int64]|"))
    assert table.to_pylist() == [
        {"a": [{"key": "x", "value": 1}], "b": [1]},
        {"a": [{"key": "y", "value": "z"}], "b": [1000]},
        {"a": [], "b": None},
    ]


def test_integers_become_floats_only_where_they_are_exact() -> None:
    assert fuse(zng("{a:1} {a:1.5}")).schema.field("a").type == pa.float64()
    table = fuse(zng(f"{{a:{(1 << 53) + 1}}} {{a:1.5}}"))
    assert from_table(table)[0] == record(a=UnionType((types.INT64, types.FLOAT64)))
    assert table.column("a").to_pylist() == [(1 << 53) + 1, 1.5]


def test_numbers_without_a_form_in_json_are_refused_as_json_text() -> None:
    with pytest.raises(InvalidJson):
        fuse(zng('{a:NaN} {a:"x"}'), conflicts="json")


def test_an_empty_stream_is_an_empty_table() -> None:
    assert fuse(b"").num_rows == 0
    assert shapes(b"") == []


@pytest.mark.parametrize("conflicts", ["union", "json"])
@pytest.mark.parametrize("seed", seeds(8, 100))
def test_fused_values_say_what_they_said_before(seed: int, conflicts: Any) -> None:
    rng = random.Random(seed)
    # The text of a map's keys changes with their type.
    kinds = [type for type in (random_record_type(rng, 2) for _ in range(8)) if "|{" not in format_type(type)]
    values = [value for value in (random_value(rng, rng.choice(kinds)) for _ in range(30)) if is_finite(value)]
    table = fuse(encode_values(values), conflicts=conflicts)
    type, arrays = from_table(table)
    fused = [value for array in arrays for value in values_of(type, array)]
    assert [said(value) for value in fused] == [said(value) for value in values]


def said(value: Value) -> Any:
    """Return what a value says: its JSON without null fields, JSON text in it as what that says."""
    return without_nulls(value.type, json.loads(format_json(value)))


def without_nulls(type: Type, item: Any) -> Any:
    """Return an item of JSON without null fields, and elements in one order. JSON text is expanded."""
    while isinstance(type, NamedType) and type != JSON:
        type = type.inner
    if isinstance(item, str) and type == JSON:
        return without_nulls(types.NULL, json.loads(item))
    if isinstance(item, dict):
        inner = {each.name: each.type for each in type.fields} if isinstance(type, RecordType) else {}
        if isinstance(type, ErrorType):
            inner = {"error": type.inner}
        return {
            name: without_nulls(inner.get(name, types.NULL), each) for name, each in item.items() if each is not None
        }
    if isinstance(item, list):
        element = getattr(type, "element", types.NULL)
        return sorted(
            (without_nulls(element, each) for each in item), key=lambda each: json.dumps(each, sort_keys=True)
        )
    return item
