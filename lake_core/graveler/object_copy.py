"""Copies of the objects that records name, into the storage namespace of a lakeFS repository."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists
from lake_core.graveler.entry import AddressType, Entry
from lake_core.store.large_object import read_in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

    from lake_core.graveler.record import Record
    from lake_core.store import ObjectStore

_BATCH = 1024


class ObjectCopy:
    """Copies objects into `target`, and sets the address of each record to that of the copy.

    `read` returns the bytes [start, end) of an entry's object. `may_exist` is False if no earlier export can have
    copied any of the objects. `progress` is called with "object" and the number of objects that were copied.
    """

    def __init__(
        self,
        target: ObjectStore,
        read: Callable[[Entry, int, int], bytes],
        pool: Executor,
        *,
        may_exist: bool,
        progress: Callable[[str, int], None] | None = None,
    ) -> None:
        self._target = target
        self._read = read
        self._pool = pool
        self._may_exist = may_exist
        self._progress = progress
        self._copied: set[str] = set()
        self.count = 0
        self.bytes = 0

    def moved(self, changes: Iterable[tuple[bytes, Record | None]]) -> Iterator[tuple[bytes, Record | None]]:
        """Copy the objects to keys below `data/`. Yield each change with the address of the copy."""
        source = iter(changes)
        while batch := list(islice(source, _BATCH)):
            entries = [None if record is None else Entry.decode(record.value) for _, record in batch]
            names = ["" if entry is None else _data_key(entry) for entry in entries]
            missing = {
                name: entry
                for name, entry in zip(names, entries, strict=True)
                if entry is not None and name not in self._copied
            }
            for size in self._pool.map(self._copy, missing, missing.values()):
                self.count += size is not None
                self.bytes += size or 0
            self._copied.update(missing)
            if self._progress is not None and missing:
                self._progress("object", self.count)
            for (key, record), entry, name in zip(batch, entries, names, strict=True):
                yield key, None if record is None or entry is None else _moved(record, entry, name)

    def _copy(self, name: str, entry: Entry) -> int | None:
        """Copy an object. Return its size, or None if it already exists."""
        if self._may_exist and self._target.exists(name):
            return None
        data = read_in_parts(entry.size, partial(self._read, entry))
        try:
            self._target.put(name, data, if_absent=True)
        except AlreadyExists:
            return None
        return len(data)


def _moved(record: Record, entry: Entry, name: str) -> Record:
    # lakeFS distinguishes contents only by size and etag, so any other difference has to go into one of these.
    etag = entry.etag if entry.identity == record.identity else record.identity.hex()
    return replace(entry, address=name, address_type=AddressType.RELATIVE, etag=etag).record(record.key)


def _data_key(entry: Entry) -> str:
    """Return the key of an object in the export. A second export finds the object by the same key."""
    digest = hashlib.sha256(f"{entry.address_type:d} {entry.size} {entry.etag} {entry.address}".encode()).hexdigest()
    return f"data/{digest[:4]}/{digest}"
