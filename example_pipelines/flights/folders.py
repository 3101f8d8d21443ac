"""The folders of the demos: what is their own is removed or written, and nothing else is touched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from example_pipelines.flights.places import LANDING
from lake_core.store import open_store

MARK = ".flights-demo"
"""A file that tells the demo's own folders."""


def remove_lake(*roots: str) -> None:
    """Remove the lake and the files that an earlier demo left.

    What is not known to be the demo's own is never touched.
    """
    for root in roots:
        store = open_store(root)
        keys = {meta.key for meta in store.list()}
        if keys:
            check_own(root, keys)
            store.delete(sorted(keys - {MARK}))  # the mark stays, so that an interrupted removal can be repeated
            print(f"Removed {root} of an earlier demo")
        store.put(MARK, b"")


def check_own(root: str, keys: Iterable[str]) -> None:
    """End the demo if a folder holds something, by its keys, that is not known to be the demo's own."""
    if MARK not in keys and not is_new_lake(root, keys):
        sys.exit(
            f"{root} holds something, and it is not known to be the demo's: "
            "move it away, or set LAKE_ROOT to another folder."
        )


def is_new_lake(root: str, keys: Iterable[str]) -> bool:
    """Return whether objects are a lake into which nobody has written anything, as `make ui` makes one."""
    from lake_core.lake import Lake

    if {key.partition("/")[0] for key in keys} - {"_lake", "_lakefs"} or not Lake.exists(root):
        return False
    return len(Lake.open(root).log()) == 1


def drop(zone: str, name: str, table: pa.Table) -> None:
    """Put a file into a landing zone, whole: under another name first. A new folder of zones is the demos' own."""
    if not Path(LANDING).exists():
        Path(LANDING).mkdir(parents=True)
        (Path(LANDING) / MARK).touch()
    folder = Path(LANDING) / zone
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / f".{name}")
    os.replace(folder / f".{name}", folder / f"{name}.parquet")
