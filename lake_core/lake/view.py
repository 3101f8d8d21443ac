"""A state of the lake: a tree of fixed-name objects, and on top of it what a session has changed and not applied yet."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lake_core.graveler import Entry, Graveler
from lake_core.lake.content import Item, item_of, nanoseconds
from lake_core.lake.errors import DamagedLake
from lake_core.store.key import check_key

DATASETS = "_lake/datasets/"
"""Where a tree registers its datasets: the path follows."""
RESERVED = ("_lake/", "_lakefs/")
"""Prefixes that belong to the lake itself."""


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """A dataset as a tree registers it."""

    path: str
    format: str
    id: str
    """The same for all states of the dataset, on all branches."""
    dropped: bool = False
    """Its log stays, and goes on if a dataset is created there again; to readers of the lake it is gone."""
    imported: bool = False
    """It stood in place before the lake knew it: its log is taken as it is."""

    @property
    def key(self) -> str:
        return f"{DATASETS}{self.path}"

    def item(self, now: datetime) -> Item:
        """The record as an entry of the tree: without bytes, all in its metadata."""
        flags = {name: "true" for name in ("dropped", "imported") if getattr(self, name)}
        metadata = {"format": self.format, "id": self.id} | flags
        return Item(Entry("", 0, last_modified=nanoseconds(now), metadata=metadata))

    @classmethod
    def of(cls, key: str, item: Item) -> DatasetRecord:
        """The record that stands at a key of the registry."""
        told = item.entry.metadata
        if "format" not in told or "id" not in told:
            raise DamagedLake(f"the tree's entry {key!r} does not register a dataset")
        return cls(key[len(DATASETS) :], told["format"], told["id"], told.get("dropped") == "true", told.get("imported") == "true")


@dataclass(slots=True)
class Overlay:
    """Changes on a tree that are not part of it yet, by key; None deletes. Safe to use from many threads."""

    items: dict[str, Item | None] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    """In order."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def set(self, key: str, item: Item | None) -> None:
        """Change a key."""
        with self.lock:
            if key not in self.items:
                insort(self.keys, key)
            self.items[key] = item

    def forget(self, key: str) -> None:
        """Leave a key as the tree has it."""
        with self.lock:
            if self.items.pop(key, self) is not self:
                del self.keys[bisect_left(self.keys, key)]

    def under(self, prefix: str, start_after: str = "") -> list[str]:
        """The changed keys that start with `prefix` and sort after `start_after`, in order."""
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

    def get(self, key: str) -> Item | None:
        """What stands at a key, None for nothing."""
        with self.overlay.lock:
            if key in self.overlay.items:
                return self.overlay.items[key]
        found = self.graveler.get(self.tree, key.encode())
        return None if found is None else item_of(found)

    def get_many(self, keys: Sequence[str]) -> list[Item | None]:
        """`get` of each."""
        with self.overlay.lock:
            changed = {key: self.overlay.items[key] for key in keys if key in self.overlay.items}
        rest = [key for key in keys if key not in changed]
        found = self.graveler.get_many(self.tree, [key.encode() for key in rest]) if rest else []
        stored = {key: None if record is None else item_of(record) for key, record in zip(rest, found, strict=True)}
        return [changed[key] if key in changed else stored[key] for key in keys]

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, Item]]:
        """Keys that start with `prefix` and sort after `start_after`, in order, with what stands there."""
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


def dataset_path(path: str) -> str:
    """A dataset's path in its normal form. Raises InvalidKey."""
    return check_key(path.strip("/") if isinstance(path, str) else path)


def dataset_above(key: str, datasets: Mapping[str, DatasetRecord]) -> DatasetRecord | None:
    """The dataset in whose folder a key lies."""
    parts = key.split("/")
    for length in range(1, len(parts)):
        found = datasets.get("/".join(parts[:length]))
        if found is not None:
            return found
    return None


def read_datasets(view: View) -> dict[str, DatasetRecord]:
    """The datasets that a state registers, dropped ones too, by path."""
    return {record.path: record for key, item in view.list(DATASETS) if (record := DatasetRecord.of(key, item))}
