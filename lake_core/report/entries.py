"""The contents of a ref: folders, datasets and plain files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.lake.state.dataset_record import dataset_above

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    start_after = ""
    while True:
        for meta in state.list(prefix, start_after=start_after):
            dataset = dataset_above(meta.key, datasets)
            name, slash, _ = meta.key[len(prefix) :].partition("/")
            if dataset is not None and (recursive or dataset.path == prefix + name):
                yield _dataset_row(dataset.path, dataset.format)
                start_after = f"{dataset.path}/{_LAST}"
                break
            if slash and not recursive:
                yield {"kind": "folder", "name": f"{prefix}{name}/"}
                start_after = f"{prefix}{name}/{_LAST}"
                break
            yield _file_row(meta)
        else:
            return


def _dataset_row(path: str, format: str) -> dict[str, Any]:
    return {"kind": format, "name": path}


def _file_row(meta: ObjectMeta) -> dict[str, Any]:
    return {"kind": "file", "name": meta.key, "size": meta.size, "modified": meta.last_modified}
