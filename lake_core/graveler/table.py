"""Reading SSTables: RocksDB's block-based table, format version 2, as pebble (so lakeFS) writes it.

See specs: ranges and metaranges.

Indexes may have one or two levels. Blocks are compressed with Snappy or not at all, and have CRC-32C checksums. Filters
are not needed and not read. Entries must be plain SETs of distinct keys. Nothing that a file declares is trusted: every
length is checked against the file, and memory against a budget.
"""

from __future__ import annotations

import functools
import operator
from bisect import bisect_left
from typing import TYPE_CHECKING

from lake_core.graveler.block import KIND_SET, TRAILER, Handle, read_block, read_entries, read_handle, read_handles
from lake_core.graveler.block_cache import DecodedBlock
from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.record import Record, split_value
from lake_core.graveler.varint import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.graveler.block_cache import BlockCache
    from lake_core.store import ObjectStore

FOOTER = 53
MAGIC = bytes.fromhex("f7cff485b741e288")
_VERSION = 2
_CRC32C = 1
_TWO_LEVELS = 2
_BUDGET = 1 << 30
RECORD_OVERHEAD = 200
"""The bytes that a decoded record takes besides its key and its value, including its place in a look-up table."""
_TAIL = 8 << 10
_OUT_OF_ORDER = "the keys of an SSTable are not in order"


def read_sstable(data: bytes) -> Table:
    """Open a range, a metarange or any other SSTable of plain values.

    `records, properties = read_sstable(data)` works as well. Raises CorruptTable. Damage inside a block is only found
    when that block is read.
    """
    return Table(data)


class Table:
    """An SSTable in memory. Opening it reads its footer. Index, properties and blocks are read when they are needed.

    `budget` bounds the bytes of decompressed blocks and decoded keys, taken together. `blocks` has blocks of other
    tables, which are not decoded again. Every method raises CorruptTable.
    """

    def __init__(self, data: bytes, *, budget: int = _BUDGET, blocks: BlockCache | None = None) -> None:
        if len(data) < FOOTER:
            raise CorruptTable(f"{len(data)} bytes are too few for an SSTable")
        footer = data[-FOOTER:]
        if footer[-8:] != MAGIC:
            raise CorruptTable(
                "the file does not end in the magic number of an SSTable: it is not an SSTable, or is truncated"
            )
        version = int.from_bytes(footer[-12:-8], "little")
        if version != _VERSION or footer[0] != _CRC32C:
            raise CorruptTable(f"SSTable version {version} with checksum type {footer[0]} is not supported")
        self._metaindex, at = read_handle(footer, 1)
        self._index_handle, _ = read_handle(footer, at)
        self._data = data if isinstance(data, bytes) else bytes(data)
        self._budget = budget
        self._blocks = blocks
        self.columns_bytes = 0
        """The bytes of the decompressed blocks that `columns` has read, and of their keys."""

    def __len__(self) -> int:
        """Return the size of the file in bytes."""
        return len(self._data)

    def without_data(self, fetch: Callable[[int, int], bytes]) -> IndexedTable:
        """Return the table with its index alone in memory. `fetch` returns the bytes [start, end) of its file."""
        return IndexedTable(*self._index, fetch, self._budget)

    @property
    def decoded_bytes(self) -> int:
        """Return the bytes of all keys and values, and the number of records times `RECORD_OVERHEAD`."""
        properties = self.table_properties
        names = (b"rocksdb.raw.key.size", b"rocksdb.raw.value.size", b"rocksdb.num.entries")
        keys, values, count = (read_uvarint(properties.get(name, b"\0"), 0)[0] for name in names)
        return keys + values + (RECORD_OVERHEAD - len(KIND_SET)) * count

    def __iter__(self) -> Iterator[list[Record] | dict[str, str | bytes]]:
        yield self.records
        yield self.properties

    @functools.cached_property
    def table_properties(self) -> dict[bytes, bytes]:
        """Return all properties as they are stored, including RocksDB's own."""
        keys, values = read_entries(read_block(self._data, self._metaindex), self._budget)
        for key, value in zip(keys, values, strict=True):
            if key == b"rocksdb.properties":
                names, texts = read_entries(read_block(self._data, read_handle(value)[0]), self._budget)
                return dict(zip(names, texts, strict=True))
        raise CorruptTable("the SSTable has no properties")

    @property
    def properties(self) -> dict[str, str | bytes]:
        """Return the properties that its writer set: text if they are UTF-8, else bytes."""
        written_properties = (
            (name, value) for name, value in self.table_properties.items() if not name.startswith(b"rocksdb.")
        )
        return {name.decode("utf-8", "backslashreplace"): _text(value) for name, value in written_properties}

    @functools.cached_property
    def columns(self) -> tuple[list[bytes], list[bytes]]:
        """Return all keys in order, and their joined identities and values. Reads every block."""
        stored = [self._data[at : at + length + TRAILER] for at, length in self._index[1]]
        known = self._blocks.get_many(stored) if self._blocks is not None else [None] * len(stored)
        keys: list[bytes] = []
        values: list[bytes] = []
        budget = self._budget
        for part, handle, block in zip(stored, self._index[1], known, strict=True):
            if block is None or block.size > budget:
                block = self._decoded(part, handle, budget)
            budget -= block.size
            if keys and block.keys and keys[-1] >= block.keys[0]:
                raise CorruptTable(_OUT_OF_ORDER)
            keys += block.keys
            values += block.values
        self.columns_bytes = self._budget - budget
        return keys, values

    def _decoded(self, stored: bytes, handle: Handle, budget: int) -> DecodedBlock:
        content = read_block(self._data, handle)
        internal, values = read_entries(content, budget)
        keys = _user_keys(internal)
        _check_order(keys)
        block = DecodedBlock(stored, keys, values, len(content) + sum(map(len, internal)))
        if self._blocks is not None:
            self._blocks.keep(block)
        return block

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Return all keys with their values as they are stored, also for tables whose values are not lakeFS's.

        Range deletions are not applied.
        """
        return list(zip(*self.columns, strict=True))

    @property
    def records(self) -> list[Record]:
        """Return all value records in order."""
        if self.table_properties.get(b"rocksdb.num.range-deletions", b"\0") != b"\0":
            raise CorruptTable("the SSTable deletes ranges of keys, which is not supported")
        keys, values = self.columns
        return [Record(key, *split_value(value)) for key, value in zip(keys, values, strict=True)]

    def find(self, key: bytes) -> bytes | None:
        """Return the value of one key, or None if it is absent. Read the index and one block."""
        ends, handles = self._index
        at = bisect_left(ends, key)
        return None if at == len(ends) else _find(read_block(self._data, handles[at]), key, self._budget)

    @functools.cached_property
    def _index(self) -> tuple[list[bytes], list[Handle]]:
        """Return an end key and a handle for each data block.

        The end key is not below the last key of the block, and not above the first key of the next one.
        """
        ends, handles = self._read_index(self._index_handle)
        if self.table_properties.get(b"rocksdb.block.based.table.index.type") == _TWO_LEVELS.to_bytes(4, "little"):
            partitions, ends = handles, []
            handles = []
            for partition in partitions:
                more, further = self._read_index(partition)
                ends += more
                handles += further
        position = 0
        for offset, length in handles:
            # With overlapping blocks, a small file could contain any amount of data.
            if offset < position:
                raise CorruptTable("the blocks of an SSTable overlap")
            position = offset + length
        return ends, handles

    def _read_index(self, handle: Handle) -> tuple[list[bytes], list[Handle]]:
        keys, values = read_entries(read_block(self._data, handle), self._budget)
        if min(map(len, keys), default=8) < 8:
            raise CorruptTable("an index entry has an incomplete key")
        ends = [key[:-8] for key in keys]
        if not all(map(operator.le, ends, ends[1:])):
            raise CorruptTable("the index of an SSTable is not in order")
        return ends, read_handles(values)


class IndexedTable:
    """An SSTable of which only the index is in memory: a look-up reads one block."""

    def __init__(
        self, ends: Sequence[bytes], handles: Sequence[Handle], fetch: Callable[[int, int], bytes], budget: int
    ) -> None:
        self._ends = ends
        self._handles = handles
        self._fetch = fetch
        self._budget = budget

    @property
    def memory(self) -> int:
        """Return the approximate size in bytes."""
        return sum(map(len, self._ends)) + RECORD_OVERHEAD * len(self._ends)

    def find(self, key: bytes) -> bytes | None:
        """Return the value of one key, or None if it is absent. Read one block. Raises CorruptTable."""
        at = bisect_left(self._ends, key)
        if at == len(self._ends):
            return None
        offset, length = self._handles[at]
        stored = self._fetch(offset, offset + length + TRAILER)
        return _find(read_block(stored, Handle(0, length)), key, self._budget)


def _find(block: bytes, key: bytes, budget: int) -> bytes | None:
    """Return the value of a key in a block, or None if it is absent. Raises CorruptTable."""
    keys, values = read_entries(block, budget)
    keys = _user_keys(keys)
    _check_order(keys)
    index = bisect_left(keys, key)
    return values[index] if index < len(keys) and keys[index] == key else None


def read_properties(store: ObjectStore, key: str, size: int) -> dict[str, str | bytes]:
    """Read the properties that the writer of an SSTable set. Read only the end of the file if that is enough.

    Raises NotFound, CorruptTable.
    """
    tail = store.get(key, -_TAIL) if size > _TAIL else store.get(key)
    try:
        return Table(bytes(size - len(tail)) + tail).properties
    except CorruptTable:
        if len(tail) == size:
            raise
    return Table(store.get(key)).properties


def _user_keys(internal: list[bytes]) -> list[bytes]:
    keys = [key[:-8] for key in internal if key[-8:] == KIND_SET]
    if len(keys) == len(internal):
        return keys
    # Other sequence numbers are fine, because each key occurs only once.
    for key in internal:
        if key[-8:-7] != KIND_SET[:1]:
            raise CorruptTable(
                "an entry of the SSTable is not a plain value: deletions and merge operands are not supported"
            )
    return [key[:-8] for key in internal]


def _check_order(keys: list[bytes]) -> None:
    if not all(map(operator.lt, keys, keys[1:])):
        raise CorruptTable(_OUT_OF_ORDER)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
