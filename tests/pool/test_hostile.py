"""Damaged and hostile bytes: clear errors, value by value and as columns, in no more memory than they take."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest

from lake_core.pool import types
from lake_core.pool.arrow.columns import read_columns, values_of
from lake_core.pool.errors import InvalidJson, InvalidZng, InvalidZson
from lake_core.pool.ndjson import format_json, parse_json
from lake_core.pool.types import ArrayType, Field, RecordType
from lake_core.pool.value import Value
from lake_core.pool.zng.frame import MAX_FRAME, FrameType, frame, read_frames
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.writer import encode_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_value, parse_values
from lake_core.varint import uvarint
from tests.pool.random_values import has_two_types_of_one_name, is_told_by_text, random_record_type, random_value, seeds


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[position] = rng.randrange(256)
            case 1:
                changed[position] ^= 1 << rng.randrange(8)
            case 2:
                del changed[position : position + rng.randint(1, 9)]
            case 3:
                changed[position:position] = rng.randbytes(rng.randint(1, 9))
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def outcome(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Return what is read, or None where the bytes are refused."""
    try:
        return read(data)
    except InvalidZng:
        return None


def decoded_one_by_one(data: bytes) -> list[str]:
    """Return the text of each value, each decoded in full."""
    values = list(read_values(data))
    for value in values:
        value.decode()
    return [format_value(value) for value in values]


def decoded_as_columns(data: bytes) -> list[str]:
    """Return the text of each value, read as columns."""
    columns = list(read_columns(data))
    rows = [
        (row, value)
        for column in columns
        for row, value in zip(column.rows, values_of(column.type, column.values), strict=True)
    ]
    return [format_value(value) for _, value in sorted(rows, key=lambda pair: pair[0])]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("seed", seeds(5, 50))
def test_changed_bytes_are_refused_or_read_alike_value_by_value_and_as_columns(seed: int, compress: bool) -> None:
    rng = random.Random(seed)
    kinds = [random_record_type(rng, 2) for _ in range(2)]
    sound = encode_values([random_value(rng, rng.choice(kinds)) for _ in range(8)], compress=compress)
    for _ in range(25):
        data = mutated(rng, sound)
        assert outcome(decoded_as_columns, data) == outcome(decoded_one_by_one, data), data.hex()


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_noise_is_refused_or_read_alike(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        data = rng.randbytes(rng.randint(1, 60))
        payload = frame(FrameType.VALUES, data, compress=False)
        assert outcome(decoded_as_columns, payload) == outcome(decoded_one_by_one, payload), data.hex()
        outcome(decoded_one_by_one, data)


def test_every_truncation_is_refused_or_ends_at_a_frame() -> None:
    rng = random.Random(0)
    values = [random_value(rng, random_record_type(rng)) for _ in range(5)]
    data = encode_values(values)
    for end in range(len(data)):
        with suppress(InvalidZng):
            assert list(read_values(data[:end])) in ([], values)


def peak_of(action: Callable[[], object]) -> int:
    """Return the most memory that an action which fails took, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidZng):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"\x10" + uvarint((MAX_FRAME - 16) >> 4),
        b"\x50" + uvarint(1) + b"\x00" + uvarint(MAX_FRAME) + b"\x00" * 11,
        frame(FrameType.TYPES, b"\x00" + uvarint(1 << 40), compress=False),
        frame(FrameType.TYPES, b"\x05" + uvarint(1 << 40), compress=False),
        frame(FrameType.VALUES, b"\x19" + uvarint(1 << 40), compress=False),
        frame(FrameType.VALUES, b"\x1c\x03\x1e" + uvarint(1 << 6), compress=False),
    ],
)
@pytest.mark.parametrize("read", [decoded_one_by_one, decoded_as_columns])
def test_declared_sizes_take_no_memory(data: bytes, read: Callable[[bytes], Any]) -> None:
    assert peak_of(lambda: read(data)) < 4_000_000


def test_a_frame_is_read_up_to_what_it_holds() -> None:
    zeros = bytes(1 << 20)
    block = bytes(cramjam.lz4.compress_block(zeros, store_size=False))
    for declared in (len(zeros) - 1, len(zeros) + 1, 255 * len(block) + 1):
        payload = b"\x00" + uvarint(declared) + block
        data = bytes((0x50 | len(payload) & 15,)) + uvarint(len(payload) >> 4) + payload
        with pytest.raises(InvalidZng):
            list(read_frames(data))


def test_null_records_of_many_fields_do_not_become_columns() -> None:
    type = RecordType(tuple(Field(f"f{number}", types.INT64) for number in range(2_000)))
    data = encode_values([Value(type, None)] * 20_000)
    assert len(list(read_values(data))) == 20_000
    assert peak_of(lambda: list(read_columns(data))) < 20_000_000


def test_deeply_nested_texts_are_refused_or_read() -> None:
    for depth in (90, 99, 100, 500):
        type = "[" * depth + "int64" + "]" * depth
        with suppress(InvalidZson):
            parse_value(
                "[" * depth
                + "1"
                + "]("
                + "](".join(f"{type[number : len(type) - number]})" for number in range(depth, -1, -1))
            )


def test_many_values_of_no_bytes_are_read() -> None:
    type = ArrayType(types.NULL)
    value = Value(type, bytes(100_000))
    data = encode_values([value])
    assert len(value.decode()) == 100_000
    (column,) = read_columns(data)
    assert len(column.values[0]) == 100_000


@pytest.mark.parametrize("seed", seeds(3, 50))
def test_changed_texts_are_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    type = random_record_type(rng, 2)
    for _ in range(30):
        text = mutated(rng, format_value(random_value(rng, type)).encode()).decode("utf-8", "replace")
        with suppress(InvalidZson):
            for value in parse_values(text):
                assert format_value(parse_value(format_value(value))) == format_value(value)
        with suppress(InvalidJson):
            parse_json(text)


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_random_records_of_all_types_go_through_zng_zson_and_arrow_and_back(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [random_record_type(rng) for _ in range(3)]
    values = [random_value(rng, rng.choice(kinds)) for _ in range(10)]
    read = list(read_values(encode_values(values)))
    columns = [value for column in read_columns(encode_values(read)) for value in values_of(column.type, column.values)]
    assert sorted(columns, key=repr) == sorted(values, key=repr)
    exact = [value for value in values if is_told_by_text(value.type) and not has_two_types_of_one_name(value.type)]
    assert list(parse_values("\n".join(map(format_value, exact)))) == exact


@pytest.mark.parametrize("seed", seeds(5, 60))
def test_json_is_written_as_it_is_read(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        with suppress(InvalidJson):
            # Integers beyond 64 bits with a sign become floats.
            text = format_json(parse_json(format_json(random_value(rng, random_record_type(rng)))))
            assert format_json(parse_json(text)) == text
