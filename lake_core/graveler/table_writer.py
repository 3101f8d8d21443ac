"""Writing SSTables as lakeFS does through pebble: the same blocks, index, properties and footer, byte for byte.

Blocks have 4 KiB and a restart every 16 entries. They are compressed with Snappy. There is no filter. The index has two
levels if one block of 4 KiB cannot hold it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lake_core.graveler.block import KIND_SET, LONGEST_KEY, TRAILER, BlockBuilder, Handle, handle_bytes, store_block
from lake_core.graveler.identity import METARANGES, RANGES, file_id_of, table_id
from lake_core.graveler.key_columns import shared_prefixes
from lake_core.graveler.record import identity_of, join_value
from lake_core.graveler.table import FOOTER, MAGIC
from lake_core.graveler.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BLOCK = 4096
_NEARLY_FULL = 3687
_RESTART = 16
_HANDLE_ESTIMATE = 20
_SEPARATOR = b"\x11\xff\xff\xff\xff\xff\xff\xff"
_NO_RESTARTS = 1 << 31


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A range or metarange that is not stored yet."""

    id: str
    data: bytes
    min_key: bytes
    max_key: bytes
    count: int
    estimated_size: int
    """The size in bytes as pebble estimates it before the file is closed."""


def write_sstable(
    records: Iterable[tuple[bytes, bytes, bytes]],
    *,
    kind: Literal["ranges", "metaranges"] = "ranges",
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """Write the file of a range or metarange from (key, identity, value) in ascending order of keys.

    Further `properties` become part of its name.

    Raises ValueError for keys that are not in order or too long, and for parts that are too large.
    """
    keys, values = [], []
    for key, identity, value in records:
        keys.append(key)
        values.append(join_value(identity, value))
    return write_table(keys, values, {**(properties or {}), **(RANGES if kind == "ranges" else METARANGES)}).data


def write_table(
    keys: Sequence[bytes],
    values: Sequence[bytes],
    properties: Mapping[str, str],
    *,
    name: str | None = None,
    with_file_id: bool = True,
) -> WrittenTable:
    """Write as `write_sstable`, from keys and joined values.

    Returns the file with its name and the fields that a metarange stores.

    `properties` are hashed into the name, unless `name` is given. Bounds, counts and the data model's fileID are added
    after that.
    """
    if not all(map(operator.lt, keys, keys[1:])):
        raise ValueError("the keys of a range must be in ascending order, without duplicates")
    if keys and max(map(len, keys)) > LONGEST_KEY - len(KIND_SET):
        raise ValueError(f"a key can have at most {LONGEST_KEY - len(KIND_SET)} bytes")
    name = name or table_id(zip(keys, values, strict=True), properties)
    file = _File()
    file.add_data(keys, values)
    first, last = (keys[0], keys[-1]) if keys else (b"", b"")
    user_properties = {key.encode(): value.encode() for key, value in properties.items()}
    user_properties |= {
        b"min_key": first,
        b"max_key": last,
        b"count": b"%d" % len(keys),
        b"estimated_size_bytes": b"%d" % file.estimated_size,
    }
    if with_file_id:
        user_properties[b"file_id"] = file_id_of(zip(keys, map(identity_of, values), strict=True)).encode()
    return WrittenTable(name, file.close(user_properties), first, last, len(keys), file.estimated_size)


class _File:
    """The bytes so far, and the index over them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0
        self._index = BlockBuilder(1)
        self._index_last = b""
        self._partitions: list[tuple[bytes, bytes]] = []
        self._blocks = 0
        self._entries = 0
        self._key_bytes = 0
        self._value_bytes = 0
        self._data_bytes = 0
        self.estimated_size = 0

    def add_data(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Add all entries. Sets `estimated_size`."""
        parts: list[bytes] = []
        restarts: list[int] = []
        size = count = 0
        previous = b""
        for key, value, shared in zip(keys, values, shared_prefixes(keys), strict=True):
            key_size, value_size = len(key) + 8, len(value)
            if (
                count
                and (estimate := size + 4 * len(restarts) + 4) > _NEARLY_FULL
                and _is_full(estimate, key_size, value_size, count)
            ):
                self._add_data_block(parts, restarts, previous, key)
                parts, restarts, size, count = [], [], 0, 0
            if count % _RESTART == 0:
                restarts.append(size)
                shared = 0
            elif shared == len(previous):
                # The shared prefix may extend beyond the user key.
                shared = _shared_length(previous + KIND_SET, key + KIND_SET)
            unshared = key_size - shared
            if shared < 0x80 and unshared < 0x80 and value_size < 0x4000:
                if value_size < 0x80:
                    head = bytes((shared, unshared, value_size))
                else:
                    head = bytes((shared, unshared, value_size & 0x7F | 0x80, value_size >> 7))
            else:
                head = uvarint(shared) + uvarint(unshared) + uvarint(value_size)
            part = head + (key + KIND_SET)[shared:] + value
            parts.append(part)
            size += len(part)
            count += 1
            previous = key
        self._entries = len(keys)
        self._key_bytes = sum(map(len, keys)) + 8 * len(keys)
        self._value_bytes = sum(map(len, values))
        self.estimated_size = self._position + size + 4 * len(restarts) + 4 + self._index.estimated_size
        # An empty table has one empty block.
        self._add_data_block(parts, restarts, previous, None)
        self._data_bytes = self._position

    def close(self, user_properties: Mapping[bytes, bytes]) -> bytes:
        """Return the whole file, with these properties besides the standard ones."""
        top_size = partitions_size = 0
        content = self._index.finish()
        if self._partitions:
            self._finish_partition()
            top = BlockBuilder(1)
            for last, partition in self._partitions:
                top.add(last, handle_bytes(self._append(store_block(partition))))
                partitions_size += len(partition)
            content = top.finish()
            top_size = len(content)
        index = self._append(store_block(content))
        properties = self._standard_properties(partitions_size + len(content) + TRAILER, top_size)
        properties.update(user_properties)
        block = BlockBuilder(_NO_RESTARTS)
        for key in sorted(properties):
            block.add(key, properties[key])
        metaindex = BlockBuilder(1)
        metaindex.add(b"rocksdb.properties", handle_bytes(self._append(store_block(block.finish(), compress=False))))
        handles = handle_bytes(self._append(store_block(metaindex.finish(), compress=False))) + handle_bytes(index)
        self._parts.append((b"\x01" + handles).ljust(FOOTER - 12, b"\0") + (2).to_bytes(4, "little") + MAGIC)
        return b"".join(self._parts)

    def _append(self, block: bytes) -> Handle:
        handle = Handle(self._position, len(block) - TRAILER)
        self._parts.append(block)
        self._position += len(block)
        return handle

    def _add_data_block(self, parts: list[bytes], restarts: list[int], last: bytes, following: bytes | None) -> None:
        points = b"".join(point.to_bytes(4, "little") for point in restarts or [0])
        content = b"".join(parts) + points + (len(restarts) or 1).to_bytes(4, "little")
        handle = handle_bytes(self._append(store_block(content)))
        self._blocks += 1
        end = successor(last) if following is None else separator(last, following)
        internal = end + _SEPARATOR if len(end) <= len(last) and end > last else last + KIND_SET
        estimate = self._index.estimated_size
        threshold = estimate > _NEARLY_FULL and self._index.count > 0
        if threshold and _is_full(estimate, len(internal), _HANDLE_ESTIMATE, self._index.count, interval=1):
            self._finish_partition()
        self._index.add(internal, handle)
        self._index_last = internal

    def _finish_partition(self) -> None:
        self._partitions.append((self._index_last, self._index.finish()))
        self._index = BlockBuilder(1)

    def _standard_properties(self, index_size: int, top_size: int) -> dict[bytes, bytes]:
        properties = {
            b"block.based.table.index.type": (2 if self._partitions else 0).to_bytes(4, "little"),
            b"block.based.table.prefix.filtering": b"0",
            b"block.based.table.whole.key.filtering": b"0",
            b"column.family.id": uvarint(0x7FFFFFFF),
            b"comparator": b"leveldb.BytewiseComparator",
            b"compression": b"Snappy",
            b"compression_options": b"window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; "
            b"zstd_max_train_bytes=0; enabled=0; ",
            b"creation.time": b"\0",
            b"data.size": uvarint(self._data_bytes),
            b"deleted.keys": b"\0",
            b"external_sst_file.global_seqno": bytes(8),
            b"external_sst_file.version": (2).to_bytes(4, "little"),
            b"filter.size": b"\0",
            b"fixed.key.length": b"\0",
            b"format.version": b"\0",
            b"index.key.is.user.key": b"\0",
            b"index.size": uvarint(index_size),
            b"index.value.is.delta.encoded": b"\0",
            b"merge.operands": b"\0",
            b"merge.operator": b"pebble.concatenate",
            b"num.data.blocks": uvarint(self._blocks),
            b"num.entries": uvarint(self._entries),
            b"num.range-deletions": b"\0",
            b"oldest.key.time": b"\0",
            b"prefix.extractor.name": b"nullptr",
            b"property.collectors": b"[static]",
            b"raw.key.size": uvarint(self._key_bytes),
            b"raw.value.size": uvarint(self._value_bytes),
        }
        if self._partitions:
            properties[b"index.partitions"] = uvarint(len(self._partitions))
            properties[b"top-level.index.size"] = uvarint(top_size)
        return {b"rocksdb." + name: value for name, value in properties.items()}


def _is_full(estimate: int, key_size: int, value_size: int, count: int, *, interval: int = _RESTART) -> bool:
    """Return whether an entry no longer fits a block that is nearly full."""
    if estimate >= _BLOCK:
        return True
    restart = 4 if count % interval == 0 else 0
    return estimate + key_size + value_size + restart + 4 + len(uvarint(key_size)) + len(uvarint(value_size)) > _BLOCK


def separator(first: bytes, second: bytes) -> bytes:
    """Return a short key that is at least the first, and below the second."""
    shared = _shared_length(first, second)
    if shared >= min(len(first), len(second)) or first[shared] >= second[shared]:
        return first
    if shared < len(second) - 1 or first[shared] + 1 < second[shared]:
        return first[:shared] + bytes((first[shared] + 1,))
    for index in range(shared + 1, len(first)):
        if first[index] != 0xFF:
            return first[:index] + bytes((first[index] + 1,))
    return first


def successor(key: bytes) -> bytes:
    """Return a short key that is at least as large as this one."""
    for index, byte in enumerate(key):
        if byte != 0xFF:
            return key[:index] + bytes((byte + 1,))
    return key


def _shared_length(first: bytes, second: bytes) -> int:
    limit = min(len(first), len(second))
    for index in range(limit):
        if first[index] != second[index]:
            return index
    return limit
