"""Schemas between Spark's JSON and Arrow; partition values between types and text; rows into a table's schema."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import partition_value
from lake_core.delta.action import Metadata
from lake_core.delta.conform import check_fits, check_nulls, conform_in, conform_out
from lake_core.delta.errors import (
    ConstraintViolation,
    CorruptDataFile,
    InvalidProperty,
    MalformedAction,
    MalformedMetadata,
    SchemaMismatch,
)
from lake_core.delta.properties import check_properties, checkpoint_interval, deleted_file_retention_ms, interval_ms
from lake_core.delta.schema import schema_from_arrow, schema_from_json, schema_to_json

LEAVES = st.sampled_from(
    [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
        pa.decimal128(1, 0),
        pa.decimal128(38, 38),
    ]
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda kind, null: pa.list_(pa.field("element", kind, nullable=null)), inner, st.booleans()),
        st.builds(
            lambda kind, null: pa.map_(
                pa.field("key", pa.string(), nullable=False), pa.field("value", kind, nullable=null)
            ),
            inner,
            st.booleans(),
        ),
        st.builds(
            lambda kinds: pa.struct([pa.field(f"f{i}", kind) for i, kind in enumerate(kinds)]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(TYPES, st.booleans()), min_size=1, max_size=4))
def test_schemas_survive_json_and_arrow(columns: list[tuple[pa.DataType, bool]]) -> None:
    arrow = pa.schema([pa.field(f"c{i}", kind, nullable=null) for i, (kind, null) in enumerate(columns)])
    delta = schema_from_arrow(arrow)
    assert schema_from_json(json.loads(schema_to_json(delta))) == delta
    assert delta.to_arrow() == arrow


def test_spark_and_we_spell_schemas_alike() -> None:
    text = (
        '{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"string","valueType":{"type":"array","elementType":'
        '"decimal(10,2)","containsNull":false},"valueContainsNull":true},"nullable":false,"metadata":{"comment":"é","delta.x":[1,{"y":null}]}}]}'
    )
    assert schema_to_json(schema_from_json(json.loads(text))) == text


@pytest.mark.parametrize(
    "body",
    [
        1,
        [],
        {"type": "enum"},
        {"type": "struct"},
        {"type": "map", "keyType": "string"},
        {"type": "array", "elementType": None},
    ],
)
def test_schemas_that_are_none(body: object) -> None:
    with pytest.raises(MalformedMetadata):
        schema_from_json({"type": "struct", "fields": [{"name": "a", "type": body}]})


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("", pa.string(), None),
        ("", pa.int32(), None),
        ("007", pa.int32(), 7),
        ("TRUE", pa.bool_(), True),
        ("-2342342.23423", pa.decimal128(20, 5), "-2342342.23423"),
        ("1.5", pa.decimal128(20, 5), "1.50000"),
        ("NaN", pa.float64(), "nan"),
        ("-Infinity", pa.float64(), "-inf"),
        ("2020-01-01 01:02:03.456789", pa.timestamp("us", tz="UTC"), "2020-01-01 01:02:03.456789+00:00"),
        ("2020-01-01T01:02:03.456789Z", pa.timestamp("us", tz="UTC"), "2020-01-01 01:02:03.456789+00:00"),
        ("2020-01-01 01:02:03+02:00", pa.timestamp("us", tz="UTC"), "2019-12-31 23:02:03+00:00"),
        ("2020-01-01", pa.timestamp("us", tz="UTC"), "2020-01-01 00:00:00+00:00"),
        ("2020-01-01 01:02:03", pa.timestamp("us"), "2020-01-01 01:02:03"),
        ("\u0001\u0002\u0003", pa.binary(), str(b"\x01\x02\x03")),
        ("\u0001\u00ff", pa.binary(), str(b"\x01\xc3\xbf")),
        ("😈", pa.binary(), str("😈".encode())),
    ],
)
def test_partition_values_of_other_writers(text: str, kind: pa.DataType, value: object) -> None:
    parsed = partition_value.parse(pa.array([text, None, text]), kind, "p")
    assert parsed.type == kind
    first, middle, last = parsed.to_pylist()
    assert middle is None
    assert str(first) == str(last) == str(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", pa.int32()),
        ("300", pa.int8()),
        ("2020-02-30", pa.date32()),
        ("1.234", pa.decimal128(5, 2)),
        ("soon", pa.timestamp("us", tz="UTC")),
        ("-0001-02-29", pa.date32()),
        ("+-4000-01-01", pa.date32()),
        ("+99999999999-01-01", pa.date32()),
        ("+294247-01-10T04:00:54.775808Z", pa.timestamp("us", tz="UTC")),
        ("a", pa.list_(pa.int64())),
    ],
)
def test_partition_values_that_are_none(text: str, kind: pa.DataType) -> None:
    with pytest.raises(MalformedAction, match="'p'"):
        partition_value.parse(pa.array([text]), kind, "p")


@pytest.mark.parametrize(
    ("text", "kind", "spelled"),
    [
        ("0000-12-31", pa.date32(), "0000-12-31"),
        ("+10000-02-29", pa.date32(), "10000-02-29"),
        ("-0004-02-29", pa.date32(), "-0004-02-29"),
        ("+2020-02-29", pa.date32(), "2020-02-29"),
        ("0000-12-31T23:59:59Z", pa.timestamp("us", tz="UTC"), "0000-12-31 23:59:59.000000Z"),
        ("9999-12-31T23:59:59-05:00", pa.timestamp("us", tz="UTC"), "10000-01-01 04:59:59.000000Z"),
        ("10000-01-01 01:59:59.999999", pa.timestamp("us", tz="UTC"), "10000-01-01 01:59:59.999999Z"),
        ("0000-01-01 00:00:00", pa.timestamp("us"), "0000-01-01 00:00:00.000000"),
        ("-9999-12-31 23:59:59.999999", pa.timestamp("us"), "-9999-12-31 23:59:59.999999"),
    ],
)
def test_partition_values_of_any_year_are_read(text: str, kind: pa.DataType, spelled: str) -> None:
    parsed = partition_value.parse(pa.array([text, None, "2020-01-02"]), kind, "p").cast(pa.string()).to_pylist()
    assert parsed[0] == spelled
    assert parsed[1] is None
    assert parsed[2].startswith("2020-01-02")


@pytest.mark.parametrize("kind", [pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32()])
def test_partition_values_outside_the_calendar_are_not_written(kind: pa.DataType) -> None:
    first, last = (
        (-62_135_596_800_000_000, 253_402_300_799_999_999) if pa.types.is_timestamp(kind) else (-719_162, 2_932_896)
    )
    numbers = pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    written = partition_value.serialize(pa.array([first, None, last], numbers).cast(kind))
    assert partition_value.parse(written, kind, "p").cast(numbers).to_pylist() == [first, None, last]
    for number in (first - 1, last + 1):
        with pytest.raises(ConstraintViolation, match="9999"):
            partition_value.serialize(pa.array([0, number], numbers).cast(kind))


def test_binary_partition_values_are_text() -> None:
    """As Spark, the kernels and deltalake read them: what is not UTF-8 would come back as other bytes."""
    values = pa.array([b"\x01\x02\x03", "é".encode(), b"\\u0061", b"", None])
    written = partition_value.serialize(values)
    assert written.to_pylist() == ["\u0001\u0002\u0003", "é", "\\u0061", None, None]
    assert partition_value.parse(written, pa.binary(), "p").to_pylist() == [
        b"\x01\x02\x03",
        "é".encode(),
        b"\\u0061",
        None,
        None,
    ]
    for value in (b"\xff\xfe", b"\x80", b"a\xed\xa0\x80"):
        with pytest.raises(ConstraintViolation, match="UTF-8"):
            partition_value.serialize(pa.array([b"a", value]))


NESTED = pa.struct(
    [pa.field("x", pa.int64()), pa.field("y", pa.list_(pa.struct([pa.field("z", pa.int64(), nullable=False)])))]
)


def test_nested_values_are_conformed_at_every_level() -> None:
    table = pa.schema([pa.field("s", NESTED), pa.field("m", pa.map_(pa.string(), pa.float64()))])
    narrow = pa.struct([pa.field("Y", pa.large_list(pa.struct([pa.field("Z", pa.int8())])))])
    data = pa.table(
        {
            "m": pa.array([[("k", 1.5)], None, []], pa.map_(pa.large_string(), pa.float32())),
            "s": pa.array([{"Y": [{"Z": 1}, None]}, {"Y": None}, None], narrow),
        }
    )
    check_fits(data.schema, table)
    for piece in (data, data.slice(1), pa.concat_tables([data.slice(2), data.slice(0, 1)])):
        got = conform_in(piece, table)
        assert got.schema == table
        got.validate(full=True)
    assert conform_in(data, table).to_pylist() == [
        {"s": {"x": None, "y": [{"z": 1}, None]}, "m": [("k", 1.5)]},
        {"s": {"x": None, "y": None}, "m": None},
        {"s": None, "m": []},
    ]
    bad = pa.table({"s": pa.array([{"Y": [{"Z": None}]}], narrow)})
    with pytest.raises(ConstraintViolation, match=r"s\.y\.element\.z"):
        check_nulls(conform_in(bad, table), table)


@pytest.mark.parametrize(
    ("data", "table", "fits"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.uint32(), pa.int64(), True),
        (pa.uint32(), pa.int32(), False),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.decimal128(12, 2), True),
        (pa.int32(), pa.decimal128(11, 2), False),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
        (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
        (pa.string(), pa.binary(), False),
        (pa.date32(), pa.timestamp("us", tz="UTC"), False),
        (pa.timestamp("s", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC"), True),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), True),
        (pa.null(), pa.string(), True),
    ],
)
def test_what_widens(data: pa.DataType, table: pa.DataType, fits: bool) -> None:
    from lake_core.delta.errors import UnsupportedType

    if fits:
        check_fits(pa.schema([("c", data)]), pa.schema([("c", table)]))
    else:
        with pytest.raises((SchemaMismatch, UnsupportedType)):
            check_fits(pa.schema([("c", data)]), pa.schema([("c", table)]))


def test_files_may_differ_from_the_table() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.timestamp("us", tz="UTC")), ("c", pa.string())])
    file = pa.table({"A": pa.array([1], pa.int8()), "b": pa.array([1_000_000], pa.timestamp("ns")), "extra": [1]})
    assert conform_out(file, table).to_pydict()["a"] == [1]
    with pytest.raises(CorruptDataFile, match="'a'"):
        conform_out(pa.table({"a": ["text"]}), table)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("interval 1 week", 604_800_000), ("2 days 3 hours", 183_600_000), ("INTERVAL 1.5 seconds", 1500), ("0 days", 0)],
)
def test_intervals(text: str, ms: int) -> None:
    assert interval_ms(text, "x") == ms


@pytest.mark.parametrize(
    "text",
    ["", "week", "1 month", "interval 1 month", "-1 days", "1 fortnight", "9" * 400 + " days", "99999999999 weeks"],
)
def test_intervals_that_are_none(text: str) -> None:
    with pytest.raises(InvalidProperty, match=r"delta\.x"):
        interval_ms(text, "delta.x")
    properties = {"delta.deletedFileRetentionDuration": text}
    assert deleted_file_retention_ms(properties) is None
    with pytest.raises(InvalidProperty):
        check_properties(properties)


@pytest.mark.parametrize("text", ["0", "-1", "ten", "", "1.5", "²"])
def test_checkpoint_intervals_that_are_none(text: str) -> None:
    assert checkpoint_interval({"delta.checkpointInterval": text}) == 10 == checkpoint_interval({})
    with pytest.raises(InvalidProperty):
        check_properties({"delta.checkpointInterval": text})


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("a", "")])
def test_names_that_cannot_stand_side_by_side(names: tuple[str, str]) -> None:
    inner = pa.struct([pa.field(name, pa.int64()) for name in names])
    for kind in (inner, pa.list_(inner), pa.map_(pa.string(), pa.struct([pa.field("x", inner)]))):
        with pytest.raises(SchemaMismatch):
            schema_from_arrow(pa.schema([("column", kind)]))
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("a", "a")]
    body = {"id": "x", "schemaString": json.dumps({"type": "struct", "fields": fields})}
    with pytest.raises(MalformedMetadata, match="twice"):
        Metadata.from_json(body)
