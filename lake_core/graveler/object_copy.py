"""Copies of the objects that records name, into the storage namespace of a lakeFS repository.

Objects are copied in groups. Each group is a task of a runner.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from lake_core import runtime
from lake_core.errors import AlreadyExists
from lake_core.graveler.entry import AddressType, Entry
from lake_core.store.large_object import read_in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lake_core.graveler.record import Record
    from lake_core.runner import Runner
    from lake_core.store import ObjectStore

_BATCH = 1 << 14
_OBJECTS_A_TASK = 64
_BYTES_A_TASK = 256 << 20

TreeChange: TypeAlias = "tuple[int, bytes | None, Record | None]"
"""The number of a tree, a key, and its new record: None if it is removed. Without a key, only the number counts."""


class ObjectCopy:
    """Copies objects into `target`, and sets the address of each record to that of the copy.

    Args:
        target: The storage namespace.
        read: Returns the bytes [start, end) of an entry's object. Picklable if `run` calls tasks elsewhere.
        run: Calls the tasks.
        workers: The number of objects that a task copies at the same time.
        may_exist: Whether an earlier export may have copied some of the objects.
        progress: Called with "object" and the number of objects that were copied.
    """

    def __init__(
        self,
        target: ObjectStore,
        read: Callable[[Entry, int, int], bytes],
        run: Runner,
        *,
        workers: int,
        may_exist: bool,
        progress: Callable[[str, int], None] | None = None,
    ) -> None:
        self._target = target
        self._read = read
        self._run = run
        self._workers = workers
        self._may_exist = may_exist
        self._progress = progress
        self._copied: set[str] = set()
        self.count = 0
        self.bytes = 0

    def moved(self, changes: Iterable[TreeChange]) -> Iterator[TreeChange]:
        """Copy the objects to keys below `data/`. Yield each change with the address of the copy.

        The changes of many trees are read ahead, so that small ones do not each wait for tasks of their own.
        """
        source = iter(changes)
        while batch := list(islice(source, _BATCH)):
            entries = [None if record is None else Entry.decode(record.value) for _, _, record in batch]
            names = ["" if entry is None else _data_key(entry) for entry in entries]
            self._copy(
                {
                    name: entry
                    for name, entry in zip(names, entries, strict=True)
                    if entry is not None and name not in self._copied
                }
            )
            for (tree, key, record), entry, name in zip(batch, entries, names, strict=True):
                yield tree, key, None if record is None or entry is None else _moved(record, entry, name)

    def _copy(self, missing: Mapping[str, Entry]) -> None:
        task = CopyTask(self._target, self._read, self._may_exist, self._workers, tuple(_groups(missing.items())))
        for sizes in self._run(task, len(task.groups)):
            copied = [size for size in sizes if size is not None]
            self.count += len(copied)
            self.bytes += sum(copied)
            if self._progress is not None:
                self._progress("object", self.count)
        self._copied.update(missing)


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copies a group of objects. Picklable if `read` is."""

    target: ObjectStore
    read: Callable[[Entry, int, int], bytes]
    may_exist: bool
    workers: int
    groups: Sequence[Sequence[tuple[str, Entry]]]
    """The new names of the objects of each group, with their entries."""

    def __call__(self, index: int) -> list[int | None]:
        """Copy the objects of the group of this number.

        Return for each the number of bytes copied, or None if it already exists.
        """
        group = self.groups[index]
        with runtime.thread_pool(min(self.workers, len(group))) as pool:
            return list(pool.map(self._copy, group))

    def _copy(self, item: tuple[str, Entry]) -> int | None:
        name, entry = item
        if self.may_exist and self.target.exists(name):
            return None
        data = read_in_parts(entry.size, partial(self.read, entry))
        try:
            self.target.put(name, data, if_absent=True)
        except AlreadyExists:
            # Without an earlier export, an attempt of this task that was lost has copied it.
            return None if self.may_exist else len(data)
        return len(data)


def _groups(objects: Iterable[tuple[str, Entry]]) -> Iterator[list[tuple[str, Entry]]]:
    group: list[tuple[str, Entry]] = []
    size = 0
    for name, entry in objects:
        if len(group) >= _OBJECTS_A_TASK or (group and size + entry.size > _BYTES_A_TASK):
            yield group
            group, size = [], 0
        group.append((name, entry))
        size += entry.size
    if group:
        yield group


def _moved(record: Record, entry: Entry, name: str) -> Record:
    # lakeFS distinguishes contents only by size and etag, so any other difference has to go into one of these.
    etag = entry.etag if entry.identity == record.identity else record.identity.hex()
    return replace(entry, address=name, address_type=AddressType.RELATIVE, etag=etag).record(record.key)


def _data_key(entry: Entry) -> str:
    """Return the key of an object in the export. A second export finds the object by the same key."""
    digest = hashlib.sha256(f"{entry.address_type:d} {entry.size} {entry.etag} {entry.address}".encode()).hexdigest()
    return f"data/{digest[:4]}/{digest}"
