"""Lakes, repositories and pools that earlier versions wrote, opened, read and written by this one."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
import zarr

from lake_core import Lake
from lake_core.icechunk import Repository
from lake_core.pool import Pool, PoolLake
from lake_core.testing.manual_clock import ManualClock
from tests.compatibility.write import DATA


def kept(name: str) -> pytest.MarkDecorator:
    """Run a test with each version of a lake, a repository or pools that is kept."""
    versions = sorted(path.name[len(name) + 1 :].removesuffix(".tar.gz") for path in DATA.glob(f"{name}-*.tar.gz"))
    return pytest.mark.parametrize("version", versions)


Unpack = Callable[[str, str], Path]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    def unpacked(name: str, version: str) -> Path:
        with tarfile.open(DATA / f"{name}-{version}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / name

    return unpacked


def clock_of(folder: Path) -> ManualClock:
    """Return a clock at the time when the newest file was written, because sessions and identifiers expire."""
    newest = max(path.stat().st_mtime for path in folder.rglob("*") if path.is_file())
    return ManualClock(datetime.fromtimestamp(newest, UTC))


def opened(folder: Path) -> Lake:
    """Open a lake at the time when it was written."""
    return Lake.open(folder, clock=clock_of(folder))


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


@pytest.mark.parametrize(("ref", "expected"), [("main", [1, 2]), ("v1", [1, 2]), ("dev", [1, 2, 3])])
@kept("lake")
def test_tables_of_a_lake_are_read_as_of_a_ref(version: str, unpack: Unpack, ref: str, expected: list[int]) -> None:
    assert ids(opened(unpack("lake", version)).delta("tables/orders", ref=ref).to_arrow()) == expected


@pytest.mark.parametrize(("ref", "content"), [("main", b"hello"), ("dev", b"changed"), ("open", b"hello")])
@kept("lake")
def test_files_of_a_lake_are_read_as_of_a_ref(version: str, unpack: Unpack, ref: str, content: bytes) -> None:
    assert opened(unpack("lake", version)).at(ref).get("notes.txt") == content


@kept("lake")
def test_arrays_of_a_lake_are_read(version: str, unpack: Unpack) -> None:
    store = opened(unpack("lake", version)).icechunk("arrays/grid").readonly_session("main").store
    assert zarr.open_array(store, path="t", mode="r")[:].tolist() == [[1, 2], [3, 4]]


@kept("lake")
def test_pools_of_a_lake_are_read(version: str, unpack: Unpack) -> None:
    pool = opened(unpack("lake", version)).pool("pools/events")
    assert list(pool.scan().records()) == [{"ts": 1, "level": "info"}, {"ts": 2, "n": 5}]


@kept("lake")
def test_a_lake_is_sound(version: str, unpack: Unpack) -> None:
    assert opened(unpack("lake", version)).maintenance.verify() == []


@kept("lake")
def test_branches_of_a_lake_are_merged(version: str, unpack: Unpack) -> None:
    lake = opened(unpack("lake", version))
    lake.merge("dev", into="main")
    assert ids(lake.delta("tables/orders").to_arrow()) == [1, 2, 3]


@kept("lake")
def test_markers_of_a_lake_hold(version: str, unpack: Unpack) -> None:
    with opened(unpack("lake", version)).session() as session:
        result = session.delta("tables/orders").append(pa.table({"id": [9], "day": ["z"]}), txn=("writer", 1))
    assert result.skipped


@kept("lake")
def test_open_sessions_of_a_lake_are_joined(version: str, unpack: Unpack) -> None:
    lake = opened(unpack("lake", version))
    assert lake.get_session("open").get("staged.txt") == b"staged"


@kept("lake")
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_open_sessions_of_a_lake_are_written_to_and_published(version: str, unpack: Unpack, is_upgraded: bool) -> None:
    lake = opened(unpack("lake", version))
    if is_upgraded:
        lake.maintenance.upgrade()
        lake = Lake.open(lake.repository.root, clock=lake.repository.clock)
    with lake.get_session("open").join(task="later") as writer:
        writer.put("later.txt", b"later")
    lake.get_session("open").publish()
    assert [lake.at().get(key) for key in ("staged.txt", "later.txt")] == [b"staged", b"later"]


@kept("repository")
def test_repositories_are_read_at_a_tag(version: str, unpack: Unpack) -> None:
    store = Repository.open(unpack("repository", version)).readonly_session(tag="v1").store
    assert zarr.open_array(store, path="t", mode="r")[:].tolist() == list(range(100))


@kept("repository")
def test_repositories_are_committed_on(version: str, unpack: Unpack) -> None:
    repository = Repository.open(unpack("repository", version))
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="t")[90:] = 8
    session.commit("third")
    array = zarr.open_array(repository.readonly_session("main").store, path="t", mode="r")
    assert array[:].tolist() == [7] * 10 + list(range(10, 90)) + [8] * 10


def events(folder: Path) -> Pool:
    return PoolLake.open(folder, clock=clock_of(folder)).pool("events")


@kept("pools")
def test_pools_are_read(version: str, unpack: Unpack) -> None:
    assert list(events(unpack("pools", version)).scan().records()) == [
        {"ts": 3, "level": None},
        {"ts": 1, "level": "info"},
    ]


@kept("pools")
def test_branches_of_pools_are_merged(version: str, unpack: Unpack) -> None:
    pool = events(unpack("pools", version))
    pool.merge("dev", into="main")
    assert [record["ts"] for record in pool.scan().records()] == [3, 2, 1]


@kept("pools")
def test_markers_of_pools_hold(version: str, unpack: Unpack) -> None:
    assert events(unpack("pools", version)).load([{"ts": 9}], txn=("writer", 1)) is None
