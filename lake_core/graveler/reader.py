"""Reads ranges and metaranges by name, from three tiers: memory (decoded), a local folder, and the object store."""

from __future__ import annotations

import functools
import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from lake_core.graveler.block_cache import BlockCache
from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.metarange import EMPTY, Metarange
from lake_core.graveler.table import RECORD_OVERHEAD, IndexedTable, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.graveler.cache import RangeCache
    from lake_core.store import ObjectStore

_MEMORY = 512 << 20
_LARGEST = 1 << 30
"""The largest file that is read, in bytes: far larger than any metarange."""
_PROMOTE_AFTER = 3
_MOST_OF_BLOCKS = 32 << 20
"""Bytes of decoded blocks.

They are those of more than thirty versions of a large range. After so many, its blocks end at the same records again.
"""
_T = TypeVar("_T")
_NAME = re.compile(r"[0-9a-f]{64}")


def is_remote(store: ObjectStore) -> bool:
    """Return whether a store is remote: then local copies and several requests at once pay off.

    The URL decides, because a store may be wrapped in another one.
    """
    scheme, separator, _ = store.url().partition("://")
    return bool(separator) and scheme not in ("file", "local", "memory")


class Columns:
    """A decoded range: its keys in order, and their joined values. `size` is that of both in bytes, if it is known."""

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes], size: int | None = None) -> None:
        self.keys = keys
        self.values = values
        self._size = size

    @functools.cached_property
    def by_key(self) -> dict[bytes, bytes]:
        """Return the values by their keys."""
        return dict(zip(self.keys, self.values, strict=True))

    def find(self, key: bytes) -> bytes | None:
        """Return the joined value of a key, or None if it is absent."""
        at = bisect_left(self.keys, key)
        return self.values[at] if at < len(self.keys) and self.keys[at] == key else None

    @property
    def memory(self) -> int:
        """Return the approximate size in bytes."""
        size = sum(map(len, self.keys)) + sum(map(len, self.values)) if self._size is None else self._size
        return size + RECORD_OVERHEAD * len(self.keys)


class RangeReader:
    """A reader of ranges by name. It caches at most `memory_bytes`. Safe to use from many threads.

    Methods raise NotFound for a name that the store does not have, and CorruptTable for a file that is not a table.
    """

    def __init__(
        self, store: ObjectStore, cache: RangeCache | None, folder: str, *, memory_bytes: int = _MEMORY
    ) -> None:
        self.store = store
        self.cache = cache
        self.folder = folder
        self._space = store.url()
        self.is_remote = is_remote(store)
        self.memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[object, int]] = OrderedDict()
        self._used = 0
        self._finds: dict[str, int] = {}
        self._blocks = BlockCache(min(_MOST_OF_BLOCKS, memory_bytes))

    def key(self, name: str) -> str:
        """Return the key of the file with a name. Raises CorruptTable for an invalid name."""
        if not _NAME.fullmatch(name):
            raise CorruptTable(f"{name[:80]!r} is not the name of a range, which has 64 hexadecimal digits")
        return f"{self.folder}/{name}"

    def metarange(self, tree: str) -> Metarange:
        """Return the ranges of a tree."""
        if not tree:
            return EMPTY
        kept = self._get("metarange", tree)
        if isinstance(kept, Metarange):
            return kept
        decoded = self._read(tree, lambda table: Metarange(*table.columns))
        self.keep_metarange(tree, decoded)
        return decoded

    def columns(self, name: str) -> Columns:
        """Return all records of a range."""
        kept = self._get("columns", name)
        if isinstance(kept, Columns):
            return kept
        decoded = self._read(name, lambda table: Columns(*table.columns, table.columns_bytes))
        self.keep_columns(name, decoded)
        with self._lock:
            # Its bytes, or its index, were cached to look up single keys.
            for tier in ("table", "index"):
                _, size = self._kept.pop((tier, name), (None, 0))
                self._used -= size
            self._finds.pop(name, None)
        return decoded

    def keep_metarange(self, tree: str, metarange: Metarange) -> None:
        """Remember a metarange that was just read or written."""
        self._keep("metarange", tree, metarange, Columns(metarange.max_keys, metarange.values).memory)

    def keep_columns(self, name: str, columns: Columns) -> None:
        """Remember a range that was just read or written."""
        self._keep("columns", name, columns, columns.memory)

    def find(self, name: str, key: bytes) -> bytes | None:
        """Return the joined value of one key in a range, or None if the range does not have the key.

        At first, only the index and one block of the range are decoded. A range that is used often is decoded as a
        whole, if the memory has room for that. If the memory has no room even for the file, only its index is kept, and
        each look-up reads a block.
        """
        kept = self._get("columns", name)
        if isinstance(kept, Columns):
            return kept.find(key)
        index = self._get("index", name)
        if isinstance(index, IndexedTable):
            try:
                return index.find(key)
            except CorruptTable:
                # The file in the local cache is damaged, or cut short: `_read` fetches it again, or raises.
                self._drop("index", name)
        with self._lock:
            self._finds[name] = asked = self._finds.get(name, 0) + 1
            if len(self._finds) > 10_000:
                self._finds.clear()
        table = self._get("table", name)
        if asked > _PROMOTE_AFTER and isinstance(table, Table) and self._has_room(table.decoded_bytes):
            return self.columns(name).find(key)
        return self._read(name, lambda table: table.find(key), keep=self._keep_open)

    def put(self, name: str, data: bytes) -> None:
        """Add a range that was just stored to the local cache."""
        if self.cache is not None:
            self.cache.put(name, data, self._space)

    def data(self, name: str) -> bytes:
        """Return the file of a range."""
        if self.cache is not None:
            data = self.cache.get(name, self._space)
            if data is not None:
                return data
        data = self.store.get(self.key(name), 0, _LARGEST + 1)
        if len(data) > _LARGEST:
            raise CorruptTable(f"{self.key(name)} is larger than {_LARGEST} bytes, so it is not a range")
        self.put(name, data)
        return data

    def _keep_open(self, name: str, table: Table) -> None:
        """Keep a table that was just read: with its file if the memory has room for it, else only its index."""
        if self._has_room(2 * len(table)):
            self._keep("table", name, table, 2 * len(table))
        else:
            index = table.without_data(lambda start, end: self._part(name, start, end))
            self._keep("index", name, index, index.memory)

    def _has_room(self, size: int) -> bool:
        with self._lock:
            return self._used + size <= self.memory_bytes

    def _part(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of the file of a range."""
        part = None if self.cache is None else self.cache.part(name, start, end, self._space)
        return bytes(self.store.get(self.key(name), start, end)) if part is None else part

    def _read(self, name: str, read: Callable[[Table], _T], *, keep: Callable[[str, Table], None] | None = None) -> _T:
        """Return what `read` returns for a table. A damaged file in the local cache is fetched again."""
        kept = self._get("table", name)
        for again in (True, False):
            try:
                table = kept if isinstance(kept, Table) else Table(self.data(name), blocks=self._blocks)
                result = read(table)
                break
            except CorruptTable as error:
                kept = None
                if self.cache is not None:
                    self.cache.drop(name, self._space)
                if self.cache is None or not again:
                    raise CorruptTable(f"{self.key(name)}: {error}") from None
        if keep is not None and table is not kept:
            keep(name, table)
        return result

    def _drop(self, tier: str, name: str) -> None:
        with self._lock:
            _, size = self._kept.pop((tier, name), (None, 0))
            self._used -= size

    def _get(self, tier: str, name: str) -> object | None:
        with self._lock:
            entry = self._kept.get((tier, name))
            if entry is None:
                return None
            self._kept.move_to_end((tier, name))
            return entry[0]

    def _keep(self, tier: str, name: str, value: object, size: int) -> None:
        with self._lock:
            _, old = self._kept.pop((tier, name), (None, 0))
            self._kept[tier, name] = (value, size)
            self._used += size - old
            # The last read is kept whatever its size, because it is in use.
            while self._used > self.memory_bytes and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self._used -= freed
