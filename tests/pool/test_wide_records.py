"""Records of many fields, which are read in fewer steps, hold what they hold one by one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lake_core.pool import PoolLake, types
from lake_core.pool.arrow import bodies as bodies_module
from lake_core.pool.arrow.columns import read_columns, read_encoded_columns, values_of
from lake_core.pool.arrow.outline import Outlines
from lake_core.pool.arrow.shapes import shapes
from lake_core.pool.errors import DamagedLake, InvalidZng
from lake_core.pool.types import ArrayType, EnumType, NamedType, RecordType, Type, UnionType, record
from lake_core.pool.value import Value
from lake_core.pool.zng.frame import FrameType, frame
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zng.writer import encode_values
from lake_core.store import MemoryStore
from lake_core.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

_INNER = record(id=types.UINT64, login=types.STRING, url=types.STRING, admin=types.BOOL)
_WIDE = record(
    k=types.INT64,
    title=types.STRING,
    empty=types.STRING,
    never=types.STRING,
    raw=types.BYTES,
    user=_INNER,
    nobody=_INNER,
    sometimes=NamedType("person", _INNER),
    no_enum=record(e=EnumType(("a", "b")), u=UnionType((types.INT64, types.STRING)), l=ArrayType(types.STRING)),
    at=types.TIME,
    body=types.STRING,
    nothing=types.INT32,
    last=types.STRING,
)


def rows(count: int) -> list[dict[str, Any]]:
    rng = random.Random(count)
    users = [{"id": id, "login": "u" * rng.randrange(20), "url": f"/{id}", "admin": id % 2 == 0} for id in range(9)]
    return [
        {
            "k": number,
            # Some tags of one column take two bytes, or three.
            "title": rng.choice(["", "é", "t" * 126, "t" * 127, "t" * 200, None]),
            "empty": "",
            "never": None,
            "raw": b"\xff" * (number % 3),
            "user": rng.choice(users),
            "nobody": None,
            "sometimes": rng.choice([None, *users]),
            "no_enum": None,
            "at": None,
            "body": "b" * rng.choice([0, 5, 20_000]) if number % 50 == 0 else None,
            "nothing": None,
            "last": rng.choice(["x", None, "ü"]),
        }
        for number in range(count)
    ]


def values_of_rows(count: int, type: Type = _WIDE) -> list[Value]:
    return [Value.of(type, row) for row in rows(count)]


@pytest.mark.parametrize("count", [1, 2, 600])
@pytest.mark.parametrize("together", [1, 3000, 1 << 18])
def test_records_whose_fields_have_tags_of_any_size_are_read(
    count: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_module, "_COPIED_TOGETHER", together)
    values = values_of_rows(count)
    (column,) = read_columns(encode_values(values))
    column.values.validate(full=True)
    expected = [value.decode() for value in values]
    assert [{**row, "at": None} for row in column.values.to_pylist()] == [{**row, "at": None} for row in expected]
    assert column.values.field("at").null_count == count


@pytest.mark.parametrize("name", ["title", "user", "last"])
def test_fields_of_some_names_are_read(name: str) -> None:
    (column,) = read_columns(encode_values(values_of_rows(300)), [name])
    assert column.values.to_pylist() == [{name: row[name]} for row in rows(300)]


def encoded(bodies: list[bytes], type: RecordType) -> bytes:
    """Return records of some bodies as a stream."""
    payload = b"".join(b"\x1e" + tagged(body) for body in bodies)
    return definition(type) + frame(FrameType.VALUES, payload, compress=False) + b"\xff"


def definition(type: RecordType) -> bytes:
    """Return the frame that gives a record type of primitive types the id 30."""
    null = frame(FrameType.VALUES, b"\x1e\x00", compress=False) + b"\xff"
    return encode_values([Value(type, None)], compress=False).removesuffix(null)


_THREE = record(a=types.STRING, b=types.INT64, c=types.STRING)
_GOOD = tagged(b"a" * 3) + tagged(b"\x02") + tagged(b"c" * 150)


def test_the_bodies_of_a_stream_are_those_that_were_given() -> None:
    (column,) = read_columns(encoded([_GOOD] * 3, _THREE))
    assert column.values.to_pylist() == [{"a": "aaa", "b": 1, "c": "c" * 150}] * 3


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (tagged(b"a") + tagged(b"\x02") + b"\x05ccc", "extends past the end of its container"),
        (tagged(b"a") + tagged(b"\x02") + b"\xff\x01ccc", "extends past the end of its container"),
        (tagged(b"a") + b"\x7f\x02" + tagged(b"c"), "extends past the end of its container|ends before its last"),
        (b"\x7fa" + tagged(b"\x02") + tagged(b"c"), "extends past the end of its container|ends before its last"),
        (tagged(b"a") + tagged(b"\x02"), "a container ends before its last value"),
        (b"", "a container ends before its last value"),
        (tagged(b"a") + tagged(b"\x02") + b"\xff" * 11, "more than 62 bits"),
        (b"\xff" * 7 + b"\x3f" + tagged(b"\x02") + tagged(b"c"), "extends past the end|ends before its last"),
        (tagged(b"a") + tagged(b"\x02") + tagged(b"c") + b"\x00", "a record of 3 fields has more than 3 values"),
        (tagged(b"a") + tagged(b"\x02" * 9) + tagged(b"c"), "an integer has 9 bytes"),
        (tagged(b"\xff") + tagged(b"\x02") + tagged(b"c"), "a string is not UTF-8"),
    ],
)
@pytest.mark.parametrize("position", [0, 7, 14])
def test_a_record_that_is_damaged_in_any_field_is_refused(bad: bytes, message: str, position: int) -> None:
    bodies = [_GOOD] * 15
    bodies[position] = bad
    with pytest.raises(InvalidZng, match=message):
        list(read_columns(encoded(bodies, _THREE)))


def test_sizes_of_values_are_kept_for_the_next_reading() -> None:
    data = encode_values(values_of_rows(600)) + encode_values([Value.of(types.INT64, number) for number in range(3)])
    outlines = Outlines()
    shapes(data, lambda starts, end: outlines.add("s", starts, end))
    frames = outlines.frames("s")
    assert [len(sizes) for sizes in frames] == [600, 3]
    assert frames[1].dtype == np.uint8
    expected = [(column.type, column.values.to_pylist()) for column in read_columns(data)]
    assert [(column.type, column.values.to_pylist()) for column in read_columns(data, None, frames)] == expected
    outlines.forget("s")
    assert outlines.frames("s") == []


def test_sizes_of_values_that_are_kept_take_a_bounded_amount_of_memory() -> None:
    outlines = Outlines(10)
    starts = np.arange(0, 18, 3)
    outlines.add("a", starts, 18)
    outlines.add("a", starts, 18)
    outlines.add("a", starts[:2], 6)
    outlines.add("b", starts[:2], 6)
    assert [sizes.tolist() for sizes in outlines.frames("a")] == [[3] * 6]
    assert outlines.frames("b") == []


@pytest.mark.parametrize("number", range(6))
def test_sizes_of_values_are_verified(number: int) -> None:
    values = [Value.of(types.STRING, "s" * size) for size in (5, 130, 2, 0, 70_000, 1)]
    data = encode_values(values)
    outlines = Outlines()
    shapes(data, lambda starts, end: outlines.add("s", starts, end))
    (sizes,) = outlines.frames("s")
    moved = sizes.astype(np.uint32)
    moved[number] += 1
    moved[(number + 1) % 6] -= 1
    for wrong in (
        moved,
        sizes[:-1],
        sizes[:0],
        np.append(sizes, 1).astype(np.uint32),
        np.array([len(data)], np.uint32),
    ):
        (column,) = read_encoded_columns(data, [wrong])
        assert column.bodies.binary().to_pylist() == [value.body for value in values]


def test_a_block_that_is_shorter_than_declared_is_found_by_each_reading() -> None:
    type = record(k=types.INT64, s=types.STRING)
    values = [Value.of(type, {"k": k, "s": "same"}) for k in range(1000, 0, -1)]
    store = MemoryStore()
    pool = PoolLake.create(store).create_pool("p", key="k")
    pool.load(values)
    (key,) = [each.key for each in store.list() if "/data/" in each.key and not each.key.endswith("-seek.zng")]
    payload = b"".join(b"\x1e" + tagged(value.body) for value in values)
    data = definition(type) + frame(FrameType.VALUES, payload, compress=True) + b"\xff"
    assert store.get(key) == data
    size = uvarint(len(payload))
    assert data.count(size) == 1
    store.put(key, data.replace(size, uvarint(len(payload) + 1)))
    scan = pool.scan()
    readings: list[Callable[[], object]] = [
        scan.shapes,
        lambda: scan.schema,
        scan.to_table,
        lambda: list(scan.values()),
    ]
    for read in readings:
        with pytest.raises(DamagedLake, match="an LZ4 block of fewer than"):
            read()
    known = scan.as_type(type).to_reader()
    with pytest.raises(DamagedLake, match="an LZ4 block of fewer than"):
        known.read_all()


@pytest.mark.parametrize("share", [0, 1, 50, 100])
def test_records_that_are_null_add_no_bytes(share: int) -> None:
    rng = random.Random(share)
    type = record(k=types.INT64, user=record(inner=_INNER, none=record()), text=types.STRING)
    values = [
        Value.of(
            type,
            {
                "k": number,
                "user": rng.choice([{"inner": None, "none": {}}, {"inner": rows(5)[1]["user"], "none": None}])
                if rng.randrange(100) < share
                else None,
                "text": "",
            },
        )
        for number in range(200)
    ]
    (column,) = read_columns(encode_values(values))
    assert values_of(type, column.values) == values
    assert values_of(type, column.values.slice(3, 100)) == values[3:103]


@pytest.mark.parametrize("view", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string_view())])
def test_records_that_are_null_can_have_fields_that_arrow_cannot_select(view: pa.DataType) -> None:
    texts = pa.array(["hidden", "a", "b", None], pa.string_view())
    if pa.types.is_dictionary(view):
        texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.int8()), texts)
    elif view != pa.string_view():
        texts = texts.cast(view)
    column = pa.StructArray.from_arrays([texts], ["s"], mask=pa.array([True, False, False, False]))
    assert [value.decode() for value in values_of(record(s=types.STRING), column)] == [
        None,
        {"s": "a"},
        {"s": "b"},
        {"s": None},
    ]
