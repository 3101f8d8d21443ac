"""Repositories with something to expire, collect and merge, and what must survive all of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import zarr

from lake_core.icechunk import Repository, RepositoryConfig
from lake_core.store import MemoryStore, ObjectStore

FUTURE = datetime.now(UTC) + timedelta(days=365)
FOLDERS = ("snapshots", "transactions", "manifests", "chunks")


def theirs(folder: Path) -> icechunk.Repository:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))


def write(repository: Any, index: int, value: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    zarr.open_array(session.store, path="a")[index] = value
    return str(session.commit(f"{index} = {value}"))


def values(repository: Any, **ref: str) -> list[int]:
    session = repository.readonly_session(**(ref or {"branch": "main"}))
    return list(zarr.open_array(session.store, path="a", mode="r")[...].tolist())  # type: ignore[union-attr]


def written_at(repository: Any, snapshot_id: str) -> datetime:
    return repository.lookup_snapshot(snapshot_id).written_at  # type: ignore[no-any-return]


def repository_with_history(store: ObjectStore | None = None) -> tuple[Repository, list[str]]:
    """Commit an array of 8 native chunks five times.

    A tag and a branch are at the second commit, and the branch has a commit of its own.
    """
    repository = Repository.create(store or MemoryStore(), config=RepositoryConfig(inline_chunk_threshold_bytes=0))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(8,), chunks=(1,), dtype="i4", compressors=None)[:] = range(8)
    ids = [str(session.commit("create"))]
    ids += [write(repository, number, 10 * number) for number in (1, 2, 3, 4)]
    repository.create_tag("second", ids[1])
    repository.create_branch("side", ids[1])
    write(repository, 7, 70, "side")
    time.sleep(0.001)
    return repository, ids


def objects(store: ObjectStore) -> dict[str, set[str]]:
    """Return the names of the objects in each folder."""
    return {folder: {meta.key.partition("/")[2] for meta in store.list(folder + "/")} for folder in FOLDERS}


def read_everything(repository: Repository) -> dict[str, list[list[int]]]:
    """Return what every snapshot of every branch and tag holds: an error if anything that is reached is gone."""
    contents = {}
    for kind, names in (("branch", repository.list_branches()), ("tag", repository.list_tags())):
        for name in names:
            history = list(repository.ancestry(**{kind: name}))
            contents[name] = [values(repository, snapshot_id=info.id) for info in history if info.parent_id is not None]
            for info in history[:-1]:
                repository.diff(from_snapshot_id=info.parent_id, to_snapshot_id=info.id)
    return contents


def copy_of(store: ObjectStore) -> MemoryStore:
    """Return a store with the same objects."""
    copy = MemoryStore()
    for meta in store.list():
        copy.put(meta.key, store.get(meta.key))
    return copy
