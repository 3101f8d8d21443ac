"""Protocol buffer messages as lakeFS's records need them: numbers, texts, nested messages, maps of texts (proto3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Mapping

Fields: TypeAlias = "dict[int, list[int | bytes]]"
"""Field number to its values in order: ints for varints and fixed numbers, bytes for what has a length."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NANOSECONDS = 1_000_000_000


def read_message(data: bytes) -> Fields:
    """Decode all fields of a message, also unknown ones. Raises CorruptTable."""
    fields: Fields = {}
    at, size = 0, len(data)
    while at < size:
        tag, at = read_uvarint(data, at)
        value: int | bytes
        kind = tag & 7
        if kind == _VARINT:
            value, at = read_uvarint(data, at)
        elif kind == _LENGTH:
            length, at = read_uvarint(data, at)
            value = data[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            width = 8 if kind == _FIXED64 else 4
            value = int.from_bytes(data[at : at + width], "little")
            at += width
        else:
            raise CorruptTable(f"a message has a field of the unknown wire type {kind}")
        if at > size:
            raise CorruptTable("a message is truncated")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def number(fields: Fields, field: int) -> int:
    """Return a signed number, or 0 if it is absent."""
    value = fields.get(field, (0,))[-1]
    if not isinstance(value, int):
        raise CorruptTable(f"field {field} of a message is not a number")
    return value - (1 << 64) if value >> 63 else value


def octets(fields: Fields, field: int) -> bytes:
    """Return bytes, or no bytes if they are absent."""
    value = fields.get(field, (b"",))[-1]
    if not isinstance(value, bytes):
        raise CorruptTable(f"field {field} of a message is not text")
    return value


def text(fields: Fields, field: int) -> str:
    """Return a text, or "" if it is absent."""
    return _decoded(octets(fields, field))


def texts(fields: Fields, field: int) -> list[str]:
    """Return a repeated text."""
    return [text({field: [value]}, field) for value in fields.get(field, ())]


def text_map(fields: Fields, field: int) -> dict[str, str]:
    """Return a map of texts."""
    pairs = {}
    for value in fields.get(field, ()):
        pair = read_message(octets({field: [value]}, field))
        pairs[text(pair, 1)] = text(pair, 2)
    return pairs


def timestamp(fields: Fields, field: int) -> int:
    """Return a `google.protobuf.Timestamp` in nanoseconds since the epoch, or 0 if it is absent.

    Raises CorruptTable outside its range.
    """
    if field not in fields:
        return 0
    parts = read_message(octets(fields, field))
    seconds, nanoseconds = number(parts, 1), number(parts, 2)
    if not (-62_135_596_800 <= seconds <= 253_402_300_799 and 0 <= nanoseconds < _NANOSECONDS):
        raise CorruptTable(f"{seconds} s and {nanoseconds} ns are not a timestamp")
    return seconds * _NANOSECONDS + nanoseconds


def put_number(field: int, value: int) -> bytes:
    """Encode a number. 0 is left out."""
    return uvarint(field << 3 | _VARINT) + uvarint(value & 0xFFFFFFFFFFFFFFFF) if value else b""


def put_octets(field: int, value: bytes) -> bytes:
    """Encode bytes. Empty bytes are left out."""
    return uvarint(field << 3 | _LENGTH) + uvarint(len(value)) + value if value else b""


def put_text(field: int, value: str) -> bytes:
    """Encode a text. An empty text is left out."""
    return put_octets(field, value.encode())


def put_text_map(field: int, pairs: Mapping[str, str]) -> bytes:
    """Encode a map of texts, by key."""
    return b"".join(
        put_octets(field, put_octets_always(1, key.encode()) + put_octets_always(2, pairs[key].encode()))
        for key in sorted(pairs)
    )


def put_octets_always(field: int, value: bytes) -> bytes:
    """Encode bytes, even if they are empty."""
    return put_octets(field, value) or bytes((field << 3 | _LENGTH, 0))


def put_timestamp(field: int, nanoseconds: int) -> bytes:
    """Encode a `google.protobuf.Timestamp` of nanoseconds since the epoch. 0 is left out."""
    if not nanoseconds:
        return b""
    seconds, nanos = divmod(nanoseconds, _NANOSECONDS)
    return put_octets(field, put_number(1, seconds) + put_number(2, nanos))


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CorruptTable("a text in a message is not UTF-8") from None
