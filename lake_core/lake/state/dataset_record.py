"""Records of datasets in a tree, by path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.graveler import Entry
from lake_core.lake.errors import DamagedLake
from lake_core.lake.state.content import Item, nanoseconds
from lake_core.store.key import check_key

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from datetime import datetime

DATASETS = "_lake/datasets/"
"""The prefix of the keys that register datasets in a tree. The path of the dataset follows."""


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """The record of a dataset in a tree."""

    path: str
    format: str
    id: str
    """An id that all states of the dataset share, on all branches."""
    dropped: bool = False
    """Whether the dataset was dropped. Its log stays, and continues if a dataset is created at the path again."""
    imported: bool = False
    """Whether the dataset existed before it was registered. Its log is then used unchanged."""

    @property
    def key(self) -> str:
        """Return the key of the record in the tree."""
        return f"{DATASETS}{self.path}"

    def item(self, now: datetime) -> Item:
        """Return the entry of the tree that registers the dataset. It has no bytes, only metadata."""
        flags = {name: "true" for name in ("dropped", "imported") if getattr(self, name)}
        metadata = {"format": self.format, "id": self.id} | flags
        return Item(Entry("", 0, last_modified=nanoseconds(now), metadata=metadata))

    @classmethod
    def of(cls, key: str, item: Item) -> DatasetRecord:
        """Read the record at a key of the registry. Raises DamagedLake."""
        metadata = item.entry.metadata
        if "format" not in metadata or "id" not in metadata:
            raise DamagedLake(f"the tree's entry {key!r} does not register a dataset")
        flags = (metadata.get(name) == "true" for name in ("dropped", "imported"))
        return cls(key[len(DATASETS) :], metadata["format"], metadata["id"], *flags)


def dataset_path(path: str) -> str:
    """Return the normal form of a dataset's path. Raises InvalidKey."""
    return check_key(path.strip("/") if isinstance(path, str) else path)


def dataset_above(key: str, datasets: Mapping[str, DatasetRecord]) -> DatasetRecord | None:
    """Return the dataset whose folder contains a key."""
    path = path_above(key, datasets)
    return None if path is None else datasets[path]


def path_above(key: str, paths: Container[str]) -> str | None:
    """Return the dataset's path whose folder contains a key.

    If several do, return the innermost: a dataset may have been created in the folder of a dropped one.
    """
    parts = key.split("/")
    for length in range(len(parts) - 1, 0, -1):
        path = "/".join(parts[:length])
        if path in paths:
            return path
    return None
