"""Where values begin in the payload of a frame."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pytest

from lake_core.pool.arrow.columns import read_columns
from lake_core.pool.arrow.shapes import shapes
from lake_core.pool.arrow.walk import walk_elements, walk_values
from lake_core.pool.errors import InvalidZng
from lake_core.pool.types import INT64, STRING, Type, record
from lake_core.pool.value import Value
from lake_core.pool.value_batch import read_batches
from lake_core.pool.zng.frame import END_OF_STREAM, FrameType, frame
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zng.writer import encode_values
from lake_core.varint import uvarint

_LONG_NULL = b"\x80\x00"
"""A tag of null that takes a byte more than is needed."""


def starts_of(values: list[bytes]) -> list[int]:
    return list(accumulate(map(len, values), initial=0))[:-1]


def walked(values: list[bytes]) -> list[int]:
    starts: list[int] = walk_values(np.frombuffer(b"".join(values), np.uint8)).tolist()
    return starts


@pytest.mark.parametrize("ids", [[30], [30, 31], list(range(30, 40)), [200], [30, 5000]])
@pytest.mark.parametrize("longest", [3, 100, 300, 20_000])
def test_values_begin_where_the_ones_before_them_end(ids: list[int], longest: int) -> None:
    rng = random.Random(longest)
    # Bodies are full of bytes that are ids, too.
    bodies = [
        bytes(rng.choices(range(25, 45), k=rng.randrange(longest))) for _ in range(min(15_000, 400_000 // longest))
    ]
    values = [uvarint(rng.choice(ids)) + tagged(rng.choice([body, body, None])) for body in bodies]
    assert walked(values) == starts_of(values)


def test_values_whose_bodies_look_like_values_begin_where_the_ones_before_them_end() -> None:
    inner = bytes((30, 2)) * 5000
    values = [bytes((30,)) + tagged(inner[:size]) for size in (8000, 3, 200, 9000, 0, 10_000, 10_000)]
    assert walked(values) == starts_of(values)


@pytest.mark.parametrize("count", [1, 2, 10_000])
def test_a_null_takes_the_bytes_of_its_tag(count: int) -> None:
    values = [bytes((30,)) + tag for tag in (_LONG_NULL, b"\0", tagged(b"ab"))] * count
    assert walked(values) == starts_of(values)
    elements = [_LONG_NULL, b"\0", tagged(b"ab")] * count
    assert walk_elements(b"".join(elements)).tolist() == starts_of(elements)


def test_no_bytes_hold_no_values() -> None:
    assert walked([]) == []


@pytest.mark.parametrize(
    "rest", [b"\x1e", b"\x1e\x03a", b"\x1e\x80", b"\x1e\x85\x01ab", b"\x80", b"\x1e" + b"\xff" * 11]
)
@pytest.mark.parametrize("before", [0, 1, 10_000])
def test_a_value_that_is_cut_short_is_refused(rest: bytes, before: int) -> None:
    with pytest.raises(InvalidZng):
        walked([b"\x1e\x03ab"] * before + [rest])


def rows_of(data: bytes) -> dict[Type, list[tuple[int, object]]]:
    rows: dict[Type, list[tuple[int, object]]] = {}
    for column in read_columns(data):
        rows.setdefault(column.type, []).extend(zip(column.rows.tolist(), column.values.to_pylist(), strict=True))
    return rows


def test_streams_that_define_other_types_are_read_by_their_own() -> None:
    number, text = record(k=INT64), record(k=STRING)
    streams = [
        encode_values([Value.of(type, {"k": value})])
        for type, value in ((number, 1), (number, 2), (text, "a"), (text, "b"), (number, 3))
    ]
    assert rows_of(b"".join(streams)) == {
        number: [(0, {"k": 1}), (1, {"k": 2}), (4, {"k": 3})],
        text: [(2, {"k": "a"}), (3, {"k": "b"})],
    }


def test_a_frame_without_values_changes_nothing() -> None:
    values = [Value.of(INT64, number) for number in range(3)]
    empty = bytes((FrameType.VALUES << 4, 0))
    data = b"".join(empty + encode_values([value])[:-1] + empty for value in values) + END_OF_STREAM
    assert rows_of(data) == {INT64: list(enumerate(range(3)))}
    assert list(read_values(data)) == values
    assert [value for batch in read_batches(data) for value in batch.values()] == values
    assert [shape.count for shape in shapes(data)] == [3]


def test_a_stream_knows_no_types_of_the_next() -> None:
    undefined = frame(FrameType.VALUES, bytes((30,)) + tagged(b""), compress=False) + END_OF_STREAM
    with pytest.raises(InvalidZng, match="a type with the id 30"):
        list(read_columns(undefined + encode_values([Value.of(record(k=INT64), {"k": 1})])))
