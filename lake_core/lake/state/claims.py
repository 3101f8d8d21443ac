"""The folders below the root that belong to the lake. Collection looks for unknown data files only in them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from lake_core.errors import AlreadyExists
from lake_core.lake.errors import DatasetExists
from lake_core.lake.state.dataset_record import path_above

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.store import ObjectStore

PATHS = "_lake/paths"


def claim(root: ObjectStore, path: str, format: str, *, occupied: bool = False) -> None:
    """Record that a folder holds a dataset, before anything is written there.

    With `occupied`, the existing files are the dataset's.

    Raises DatasetExists if the folder holds files of another program.
    """
    key = _key(path)
    if root.exists(key):
        return
    if not occupied:
        stranger = next(iter(root.list(f"{path}/")), None)
        # In between, another session may have claimed the folder and begun to write.
        if stranger is not None and not root.exists(key):
            below = path_above(stranger.key, set(claimed_paths(root)))
            if below is not None:
                raise DatasetExists(
                    f"the folder {path!r} holds the files of {below!r}, a dataset of this lake that was dropped or is "
                    "on another branch, and datasets cannot be nested: choose another path"
                )
            raise DatasetExists(
                f"the folder {path!r} holds files such as {stranger.key!r}, which are not in the lake: run `lake "
                f"import {path}`, or import them in Python with session.import_delta({path!r}) for a Delta "
                "table, session.import_parquet for Parquet files and session.import_objects for others; "
                "or choose another path"
            )
    try:
        root.put(key, format.encode(), if_absent=True)
    except AlreadyExists:
        return


def disclaim(root: ObjectStore, path: str) -> None:
    """Record that the folder no longer belongs to the lake."""
    root.delete([_key(path)])


def is_claimed(root: ObjectStore, path: str) -> bool:
    """Return whether the folder belongs to the lake."""
    return root.exists(_key(path))


def claimed(root: ObjectStore) -> Iterator[tuple[str, str]]:
    """Yield the path and format of the folders that belong to the lake."""
    for path in claimed_paths(root):
        yield path, root.get(_key(path)).decode()


def claimed_paths(root: ObjectStore) -> Iterator[str]:
    """Yield the paths of the folders that belong to the lake."""
    return (unquote(marker.key[len(PATHS) + 1 :]) for marker in root.list(f"{PATHS}/"))


def _key(path: str) -> str:
    return f"{PATHS}/{quote(path, safe='')}"
