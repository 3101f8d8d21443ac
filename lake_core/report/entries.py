"""The contents of a ref: folders, datasets and plain files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.lake.state.dataset_record import dataset_above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake_core.lake.state.state_store import StateStore
    from lake_core.store import ObjectMeta

_LAST = "\U0010ffff"
"""A suffix that sorts after everything in a folder."""


def entries(state: StateStore, path: str, recursive: bool) -> Iterator[dict[str, Any]]:
    """Yield the folders, datasets and plain files under a path. A dataset is one entry."""
    datasets = state.datasets()
    if path in datasets:
        yield _dataset_row(path, datasets[path].format)
        return
    if path and state.exists(path):
        yield _file_row(state.head(path))
        return
    prefix = f"{path}/" if path else ""
    if dataset_above(f"{prefix}x", datasets) is not None:
        yield from _Listing(state.list, prefix, recursive)
        return
    listing = _Listing(state.plain, prefix, recursive)
    for folder in sorted(f"{each}/" for each in datasets if each.startswith(prefix)):
        yield from listing.until(folder)
        if listing.start_after > folder:
            continue  # It is in a folder that is an entry.
        name, _, rest = folder[len(prefix) :].partition("/")
        if recursive or not rest:
            yield _dataset_row(folder[:-1], datasets[folder[:-1]].format)
            listing.start_after = f"{folder}{_LAST}"
        else:
            yield listing.folder(name)
    yield from listing


class _Listing:
    """The files under a prefix, and the folders that they are in, in the order of their keys."""

    def __init__(self, keys: Callable[..., Iterator[ObjectMeta]], prefix: str, recursive: bool) -> None:
        self._keys, self._prefix, self._recursive = keys, prefix, recursive
        self.start_after = ""
        """What was listed already is not listed again."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.until(None)

    def until(self, end: str | None) -> Iterator[dict[str, Any]]:
        """Yield those before a key."""
        while end is None or self.start_after < end:
            for meta in self._keys(self._prefix, start_after=self.start_after):
                if end is not None and meta.key >= end:
                    return
                name, slash, _ = meta.key[len(self._prefix) :].partition("/")
                if slash and not self._recursive:
                    yield self.folder(name)
                    break
                yield _file_row(meta)
            else:
                return

    def folder(self, name: str) -> dict[str, Any]:
        """Return a folder as an entry, and pass over what is in it."""
        self.start_after = f"{self._prefix}{name}/{_LAST}"
        return {"kind": "folder", "name": f"{self._prefix}{name}/"}


def _dataset_row(path: str, format: str) -> dict[str, Any]:
    return {"kind": format, "name": path}


def _file_row(meta: ObjectMeta) -> dict[str, Any]:
    return {"kind": "file", "name": meta.key, "size": meta.size, "modified": meta.last_modified}
