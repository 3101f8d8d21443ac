"""Value records, and how a record's identity and value share the value of an SSTable entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_COMPONENT = 640 << 16
"""The largest size of an identity or a value in bytes (lakeFS's limit)."""


class Record(NamedTuple):
    """A value record. Two records are the same if their key and their identity are."""

    key: bytes
    identity: bytes
    value: bytes


def join_value(identity: bytes, value: bytes) -> bytes:
    """Join the entry's value: each part after its length as a signed varint (so twice the length).

    Raises ValueError for parts that lakeFS could not read.
    """
    if len(identity) > MAX_COMPONENT or len(value) > MAX_COMPONENT:
        raise ValueError(f"an identity and a value have at most {MAX_COMPONENT} bytes each")
    return b"%b%b%b%b" % (uvarint(2 * len(identity)), identity, uvarint(2 * len(value)), value)


def split_value(joined: bytes) -> tuple[bytes, bytes]:
    """Return (identity, value) of an entry's value. Ignore bytes after them. Raises CorruptTable."""
    size = len(joined)
    if size > 34 and joined[0] == 64:  # the usual one: a SHA-256
        length = joined[33]
        if length < 0x80:
            end = 34 + (length >> 1)
            if end <= size and not length & 1:
                return joined[1:33], joined[34:end]
        elif joined[34] < 0x80:
            length = length & 0x7F | joined[34] << 7
            end = 35 + (length >> 1)
            if end <= size and not length & 1:
                return joined[1:33], joined[35:end]
    identity, at = _component(joined, 0)
    return identity, _component(joined, at)[0]


def fill(
    records: list[Record | None], indexes: Iterable[int], keys: Sequence[bytes], values: Mapping[bytes, bytes]
) -> None:
    """Set the records at some positions. A key that has no joined value is skipped. Raises CorruptTable."""
    get, make = values.get, tuple.__new__
    heads: dict[int, bytes] = {}
    for index in indexes:
        key = keys[index]
        joined = get(key)
        if joined is None:
            continue
        size = len(joined)
        # The usual one again, without a call: a SHA-256, then a value of 64 to 8191 bytes that fills the rest.
        head = heads.get(size)
        if head is None:
            heads[size] = head = uvarint(2 * (size - 35)) if 64 <= size - 35 < 8192 else b"unusual"
        if joined[33:35] == head and joined[0] == 64:
            records[index] = make(Record, (key, joined[1:33], joined[35:]))
        else:
            records[index] = Record(key, *split_value(joined))


def identity_of(joined: bytes) -> bytes:
    """Return only the identity. Raises CorruptTable."""
    if len(joined) > 33 and joined[0] == 64:
        return joined[1:33]
    return _component(joined, 0)[0]


def _component(joined: bytes, at: int) -> tuple[bytes, int]:
    doubled, begin = read_uvarint(joined, at)
    length = doubled >> 1
    if doubled & 1 or length > MAX_COMPONENT or begin + length > len(joined):
        raise CorruptTable(
            f"a value of {len(joined)} bytes does not consist of an identity and a value: wrong length at byte {at}"
        )
    return joined[begin : begin + length], begin + length
