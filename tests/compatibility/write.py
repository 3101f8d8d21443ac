"""Writes data for later versions to read: run `python -m tests.compatibility.write` after a change of version."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import zarr

from lake_core import Lake, __version__
from lake_core.icechunk import Repository
from lake_core.lake.lake_format import VERSION as FORMAT_VERSION
from lake_core.pool import PoolLake

DATA = Path(__file__).parent / "data"
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def write_lake(folder: Path) -> None:
    """Write a lake with a dataset of each format, two branches, a tag, and a session that is open."""
    lake = Lake.create(folder)
    with lake.session(message="first") as s:
        table = s.create_delta("tables/orders", SCHEMA, partition_by=["day"])
        table.append(pa.table({"id": [1, 2], "day": ["a", "b"]}), txn=("writer", 1))
        zarr.create_array(
            s.create_icechunk("arrays/grid").store, name="t", data=np.array([[1, 2], [3, 4]]), chunks=(1, 2)
        )
        s.create_pool("pools/events", key="ts", order="asc").load(
            [{"ts": 1, "level": "info"}, {"ts": 2, "n": 5}], txn=("writer", 1)
        )
        s.put("notes.txt", b"hello")
    lake.create_tag("v1")
    lake.create_branch("dev")
    with lake.session("dev", message="second") as s:
        s.delta("tables/orders").append(pa.table({"id": [3], "day": ["a"]}))
        s.put("notes.txt", b"changed")
    with lake.open_session(id="open").join(task="t") as writer:
        writer.put("staged.txt", b"staged")


def write_repository(folder: Path) -> None:
    """Write a repository of its own, with a branch and a tag."""
    repository = Repository.create(folder)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="t", data=np.arange(100), chunks=(10,))
    repository.create_tag("v1", session.commit("first", txn=("writer", 1)))
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="t")[:10] = 7
    session.commit("second")


def write_pools(folder: Path) -> None:
    """Write a Zed lake with a pool of two loads, the second on a branch."""
    pool = PoolLake.create(folder).create_pool("events", key="ts", order="desc")
    pool.load([{"ts": 1, "level": "info"}, {"ts": 3, "level": None}], txn=("writer", 1))
    pool.create_branch("dev")
    pool.load([{"ts": 2, "where": {"x": 1.5}}], branch="dev")


WRITERS = {"lake": write_lake, "repository": write_repository, "pools": write_pools}


def archive_of(name: str) -> Path:
    """Return the file that keeps what this version writes; of lakes each version of their format is kept."""
    version = f"{__version__}-format-{FORMAT_VERSION}" if name == "lake" else __version__
    return DATA / f"{name}-{version}.tar.gz"


def main() -> None:
    """Write each, and pack it under the version."""
    for name, write in WRITERS.items():
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / name)
            with tarfile.open(archive_of(name), "w:gz") as archive:
                archive.add(Path(folder) / name, name)


if __name__ == "__main__":
    main()
