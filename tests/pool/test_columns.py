"""Columns of Arrow hold what values hold one by one, byte for byte."""

from __future__ import annotations

import random
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest

from lake_core.pool import types
from lake_core.pool.arrow import bodies, column_writer
from lake_core.pool.arrow.arrow_type import arrow_type, inferred_type
from lake_core.pool.arrow.bodies import Bodies, buffer_of
from lake_core.pool.arrow.column_reader import read_column
from lake_core.pool.arrow.column_writer import write_column
from lake_core.pool.arrow.columns import read_columns, values_of
from lake_core.pool.errors import InvalidType, InvalidValue, InvalidZng
from lake_core.pool.types import ArrayType, EnumType, MapType, NamedType, SetType, Type, UnionType, record
from lake_core.pool.value import Value
from lake_core.pool.value_batch import ValueBatch
from lake_core.pool.zng import writer
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zng.writer import ZngWriter, encode_values
from tests.pool.cases import zng_files
from tests.pool.random_values import random_record_type, random_type, random_value, seeds


def column_of(values: list[Value]) -> pa.Array:
    """Return values of one type as an array."""
    data = b"".join(value.body or b"" for value in values)
    sizes = np.array([-1 if value.body is None else len(value.body) for value in values], np.int64)
    starts = np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0)
    return read_column(values[0].type, Bodies(buffer_of(data), starts, sizes))


def values_in_order(data: bytes) -> list[Value]:
    """Return the values of a stream, read as columns."""
    rows = [
        (row, value)
        for column in read_columns(data)
        for row, value in zip(column.rows, values_of(column.type, column.values), strict=True)
    ]
    return [value for _, value in sorted(rows, key=lambda pair: pair[0])]


@pytest.mark.parametrize("seed", seeds(40, 300))
def test_random_values_become_a_column_and_come_back_byte_for_byte(seed: int) -> None:
    rng = random.Random(seed)
    type = random_type(rng)
    values = [random_value(rng, type) for _ in range(rng.randint(1, 40))]
    column = column_of(values)
    column.validate(full=True)
    assert column.type == arrow_type(type)
    assert values_of(type, column) == values


@pytest.mark.parametrize("seed", seeds(10, 60))
def test_streams_of_several_types_are_read_as_they_are_value_by_value(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [random_record_type(rng) for _ in range(3)]
    values = [random_value(rng, rng.choice(kinds)) for _ in range(60)]
    data = encode_values(values)
    assert values_in_order(data) == list(read_values(data)) == values


@pytest.mark.parametrize("large_value", [0, 1 << 30])
@pytest.mark.parametrize("threshold", [1, 100, 1000, 1 << 20])
def test_columns_are_written_into_the_same_bytes_as_values(
    threshold: int, large_value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(threshold)
    monkeypatch.setattr(writer, "_LARGE_VALUE", large_value)
    one_by_one, as_columns = BytesIO(), BytesIO()
    scalar, columnar = (ZngWriter(file, frame_threshold=threshold) for file in (one_by_one, as_columns))
    for _ in range(8):
        type = random_record_type(rng)
        values = [random_value(rng, type) for _ in range(50)]
        for value in values:
            scalar.write(value)
        ValueBatch.of_column(type, column_of(values)).write_to(columnar)
    scalar.end_stream()
    columnar.end_stream()
    assert as_columns.getvalue() == one_by_one.getvalue()
    assert columnar.position == scalar.position


@pytest.mark.parametrize("most_bodies", [1, 50, 1 << 18])
@pytest.mark.parametrize("seed", seeds(10, 100))
def test_texts_of_records_are_read_some_fields_at_a_time(
    seed: int, most_bodies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(bodies, "_COPIED_TOGETHER", most_bodies)
    texts = (types.STRING, types.BYTES, NamedType("name", types.STRING), types.INT64)
    inner = record(**{f"f{number}": rng.choice(texts) for number in range(8)})
    type = record(first=types.STRING, inner=inner, last=types.BYTES)
    values = [random_value(rng, type) for _ in range(rng.randint(1, 60))]
    column = column_of(values)
    column.validate(full=True)
    assert values_of(type, column) == values
    if column.null_count < len(column):
        assert values_of(inner, column.field("inner").slice(3)) == values_of(
            inner, column_of([value.field("inner") or Value(inner, None) for value in values]).slice(3)
        )


def test_text_that_is_not_utf_8_is_refused_in_every_field() -> None:
    type = record(a=types.BYTES, b=types.STRING, c=types.BYTES, d=types.STRING)
    with pytest.raises(InvalidZng, match="UTF-8"):
        column_of([Value(type, b"".join(map(tagged, (b"a", b"b", b"c", b"\xff"))))])
    whole = Value(type, b"".join(map(tagged, (b"\xff", "é".encode(), b"\xfe", b"d"))))
    assert values_of(type, column_of([whole])) == [whole]


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_columns_are_written_into_the_same_bytes_some_rows_at_a_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(column_writer, "_BLOCK_BYTES", rng.choice((1, 100, 1000)))
    monkeypatch.setattr(column_writer, "_BLOCK_ELEMENTS", rng.choice((1, 10, 100)))
    type = record(first=random_type(rng), second=random_record_type(rng), third=types.STRING)
    values = [random_value(rng, type) for _ in range(rng.randint(1, 60))]
    assert values_of(type, column_of(values)) == values
    assert values_of(type, column_of(values).slice(len(values))) == []


def test_slices_of_columns_are_written_as_what_they_show() -> None:
    rng = random.Random(5)
    for _ in range(30):
        type = random_type(rng)
        values = [random_value(rng, type) for _ in range(20)]
        assert values_of(type, column_of(values).slice(7, 9)) == values[7:16]


def test_files_of_every_lake_are_read_as_columns() -> None:
    for name, data in list(zng_files().items())[::9]:
        assert values_in_order(data) == list(read_values(data)), name


def test_values_of_more_than_a_hundred_and_twenty_seven_bytes_have_longer_tags() -> None:
    type = record(a=ArrayType(types.STRING))
    values = [Value.of(type, {"a": ["x" * size] * 3}) for size in (0, 42, 43, 126, 127, 128, 16_383, 16_384, 70_000)]
    assert values_of(type, column_of(values)) == values


@pytest.mark.parametrize(
    ("type", "bodies"),
    [
        (types.INT8, [b"\x00\x04"]),
        (types.UINT64, [b"\x00" * 9]),
        (types.FLOAT64, [b"\x00" * 4]),
        (types.BOOL, [b""]),
        (types.STRING, [b"ok", b"\xff"]),
        (types.IP, [b"\x00" * 5]),
        (types.NET, [b"\x0a\x00\x00\x01\xff\x00\x00\x00"]),
        (types.TYPE, [b"\x1f"]),
        (types.NULL, [b""]),
        (record(a=types.INT64), [b""]),
        (record(a=types.INT64), [b"\x00\x00"]),
        (record(a=types.STRING), [b"\x09ab"]),
        (ArrayType(types.STRING), [b"\x03a", b"b\x01"]),
        (ArrayType(types.STRING), [b"\x03a"]),
        (SetType(types.INT64), [b"\x02\x04\x02\x02"]),
        (MapType(types.INT64, types.INT64), [b"\x02\x04"]),
        (UnionType((types.INT64, types.STRING)), [b"\x02\x04\x01"]),
        (UnionType((types.INT64, types.STRING)), [b"\x00\x01"]),
        (UnionType((types.INT64, types.STRING)), [b"\x01\x01\x01"]),
        (EnumType(("a",)), [b"\x01"]),
    ],
)
def test_what_is_refused_value_by_value_is_refused_as_a_column(type: Type, bodies: list[bytes]) -> None:
    values = [Value(type, body) for body in bodies]
    with pytest.raises(InvalidZng):
        column_of(values)
    with pytest.raises(InvalidZng):
        [value.decode() for value in values]


def test_nulls_of_a_union_and_nulls_inside_of_it_are_told_apart() -> None:
    type = UnionType((types.INT64, types.STRING))
    values = [
        Value(type, None),
        Value(type, tagged(b"\x02") + tagged(None)),
        Value(type, tagged(b"") + tagged(b"\x02")),
    ]
    assert values_of(type, column_of(values)) == values
    assert column_of(values).to_pylist() == [None, None, 1]


def test_columns_have_the_stated_arrow_types() -> None:
    type = record(
        t=types.TIME,
        d=types.DURATION,
        i=types.IP,
        s=SetType(types.INT64),
        e=EnumType(("up",)),
        n=NamedType("port", types.UINT16),
    )
    assert arrow_type(type) == pa.struct(
        [
            ("t", pa.timestamp("ns", "UTC")),
            ("d", pa.duration("ns")),
            ("i", pa.string()),
            ("s", pa.list_(pa.int64())),
            ("e", pa.dictionary(pa.int32(), pa.string())),
            ("n", pa.uint16()),
        ]
    )


def test_sets_and_maps_of_other_origin_are_sorted_by_their_bytes() -> None:
    lists = pa.array([["bb", "a", "c", "a"], None, [], ["z"]])
    assert [value.decode() for value in values_of(SetType(types.STRING), lists)] == [["a", "c", "bb"], None, [], ["z"]]
    maps = pa.array([[("b", 1), ("a", 2)], None], pa.map_(pa.string(), pa.int64()))
    assert [value.decode() for value in values_of(MapType(types.STRING, types.INT64), maps)] == [
        [("a", 2), ("b", 1)],
        None,
    ]


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([1, None], pa.int32()), types.INT64),
        (pa.array(["a"], pa.large_string()), types.STRING),
        (pa.array([b"a"], pa.large_binary()), types.BYTES),
        (pa.array([1], pa.timestamp("us")), types.TIME),
        (pa.array([1], pa.date32()), types.TIME),
        (pa.array([[1]], pa.large_list(pa.int64())), ArrayType(types.INT64)),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), ArrayType(types.INT64)),
        (pa.array(["up"]), EnumType(("down", "up"))),
        (pa.array(["up"]).dictionary_encode(), EnumType(("down", "up"))),
    ],
)
def test_columns_of_other_arrow_types_are_cast(array: pa.Array, type: Type) -> None:
    assert all(
        value.body is not None or item is None
        for value, item in zip(values_of(type, array), array.to_pylist(), strict=True)
    )


@pytest.mark.parametrize(
    ("array", "type"),
    [
        (pa.array([1.5]), types.INT64),
        (pa.array([300]), types.INT8),
        (pa.array(["x"]), types.IP),
        (pa.array(["x="]), types.TYPE),
        (pa.array([1]), types.NULL),
        (pa.array([1]), ArrayType(types.INT64)),
        (pa.array([1]), UnionType((types.INT64, types.STRING))),
        (pa.array([{"b": 1}]), record(a=types.INT64)),
        (pa.array([[("b", 1), ("b", 3)]], pa.map_(pa.string(), pa.int64())), MapType(types.STRING, types.INT64)),
        (pa.array(["left"]), EnumType(("down", "up"))),
    ],
)
def test_columns_that_do_not_fit_are_refused(array: pa.Array, type: Type) -> None:
    with pytest.raises(InvalidValue):
        write_column(type, array)


def test_a_union_of_too_many_types_has_no_arrow_type() -> None:
    with pytest.raises(InvalidType, match="one by one"):
        arrow_type(UnionType(tuple(NamedType(f"t{number}", types.INT64) for number in range(127))))


@pytest.mark.parametrize(
    "type", [types.INT8, types.TIME, types.DURATION, types.BYTES, ArrayType(record(a=types.STRING)), types.NULL]
)
def test_a_column_that_does_not_say_its_type_gets_the_type_of_its_like(type: Type) -> None:
    assert inferred_type(arrow_type(type)) == type


def test_a_column_without_a_zed_type_is_refused() -> None:
    with pytest.raises(InvalidType, match="cast the column"):
        inferred_type(pa.decimal128(10))
