"""ZNG, value by value."""

from __future__ import annotations

import ipaddress
import random
import struct
from io import BytesIO
from typing import Any

import cramjam
import pytest

from lake_core.pool import types
from lake_core.pool.errors import InvalidType, InvalidValue, InvalidZng
from lake_core.pool.types import ArrayType, EnumType, ErrorType, MapType, NamedType, SetType, Type, UnionType, record
from lake_core.pool.value import Tagged, Value
from lake_core.pool.zng.frame import FrameType, frame, read_frames
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.writer import ZngWriter, encode_values
from lake_core.varint import uvarint
from tests.pool.cases import damaged_files, zng_files

NUMBER = UnionType((types.INT64, types.STRING))
EVERY_TYPE: list[tuple[Type, Any]] = [
    *((type, number) for type in types.UNSIGNED for number in (0, 1, 255, (1 << types.UNSIGNED[type]) - 1)),
    *(
        (type, number)
        for type, bits in types.SIGNED.items()
        for number in (0, -1, 64, -(1 << bits - 1), (1 << bits - 1) - 1)
    ),
    *((type, number) for type in types.FLOATS for number in (0.0, -0.0, 1.5, float("inf"), float("-inf"))),
    (types.BOOL, True),
    (types.BOOL, False),
    (types.BYTES, b""),
    (types.BYTES, bytes(range(256))),
    (types.STRING, ""),
    (types.STRING, "snow ☃"),
    (types.IP, ipaddress.ip_address("10.0.0.1")),
    (types.IP, ipaddress.ip_address("2001:db8::1")),
    (types.NET, ipaddress.ip_network("10.0.0.0/8")),
    (types.NET, ipaddress.ip_network("0.0.0.0/0")),
    (types.NET, ipaddress.ip_network("2001:db8::/33")),
    (types.TYPE, record(a=NamedType("port", types.UINT16), b=ArrayType(NamedType("port", types.UINT16)))),
    (record(), {}),
    (record(a=types.INT64, b=record(c=types.STRING)), {"a": 1, "b": {"c": None}}),
    (ArrayType(types.INT64), [1, None, 3]),
    (SetType(types.STRING), ["a", "b", "ab"]),
    (MapType(types.STRING, types.INT64), [("a", 1), ("b", None)]),
    (NUMBER, Tagged(0, 7)),
    (NUMBER, Tagged(1, None)),
    (EnumType(("up", "down")), "down"),
    (ErrorType(types.STRING), "missing"),
    (NamedType("port", types.UINT16), 80),
]


@pytest.mark.parametrize(("type", "value"), EVERY_TYPE)
def test_a_value_of_every_type_comes_back(type: Type, value: Any) -> None:
    assert Value.of(type, value).decode() == value


@pytest.mark.parametrize("type", dict.fromkeys(type for type, _ in EVERY_TYPE))
def test_null_of_every_type_comes_back(type: Type) -> None:
    (read,) = read_values(encode_values([Value.of(type, None)]))
    assert read == Value(type, None)


def test_values_of_every_type_share_a_stream() -> None:
    values = [Value.of(type, value) for type, value in EVERY_TYPE]
    assert list(read_values(encode_values(values))) == values


@pytest.mark.parametrize(
    ("number", "body"),
    [
        (0, b""),
        (1, b"\x02"),
        (-1, b"\x03"),
        (63, b"\x7e"),
        (-128, b"\x01\x01"),
        (-(1 << 63), b"\x01"),
        ((1 << 63) - 1, b"\xfe" + b"\xff" * 7),
    ],
)
def test_signed_integers_have_the_bytes_of_the_format(number: int, body: bytes) -> None:
    assert Value.of(types.INT64, number).body == body


def test_a_stream_has_the_bytes_of_the_format() -> None:
    data = encode_values([Value.of(record(a=types.INT64), {"a": 1})], compress=False)
    assert data == b"\x05\x00" + b"\x00\x01\x01a\x09" + b"\x14\x00" + b"\x1e\x03\x02\x02" + b"\xff"


def test_sets_and_maps_are_sorted_by_their_bytes_and_hold_nothing_twice() -> None:
    assert Value.of(SetType(types.STRING), ["bb", "c", "a", "c"]).decode() == ["a", "c", "bb"]
    assert Value.of(MapType(types.STRING, types.INT64), [("b", 1), ("a", 2)]).decode() == [("a", 2), ("b", 1)]


def test_a_map_with_a_key_twice_is_refused() -> None:
    with pytest.raises(InvalidValue, match="duplicate keys"):
        Value.of(MapType(types.STRING, types.INT64), [("b", 1), ("b", 3)])


def test_the_types_of_a_union_have_one_order() -> None:
    assert UnionType((types.STRING, record(), types.INT64)) == UnionType((types.INT64, types.STRING, record()))
    assert UnionType((types.STRING, types.INT64)).types == (types.INT64, types.STRING)


def test_types_of_one_structure_are_equal_and_names_tell_them_apart() -> None:
    assert record(a=ArrayType(types.INT64)) == record(a=ArrayType(types.INT64))
    assert hash(record(a=ArrayType(types.INT64))) == hash(record(a=ArrayType(types.INT64)))
    assert NamedType("a", types.INT64) != NamedType("b", types.INT64)
    assert ArrayType(types.INT64) != SetType(types.INT64)


def test_a_type_that_is_defined_twice_has_one_id() -> None:
    array = b"\x01\x09"
    data = frame(FrameType.TYPES, array + array + b"\x02\x09", compress=False) + frame(
        FrameType.VALUES, b"\x1f\x00", compress=False
    )
    assert list(read_values(data)) == [Value(SetType(types.INT64), None)]


def test_types_are_forgotten_at_the_end_of_a_stream() -> None:
    first = encode_values([Value.of(record(a=types.INT64), {"a": 1})])
    values = frame(FrameType.VALUES, b"\x1e\x03\x02\x02", compress=False)
    assert len(list(read_values(first[:-1] + values))) == 2
    with pytest.raises(InvalidZng, match="does not define a type with the id 30"):
        list(read_values(first + values))


def test_each_stream_of_a_file_can_be_read_alone() -> None:
    file = BytesIO()
    type = record(a=types.INT64)
    with ZngWriter(file) as writer:
        writer.write(Value.of(type, {"a": 1}))
        writer.end_stream()
        middle = writer.position
        writer.write(Value.of(type, {"a": 2}))
    assert list(read_values(file.getvalue()[middle:])) == [Value.of(type, {"a": 2})]
    assert len(list(read_values(file.getvalue()))) == 2


def test_nothing_is_written_for_an_empty_stream() -> None:
    assert encode_values([]) == b""


def test_control_messages_are_skipped() -> None:
    one = encode_values([Value.of(types.INT64, 1)])
    control = frame(FrameType.CONTROL, b"\x03hello", compress=False)
    assert list(read_values(control + one + control + one)) == [Value.of(types.INT64, 1)] * 2


def test_frames_are_written_when_they_are_full_and_compressed_where_that_is_smaller() -> None:
    value = Value.of(types.STRING, "x" * 1000)
    frames = list(read_frames(encode_values([value] * 1100)))
    assert [type for type, _ in frames] == [FrameType.VALUES] * 3 + [None]
    assert len(encode_values([value] * 1100)) < 10_000
    noise = random.Random(0).randbytes(1000)
    assert noise in encode_values([Value.of(types.BYTES, noise)])


def test_every_file_of_every_lake_is_read_and_its_values_come_back() -> None:
    count = 0
    for name, data in zng_files().items():
        for value in read_values(data):
            assert Value.of(value.type, value.decode()) == value, name
            count += 1
    assert count > 6000


def test_every_file_of_every_lake_is_written_again_frame_by_frame() -> None:
    # Files of search indexes are cut into smaller frames.
    files = {name: data for name, data in zng_files().items() if "/index/" not in name}
    assert len(files) > 1000
    for name, data in files.items():
        assert frames_written_again(data) == list(read_frames(data)), name


def frames_written_again(data: bytes) -> list[Any]:
    """Return the frames that the values of a file are written as."""
    file = BytesIO()
    writer = ZngWriter(file)
    for stream in streams(data):
        for value in read_values(stream):
            writer.write(value)
        if stream.endswith(b"\xff"):
            writer.end_stream()
    writer.flush()
    return list(read_frames(file.getvalue()))


def streams(data: bytes) -> list[bytes]:
    """Return the streams of a file, uncompressed, each with its end."""
    parts = [b""]
    for type, payload in read_frames(data):
        parts[-1] += b"\xff" if type is None else frame(type, payload, compress=False)
        if type is None:
            parts.append(b"")
    return [part for part in parts if part]


def test_damaged_files_are_refused() -> None:
    for data in damaged_files().values():
        with pytest.raises(InvalidZng, match="the stream ends inside a frame"):
            list(read_values(data))


LZ4 = bytes(cramjam.lz4.compress_block(b"\x09\x02\x02" * 1000, store_size=False))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x00", "another version"),
        (b"\x30\x00", "unknown type 3"),
        (b"\x1f", "ends inside the length of a frame"),
        (b"\x1f" + b"\x80" * 9, "more than 63 bits"),
        (b"\x1f\x00ab", "ends inside a frame"),
        (b"\x10" + uvarint(1 << 40), "more than the 1073741824"),
        (frame(FrameType.VALUES, b"\x09", compress=False), "not have a valid tag"),
        (frame(FrameType.VALUES, b"\x09\x09ab", compress=False), "extends past the end"),
        (frame(FrameType.VALUES, b"\x04\x01", compress=False), "a type with the id 4"),
        (frame(FrameType.TYPES, b"\x09", compress=False), "unknown code 9"),
        (frame(FrameType.TYPES, b"\x01\x1e", compress=False), "a type with the id 30"),
        (frame(FrameType.TYPES, b"\x00\x7f", compress=False), "declares 127 items"),
        (frame(FrameType.TYPES, b"\x04\x00", compress=False), "a union has no types"),
        (frame(FrameType.TYPES, b"\x00\x02\x01a\x09\x01a\x09", compress=False), "two fields named 'a'"),
        (frame(FrameType.TYPES, b"\x07\x01\xff\x09", compress=False), "not UTF-8"),
        (
            frame(
                FrameType.TYPES, b"".join(b"\x01" + uvarint(9 if not n else 29 + n) for n in range(200)), compress=False
            ),
            "nested more than",
        ),
        (b"\x53\x00\x01\x05a", "unknown format 01"),
        (b"\x54\x00\x00" + uvarint(9999) + b"a", "cannot hold"),
    ],
)
def test_damage_is_named(data: bytes, why: str) -> None:
    with pytest.raises(InvalidZng, match=why):
        list(read_values(data))


@pytest.mark.parametrize("size", [2999, 3001])
def test_a_frame_must_hold_as_many_bytes_as_it_declares(size: int) -> None:
    block = b"\x00" + uvarint(size) + LZ4
    with pytest.raises(InvalidZng, match=str(size)):
        list(read_frames(bytes((0x50 | len(block) & 15,)) + uvarint(len(block) >> 4) + block))


@pytest.mark.parametrize(
    ("type", "body"),
    [
        (types.INT8, b"\x00\x04"),
        (types.UINT64, b"\x00" * 9),
        (types.FLOAT64, b"\x00" * 4),
        (types.BOOL, b""),
        (types.STRING, b"\xff"),
        (types.IP, b"\x00" * 5),
        (types.NET, b"\x0a\x00\x00\x00\xff\x00\xff\x00"),
        (types.NET, b"\x0a\x00\x00\x01\xff\x00\x00\x00"),
        (types.TYPE, b"\x1f"),
        (types.TYPE, b"\x1f" * 1000),
        (types.TYPE, b"\x26\x01a"),
        (types.TYPE, b"\x09\x09"),
        (types.NULL, b""),
        (record(a=types.INT64), b""),
        (record(a=types.INT64), b"\x00\x00"),
        (SetType(types.INT64), b"\x02\x04\x02\x02"),
        (MapType(types.INT64, types.INT64), b"\x02\x04"),
        (NUMBER, b"\x02\x04\x01"),
        (NUMBER, b"\x00\x01"),
        (EnumType(("a",)), b"\x01"),
    ],
)
def test_bodies_that_are_not_valid_for_their_type_are_refused(type: Type, body: bytes) -> None:
    with pytest.raises(InvalidZng):
        Value(type, body).decode()


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (types.INT8, 128),
        (types.INT64, True),
        (types.UINT8, -1),
        (types.FLOAT32, 1e300),
        (types.STRING, b"a"),
        (types.STRING, "\ud800"),
        (types.IP, "10.0.0.1"),
        (types.NULL, 0),
        (record(a=types.INT64), {"b": 1}),
        (ArrayType(types.STRING), "abc"),
        (NUMBER, 1),
        (EnumType(("a",)), "b"),
    ],
)
def test_objects_that_do_not_fit_a_type_are_refused(type: Type, value: Any) -> None:
    with pytest.raises(InvalidValue):
        Value.of(type, value)


def test_a_named_type_cannot_have_the_name_of_a_primitive_type() -> None:
    with pytest.raises(InvalidType, match="choose another name"):
        NamedType("int64", types.STRING)


def test_a_type_that_doubles_with_each_level_is_refused_before_it_is_walked() -> None:
    type: Type = types.INT64
    with pytest.raises(InvalidType, match="more than 200000"):
        for _ in range(90):
            type = record(a=type, b=type)


def test_the_value_at_a_path_is_found_below_names_and_unions() -> None:
    inner = record(b=types.INT64)
    type = record(a=NamedType("inner", UnionType((inner, types.INT64))))
    tag = UnionType((inner, types.INT64)).types.index(inner)
    value = Value.of(type, {"a": Tagged(tag, {"b": 5})})
    assert value.field("a", "b") == Value.of(types.INT64, 5)
    assert value.field("a", "c") is None
    assert value.field("x") is None
    assert value.field() is value


def test_payloads_of_not_a_number_survive() -> None:
    body = struct.pack("<Q", 0x7FF8_0000_0000_1234)
    (read,) = read_values(encode_values([Value(types.FLOAT64, body)]))
    assert read.body == body
