"""Frames: how a ZNG stream is cut into types, values and control messages, and compressed.

A frame is a byte with its type, whether it is compressed, and the low bits of its length; the rest of the length; and
as many bytes. Sizes that a frame declares are never trusted: no more memory is taken than its bytes account for.
"""

from __future__ import annotations

from enum import IntEnum
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, TypeAlias

import pyarrow as pa

from lake_core.pool.errors import InvalidZng
from lake_core.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterator

Source: TypeAlias = "bytes | BinaryIO"
"""A ZNG stream: its bytes, or a file that is read from its current position."""

END_OF_STREAM: Final = b"\xff"
MAX_FRAME: Final = 1 << 30
"""The largest frame that is read, in bytes, and as large once it is uncompressed."""
_LZ4: Final = 0
_LZ4_RATIO: Final = 255
"""How many bytes one byte of an LZ4 block can stand for, at most."""
_PIECE: Final = 1 << 20


class FrameType(IntEnum):
    """The type of a frame."""

    TYPES = 0
    VALUES = 1
    CONTROL = 2


class Frame(NamedTuple):
    """A frame, uncompressed. The end of a stream is a frame without a type."""

    type: FrameType | None
    payload: bytes


def read_frames(source: Source) -> Iterator[Frame]:
    """Yield the frames of types and values, and the ends of streams.

    Control messages are skipped. Raises InvalidZng.
    """
    file = BytesIO(source) if isinstance(source, bytes) else source
    while code := file.read(1):
        if code == END_OF_STREAM:
            yield Frame(None, b"")
            continue
        header = code[0]
        if header & 0x80:
            raise InvalidZng(f"a frame begins with the byte {header:#04x}, which belongs to another version of ZNG")
        size = _read_uvarint(file) << 4 | header & 0x0F
        if size > MAX_FRAME:
            raise InvalidZng(f"a frame declares {size} bytes, more than the {MAX_FRAME} that are allowed")
        payload = _read(file, size)
        type = header >> 4 & 3
        if type == FrameType.CONTROL:
            continue
        if type not in (FrameType.TYPES, FrameType.VALUES):
            raise InvalidZng(f"a frame has the unknown type {type}")
        yield Frame(FrameType(type), uncompressed(payload) if header & 0x40 else payload)


def _read(file: BinaryIO, size: int) -> bytes:
    pieces: list[bytes] = []
    missing = size
    while missing:
        piece = file.read(min(missing, _PIECE))
        if not piece:
            raise InvalidZng(f"the stream ends inside a frame: {missing} of {size} bytes are missing")
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _read_uvarint(file: BinaryIO) -> int:
    number = 0
    for shift in range(0, 63, 7):
        byte = file.read(1)
        if not byte:
            raise InvalidZng("the stream ends inside the length of a frame")
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
    raise InvalidZng("a frame's length has more than 63 bits")


def uncompressed(payload: bytes) -> bytes:
    """Return the uncompressed bytes of a payload. Raises InvalidZng."""
    file = BytesIO(payload)
    format = file.read(1)
    if format != bytes((_LZ4,)):
        raise InvalidZng(f"a frame is compressed with the unknown format {format.hex() or '(none, as it is empty)'}")
    size = _read_uvarint(file)
    block = memoryview(payload)[file.tell() :]
    if size > MAX_FRAME or size > _LZ4_RATIO * len(block):
        raise InvalidZng(f"a frame declares {size} uncompressed bytes, which its {len(block)} bytes cannot hold")
    if not size:
        return b""
    # This is Arrow's codec: Spark's executors have no other.
    codec = pa.Codec("lz4_raw")
    try:
        content: bytes = codec.decompress(block, size, asbytes=True)
    except OSError:
        raise InvalidZng(f"a frame is not an LZ4 block of {size} bytes") from None
    try:
        # The codec pads a block with fewer bytes. So a block of the right size does not fit into one byte less.
        codec.decompress(block, size - 1)
    except OSError:
        return content
    raise InvalidZng(f"a frame is an LZ4 block of fewer than {size} bytes")


def frame(type: FrameType, payload: bytes, *, compress: bool) -> bytes:
    """Return a frame, compressed where that makes it smaller; no bytes for an empty payload."""
    if not payload:
        return b""
    if compress:
        block: bytes = pa.Codec("lz4_raw").compress(payload, asbytes=True)
        if len(block) < len(payload):
            block = bytes((_LZ4,)) + uvarint(len(payload)) + block
            return _header(type, len(block), 0x40) + block
    return _header(type, len(payload), 0) + payload


def _header(type: FrameType, size: int, flag: int) -> bytes:
    return bytes((flag | type << 4 | size & 0x0F,)) + uvarint(size >> 4)
