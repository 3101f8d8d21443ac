"""The files of a state by key: plain files and logs from its tree, and data files, which are not in the tree."""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from lake_core.errors import InvalidKey, NotFound
from lake_core.lake.errors import ContentMissing
from lake_core.lake.state.dataset_record import dataset_above

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.lake.filesystem.files import OpenState
    from lake_core.lake.state.dataset_view import DatasetView
    from lake_core.store import ObjectMeta

_HIDDEN = re.compile(r"(?:^|/)(?:\.|_[^/=]*(?:/|$))")
"""Folders such as that of change files, which only readers of the format use."""
_PASSED = 100
"""How many keys of one folder are skipped before a new listing starts after the folder."""
_HEADS = 16
"""How many data files are looked up one by one; if there are more, their folder is listed."""


def file_info(front: str, meta: ObjectMeta) -> dict[str, Any]:
    """Return fsspec's description of a file."""
    time = meta.last_modified
    return {
        "name": front + meta.key,
        "size": meta.size,
        "type": "file",
        "created": time,
        "modified": time,
        "mtime": time.timestamp(),
        "ETag": meta.etag,
    }


def folder_info(name: str) -> dict[str, Any]:
    """Return fsspec's description of a folder."""
    return {"name": name, "size": 0, "type": "directory"}


def children(open_state: OpenState, prefix: str, front: str) -> Iterator[dict[str, Any]]:
    """List what is directly in a folder ("" or ending in "/"). Content of subfolders is skipped."""
    at: str | None = ""
    last = ""
    while at is not None:
        position, at, passed = at, None, 0
        for meta in below(open_state, prefix, position, deep=False):
            name, slash, _ = meta.key[len(prefix) :].partition("/")
            if not slash:
                yield file_info(front, meta)
            elif name != last:
                yield folder_info(f"{front}{prefix}{name}")
                last, passed = name, 0
            else:
                passed += 1
                if passed > _PASSED:
                    at = f"{prefix}{name}/\U0010ffff"
                    break


def is_folder(open_state: OpenState, prefix: str) -> bool:
    """Return whether a folder (ending in "/") has any content."""
    try:
        if next(iter(open_state.state.list(prefix)), None) is not None:
            return True
        record = dataset_above(f"{prefix}x", open_state.state.datasets())
    except InvalidKey:
        return False
    if record is None:
        return False
    inner = prefix[len(record.path) + 1 :]
    files = _files(open_state, open_state.state.folder_of(record))
    at = bisect_left(files, inner)
    return at < len(files) and files[at].startswith(inner)


def below(open_state: OpenState, prefix: str, start_after: str = "", *, deep: bool = True) -> Iterator[ObjectMeta]:
    """List what a state has under a folder, with the live files of the dataset that it is part of, in order.

    `deep`: also those of the datasets further down, after the first key of each. Raises ContentMissing.
    """
    state = open_state.state
    try:
        stored = state.list(prefix, start_after)
    except InvalidKey:
        return
    datasets = state.datasets()
    inside = dataset_above(f"{prefix}x", datasets)
    if inside is not None:
        yield from heapq.merge(
            stored, _live(open_state, state.folder_of(inside), prefix, start_after), key=lambda meta: meta.key
        )
        return
    pending = sorted((f"{path}/", path) for path in datasets if deep and path.startswith(prefix))
    pending.reverse()
    for meta in stored:
        yield meta
        while pending and pending[-1][0] <= meta.key:
            folder, path = pending.pop()
            yield from _live(open_state, state.folder_of(datasets[path]), folder, start_after)


def _live(open_state: OpenState, view: DatasetView, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
    """List a dataset's live data files under a prefix, from the listing of the folder with all states' files."""
    folder = f"{view.record.path}/"
    inner = prefix[len(folder) :]
    files = _files(open_state, view)
    keys = files[bisect_left(files, inner) : bisect_left(files, f"{inner}\U0010ffff")]
    if start_after:
        keys = [key for key in keys if folder + key > start_after]
    metas: dict[str, ObjectMeta] = {}
    if len(keys) > _HEADS:
        requested = set(keys)
        metas = {meta.key: meta for meta in view.data_root.list(inner) if meta.key in requested}
    for key in keys:
        try:
            meta = metas.get(key) or view.data_root.head(key)
        except NotFound:
            raise ContentMissing(
                f"{folder}{key} is missing, though {open_state.state.name} refers to it: "
                "run `lake verify` to find what else is missing"
            ) from None
        yield meta.with_key(folder + key)


def _files(open_state: OpenState, view: DatasetView) -> list[str]:
    """List the data files of a dataset, in order."""
    at = (view.record.path, open_state.state.view.tree)
    files = open_state.live.get(at)
    if files is None or len(open_state.state.view.overlay):
        files = sorted({key for key in view.format.reachable(view, None) if not _HIDDEN.search(key)})
        if not len(open_state.state.view.overlay):
            open_state.live[at] = files
    return files
