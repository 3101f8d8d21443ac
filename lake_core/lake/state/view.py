"""A state of the lake: a tree of objects with fixed names, and the changes of a session on top of it."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from lake_core.graveler import Record
from lake_core.graveler.record import split_value
from lake_core.lake.state.content import EPOCH, Item, item_of
from lake_core.lake.state.dataset_record import DATASETS, DatasetRecord
from lake_core.store import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.graveler import Graveler

RESERVED = ("_lake/", "_lakefs/")
"""Prefixes that belong to the lake itself."""
_FEW = 16
"""Up to so many entries are decoded faster one by one than by columns, also because these are often cached."""


@dataclass(slots=True)
class Overlay:
    """Changes that are not part of a tree yet, by key. None deletes. Safe to use from many threads."""

    items: dict[str, Item | None] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    """The changed keys in order."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def set(self, key: str, item: Item | None) -> None:
        """Change a key."""
        with self.lock:
            if key not in self.items:
                insort(self.keys, key)
            self.items[key] = item

    def forget(self, key: str) -> None:
        """Remove the change of a key."""
        with self.lock:
            if self.items.pop(key, self) is not self:
                del self.keys[bisect_left(self.keys, key)]

    def under(self, prefix: str, start_after: str = "") -> list[str]:
        """List the changed keys that start with `prefix` and sort after `start_after`, in order."""
        with self.lock:
            at = max(bisect_left(self.keys, prefix), bisect_right(self.keys, start_after) if start_after else 0)
            end = at
            while end < len(self.keys) and self.keys[end].startswith(prefix):
                end += 1
            return self.keys[at:end]

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class View:
    """A tree, by its metarange's id, with the changes on top of it."""

    graveler: Graveler
    tree: str
    overlay: Overlay = field(default_factory=Overlay)

    def copy(self) -> View:
        """Return a copy that later changes of this view do not affect."""
        with self.overlay.lock:
            return View(self.graveler, self.tree, Overlay(dict(self.overlay.items), list(self.overlay.keys)))

    def is_tree_of(self, other: View) -> bool:
        """Return whether both are one tree, without changes that are only in memory."""
        return self.tree == other.tree and not self.overlay and not other.overlay

    def get(self, key: str) -> Item | None:
        """Return the item at a key, or None."""
        with self.overlay.lock:
            if key in self.overlay.items:
                return self.overlay.items[key]
        record = self.graveler.get(self.tree, key.encode())
        return None if record is None else item_of(record)

    def get_many(self, keys: Sequence[str]) -> list[Item | None]:
        """Return what `get` returns for each key."""
        with self.overlay.lock:
            changed = {key: self.overlay.items[key] for key in keys if key in self.overlay.items}
        stored_keys = [key for key in keys if key not in changed]
        records = self.graveler.get_many(self.tree, [key.encode() for key in stored_keys]) if stored_keys else []
        stored = {
            key: None if record is None else item_of(record) for key, record in zip(stored_keys, records, strict=True)
        }
        return [changed[key] if key in changed else stored[key] for key in keys]

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, Item]]:
        """Yield the keys that start with `prefix` and sort after `start_after`, in order, with their items."""
        with self.overlay.lock:
            names = self.overlay.under(prefix, start_after)
            changed = [(name, self.overlay.items[name]) for name in names]
        stored = self.graveler.scan(self.tree, prefix.encode(), start_after.encode())
        pending = next(stored, None)
        for name, item in changed:
            encoded = name.encode()
            while pending is not None and pending.key < encoded:
                yield pending.key.decode(), item_of(pending)
                pending = next(stored, None)
            if pending is not None and pending.key == encoded:
                pending = next(stored, None)
            if item is not None:
                yield name, item
        while pending is not None:
            yield pending.key.decode(), item_of(pending)
            pending = next(stored, None)

    def list_metadata(self, prefix: str = "", start_after: str = "") -> Iterator[ObjectMeta]:
        """Yield the metadata of the objects that `list` would yield. This is faster."""
        with self.overlay.lock:
            is_changed = bool(self.overlay.under(prefix, start_after))
        if is_changed:
            yield from (item.meta(key) for key, item in self.list(prefix, start_after))
            return
        for keys, values in self.graveler.scan_columns(self.tree, prefix.encode(), start_after.encode()):
            if len(values) <= _FEW:
                for key, value in zip(keys, values, strict=True):
                    yield item_of(Record(key, *split_value(value))).meta(key.decode())
                continue
            from lake_core.graveler.entry_columns import entry_columns  # here, because few records do without NumPy

            columns = entry_columns(values)
            for key, size, etag, modified in zip(keys, columns.sizes, columns.etags, columns.modified, strict=True):
                yield ObjectMeta(key.decode(), size, etag, EPOCH + timedelta(microseconds=modified))


def read_datasets(view: View) -> dict[str, DatasetRecord]:
    """Return the datasets that a state registers, also dropped ones, by path."""
    return {record.path: record for key, item in view.list(DATASETS) if (record := DatasetRecord.of(key, item))}
