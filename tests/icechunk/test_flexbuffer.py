"""FlexBuffers: JSON values are read as they were written, and damage is an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.icechunk.flexbuffer import FlexbufferError, decode_flexbuffer, encode_flexbuffer
from tests.examples import examples

texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=300)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=40,
)


@given(values)
@settings(deadline=None, max_examples=examples(300))
def test_values_are_read_as_they_were_written(value: Any) -> None:
    assert decode_flexbuffer(encode_flexbuffer(value)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        *(("000001", None), ("050401", 5), ("0000c03f0e04", 1.5), ("010203", None)),
        *(("03010203032c01", [1, 2, 3]), ("0102420100", None), ("0102030103", None)),
    ],
)
def test_buffers_of_other_writers(data: str, value: Any) -> None:
    """Typed vectors among them, and some that are no buffers at all."""
    if value is None and data != "000001":
        with pytest.raises(FlexbufferError):
            decode_flexbuffer(bytes.fromhex(data))
    else:
        assert decode_flexbuffer(bytes.fromhex(data)) == value


@given(values, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=examples(400))
def test_a_damaged_buffer_is_read_or_refused(value: Any, changes: list[tuple[int, int]]) -> None:
    data = bytearray(encode_flexbuffer(value))
    for position, byte in changes:
        data[position % len(data)] = byte
    try:
        decode_flexbuffer(bytes(data))
    except FlexbufferError:
        return


def test_a_small_buffer_that_stands_for_endless_values_is_refused() -> None:
    # Each vector refers three times to the one before it.
    data = bytearray(b"\x00\x00")
    position = 1
    for _ in range(40):
        data.append(3)
        start = len(data)
        data += bytes(len(data) + number - position for number in range(3)) + bytes([10 << 2]) * 3
        position = start
    data += bytes([len(data) - position, 10 << 2, 1])
    with pytest.raises(FlexbufferError, match="more values"):
        decode_flexbuffer(bytes(data))
    with pytest.raises(FlexbufferError):
        decode_flexbuffer(b"\x00\x28\x01")  # a vector that is in itself


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, b"bytes", {1: 2}, {"a\0": 1}, object()])
def test_values_that_json_has_not_are_refused(value: Any) -> None:
    with pytest.raises(FlexbufferError):
        encode_flexbuffer(value)
