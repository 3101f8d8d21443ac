"""Blocks of an SSTable: sorted entries with shared prefixes, optionally compressed, each with a checksum.

RocksDB's block-based table format, version 2. A stored block is its content, one byte for the compression, and the
checksum of both.

The packages for checksums and compression are imported when they are used, because Spark's executors may lack them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

TRAILER = 5
"""The number of bytes after the content of a stored block."""
KIND_SET = b"\x01\0\0\0\0\0\0\0"
"""The end of an internal key, after the user key: the kind SET and the sequence number 0."""

LONGEST_KEY = 1 << 16
"""The longest key, in bytes.

A few bytes of a block can encode a key as long as the one before. This limit bounds the memory that a hostile file can
take.
"""
_UNCOMPRESSED = 0
_SNAPPY = 1
_MASK_DELTA = 0xA282EAD8
_EXPANSION = 32
"""A limit above Snappy's highest compression ratio: Snappy needs at least three bytes for 64."""


class Handle(NamedTuple):
    """The position of a block in its file, without its trailer."""

    offset: int
    length: int


def read_handle(data: bytes, at: int = 0) -> tuple[Handle, int]:
    """Read a handle, and return it with the position after it."""
    offset, at = read_uvarint(data, at)
    length, at = read_uvarint(data, at)
    return Handle(offset, length), at


def read_handles(values: Sequence[bytes]) -> list[Handle]:
    """Read the handles with which values begin."""
    handles: list[Handle] = []
    make = tuple.__new__  # a third of the time of the type's own constructor
    for value in values:
        if len(value) == 5:  # the usual one: three bytes for the offset, two for the length
            a, b, c, d, e = value
            if a & b & d >= 0x80 > c | e:
                handles.append(make(Handle, (a & 0x7F | (b & 0x7F) << 7 | c << 14, d & 0x7F | e << 7)))
                continue
        handles.append(read_handle(value)[0])
    return handles


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of a block as SSTables store it: CRC-32C, rotated by 15 bits, plus a constant."""
    import google_crc32c

    value: int = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def handle_bytes(handle: Handle) -> bytes:
    """Encode a handle: offset and length as variable-length integers."""
    return uvarint(handle.offset) + uvarint(handle.length)


def read_block(file: bytes, handle: Handle) -> bytes:
    """Return the content of a block, checked and decompressed. Raises CorruptTable."""
    import cramjam

    offset, length = handle
    end = offset + length
    if end + TRAILER > len(file):
        raise CorruptTable(f"a block of {length} bytes at {offset} is outside of its file of {len(file)} bytes")
    kind = file[end]
    if masked_crc32c(file[offset : end + 1]) != int.from_bytes(file[end + 1 : end + TRAILER], "little"):
        raise CorruptTable(f"the checksum of the block at {offset} is wrong")
    content = file[offset:end]
    if kind == _UNCOMPRESSED:
        return content
    if kind != _SNAPPY:
        raise CorruptTable(f"the block at {offset} is compressed with method {kind}, not with Snappy")
    declared, _ = read_uvarint(content, 0)
    if declared > _EXPANSION * length:
        raise CorruptTable(f"the block at {offset} has {length} bytes but declares {declared} uncompressed bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(content))
    except cramjam.DecompressionError as error:
        raise CorruptTable(f"the block at {offset} is not Snappy data: {error}") from None


def store_block(content: bytes, *, compress: bool = True) -> bytes:
    """Encode a block as a file stores it. It is compressed if that saves an eighth."""
    import cramjam

    stored, kind = content, _UNCOMPRESSED
    if compress:
        smaller = bytes(cramjam.snappy.compress_raw(content))
        if len(smaller) < len(content) - len(content) // 8:
            stored, kind = smaller, _SNAPPY
    checked = stored + bytes((kind,))
    return checked + masked_crc32c(checked).to_bytes(4, "little")


def read_entries(block: bytes, budget: int) -> tuple[list[bytes], list[bytes]]:
    """Read all keys and values of a block. In data and index blocks, these are internal keys.

    Raises CorruptTable for a block that is not valid, and for keys that take more than `budget` bytes.
    """
    size = len(block)
    if size < 8:
        raise CorruptTable(f"a block of {size} bytes is too short")
    restarts = int.from_bytes(block[-4:], "little")
    end = size - 4 - 4 * restarts
    if end < 0:
        raise CorruptTable(f"a block of {size} bytes declares {restarts} restart points")
    keys: list[bytes] = []
    values: list[bytes] = []
    at, key = 0, b""
    # Every entry has at least three bytes of lengths. The bytes after the entries allow reading three bytes ahead.
    while at < end:
        shared, unshared, length = block[at], block[at + 1], block[at + 2]
        if shared | unshared | length < 0x80:
            at += 3
        elif shared | unshared < 0x80 and (more := block[at + 3]) < 0x80:
            length = length & 0x7F | more << 7
            at += 4
        else:
            shared, at = read_uvarint(block, at)
            unshared, at = read_uvarint(block, at)
            length, at = read_uvarint(block, at)
            if shared + unshared > LONGEST_KEY:
                raise CorruptTable(f"a key of {shared + unshared} bytes is longer than {LONGEST_KEY}")
        middle = at + unshared
        last = middle + length
        if shared > len(key) or last > end:
            raise CorruptTable(f"an entry at byte {at} extends past the end of its block of {size} bytes")
        budget -= shared
        if budget < 0:
            raise CorruptTable("the keys of a table take more memory than its reader allows")
        key = key[:shared] + block[at:middle]
        keys.append(key)
        values.append(block[middle:last])
        at = last
    return keys, values


class BlockBuilder:
    """Builds a small block (index, properties, metaindex) from its entries. Data blocks are built by a faster loop."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._parts: list[bytes] = []
        self._restarts: list[int] = []
        self._size = 0
        self._previous = b""
        self.count = 0

    @property
    def estimated_size(self) -> int:
        """Return the size of the content in bytes. Before the first entry, the restart point is not counted."""
        return self._size + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        """Add the next entry. The caller adds entries in the order of their keys."""
        shared = 0
        if self.count % self._interval == 0:
            self._restarts.append(self._size)
        else:
            limit = min(len(key), len(self._previous))
            while shared < limit and key[shared] == self._previous[shared]:
                shared += 1
        part = uvarint(shared) + uvarint(len(key) - shared) + uvarint(len(value)) + key[shared:] + value
        self._parts.append(part)
        self._size += len(part)
        self._previous = key
        self.count += 1

    def finish(self) -> bytes:
        """Return the block's content."""
        restarts = self._restarts or [0]
        points = b"".join(point.to_bytes(4, "little") for point in restarts)
        return b"".join(self._parts) + points + len(restarts).to_bytes(4, "little")
