"""Reads the values of ZNG streams, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.errors import InvalidZng
from lake_core.pool.value import Value
from lake_core.pool.zng.frame import FrameType, Source, read_frames
from lake_core.pool.zng.tag import read_tagged
from lake_core.pool.zng.typedef import TypeDecoder
from lake_core.varint import InvalidVarint, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_values(source: Source) -> Iterator[Value]:
    """Yield the values of one stream, or of several concatenated ones.

    The bodies of values are checked when they are decoded.

    Args:
        source: The bytes, or a file.

    Raises:
        InvalidZng: The bytes are damaged. Values of earlier frames were already yielded.
    """
    for types, (payload,) in read_payloads(source):
        yield from _values_of(payload, types)


def read_payloads(source: Source, at_least: int = 1) -> Iterator[tuple[TypeDecoder, list[bytes]]]:
    """Yield the payloads of frames of values in groups, with the types that the stream has defined so far.

    Args:
        source: The bytes, or a file.
        at_least: Group frames with the same types until they have this many bytes; by default, do not group them.

    Raises:
        InvalidZng: The bytes are damaged.
    """
    types = group_types = TypeDecoder()
    group: list[bytes] = []
    size = 0
    for frame_type, payload in read_frames(source):
        match frame_type:
            case None:
                types = TypeDecoder()
            case FrameType.TYPES:
                types.decode(payload)
            case FrameType.VALUES if payload:
                if group and types != group_types:
                    yield group_types, group
                    group, size = [], 0
                group_types = types
                group.append(payload)
                size += len(payload)
                if size >= at_least:
                    yield types, group
                    group, size = [], 0
    if group:
        yield group_types, group


def _values_of(payload: bytes, types: TypeDecoder) -> Iterator[Value]:
    at, end = 0, len(payload)
    while at < end:
        id = payload[at]
        if id < 0x80:
            at += 1
        else:
            try:
                id, at = read_uvarint(payload, at)
            except InvalidVarint as error:
                raise InvalidZng(f"a value does not have a valid type id: {error}") from None
        body, at = read_tagged(payload, at)
        yield Value(types.lookup(id), body)
