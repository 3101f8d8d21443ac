"""Plain Zarr v3 stores in a lake, through zarr-python.

They follow the examples of Arraylake's "Transactions and Version Control", one by one.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

from lake_core import Lake
from lake_core.key_rules import key_rules
from lake_core.lake.errors import Conflict
from lake_core.lake.filesystem import LakeFileSystem
from lake_core.lake.state.state_store import StateStore
from lake_core.zarr_arrays import ZarrArrays
from tests.processes import run_together


@pytest.fixture
def arrays(tmp_path: Path) -> Lake:
    """Create a lake with two arrays, `g/foo` and `g/bar`, of 30 ones each in chunks of 10."""
    lake = Lake.create(tmp_path / "lake")
    with lake.session(message="arrays") as s:
        group = zarr.create_group(store(s, "g"))
        for name in ("foo", "bar"):
            group.create_array(name, shape=30, chunks=10, dtype="i8")[:] = np.repeat([1, 2, 3], 10)
    return lake


def store(state: StateStore, path: str) -> FsspecStore:
    """Return a folder of a state as a store for zarr."""
    return FsspecStore.from_mapper(state.filesystem().get_mapper(path))


def array(state: StateStore, name: str = "foo", mode: Any = "r+") -> zarr.Array[Any]:
    return zarr.open_array(store(state, f"g/{name}"), mode=mode)


def read(lake: Lake, name: str = "foo", ref: str = "main") -> list[int]:
    return list(array(lake.at(ref), name, "r")[:])


def chunks(lake: Lake, ref: str = "main", prefix: str = "g/") -> dict[str, str]:
    """Return the content-addressed object of each chunk."""
    view = lake.at(ref).view
    return {key: item.entry.address for key, item in view.list(prefix) if "/c/" in key}


def objects(lake: Lake) -> dict[str, bytes]:
    root = lake.repository.root
    return {meta.key: bytes(root.get(meta.key)) for meta in root.list("_lake/objects/")}


def entries(lake: Lake) -> int:
    return lake.repository.refs().number


# Versions, and where chunks lie


def test_every_version_is_read_by_its_url(arrays: Lake) -> None:
    arrays.create_tag("v1")
    first = arrays.list_branches()["main"]
    with arrays.session() as s:
        array(s)[:] = 7
    for ref in ("v1", first, "main~1"):
        assert list(zarr.open_array(arrays.uri(ref, "g/foo"), mode="r")[:]) == [1] * 10 + [2] * 10 + [3] * 10
    group = zarr.open_group("lake://prod/main/g", mode="r", storage_options={"lakes": {"prod": arrays.url}})
    assert list(group["foo"][:]) == [7] * 30
    assert list(group["bar"][:3]) == [1] * 3
    assert sorted(group.array_keys()) == ["bar", "foo"]
    with pytest.raises(PermissionError, match="session"):
        zarr.open_array(arrays.uri("main", "g/foo"), mode="r+")[:] = 1


def test_equal_chunks_are_stored_once_under_their_hash(arrays: Lake) -> None:
    stored = chunks(arrays)
    assert sorted(stored) == [f"g/{name}/c/{number}" for name in ("bar", "foo") for number in range(3)]
    assert [stored[f"g/foo/c/{number}"] for number in range(3)] == [stored[f"g/bar/c/{number}"] for number in range(3)]
    assert len(set(stored.values())) == 3
    for key, data in objects(arrays).items():
        assert key.rsplit("/", 1)[1] == hashlib.sha256(data).hexdigest()


def test_only_changed_chunks_are_written_and_old_commits_keep_theirs(arrays: Lake) -> None:
    old, before = chunks(arrays), objects(arrays)
    with arrays.session() as s:
        array(s)[10:20] = 22
    new, after = chunks(arrays), objects(arrays)
    assert {key for key in new if new[key] != old[key]} == {"g/foo/c/1"}
    assert set(after) - set(before) == {new["g/foo/c/1"]}
    assert after.items() >= before.items()
    assert read(arrays, ref="main~1") == [1] * 10 + [2] * 10 + [3] * 10
    assert read(arrays) == [1] * 10 + [22] * 10 + [3] * 10


@pytest.mark.parametrize("count", [1, 200])
def test_references_are_published_together(arrays: Lake, count: int) -> None:
    before = entries(arrays)
    with arrays.session() as s:
        zarr.create_array(store(s, "many"), shape=count * 2, chunks=2, dtype="i8")[:] = np.arange(count * 2) + 1
        assert entries(arrays) == before
    assert entries(arrays) == before + 1
    assert len(chunks(arrays, prefix="many/")) == count
    shared = arrays.open_session("main")
    before = entries(arrays)
    fs = LakeFileSystem(lakes={"prod": arrays.url})
    with fs.transaction:
        opened = zarr.open_array(FsspecStore.from_mapper(fs.get_mapper(f"prod/{shared.id}/many")), mode="r+")
        opened[:] = opened[:] + 1
        assert opened[0] == 2
        assert entries(arrays) == before
    assert entries(arrays) == before + 1
    shared.publish()
    assert entries(arrays) == before + 2
    assert list(zarr.open_array(arrays.uri("main", "many"))[:]) == list(range(2, count * 2 + 2))


# Non-cooperative mode


def test_sessions_that_write_different_chunks_both_publish(arrays: Lake) -> None:
    first, second = arrays.session(), arrays.session()
    array(first)[0:20] = 100
    array(second)[20:30] = 200
    first.publish()
    second.publish()
    assert read(arrays) == [100] * 20 + [200] * 10


def test_sessions_that_write_the_same_chunk_conflict_and_the_retry_succeeds(arrays: Lake) -> None:
    first, second = arrays.session(), arrays.session()
    array(first)[0:20] = 100
    array(second)[15:30] = 200
    first.publish()
    with pytest.raises(Conflict, match="g/foo/c/1") as caught:
        second.publish()
    assert caught.value.keys == ("g/foo/c/1",)
    assert caught.value.kinds == {"g/foo/c/1": "BothChanged"}
    assert read(arrays) == [100] * 20 + [3] * 10
    with arrays.session() as again:
        array(again)[15:30] = 200
    assert read(arrays) == [100] * 15 + [200] * 15


# Cooperative mode


def _write_region(uri: str, start: int) -> None:
    zarr.open_array(f"{uri}/g/foo", mode="r+")[start : start + 10] = start + 1000


def test_processes_write_aligned_regions_in_one_session(arrays: Lake) -> None:
    session = arrays.open_session("main", message="cooperative")
    commits = len(arrays.log())
    run_together(_write_region, [(arrays.uri(session.id), start) for start in (0, 10, 20)])
    assert read(arrays) == [1] * 10 + [2] * 10 + [3] * 10
    arrays.get_session(session.id).publish()
    assert read(arrays) == [1000] * 10 + [1010] * 10 + [1020] * 10
    assert len(arrays.log()) == commits + 1


# The consistency problems


def test_a_reader_during_an_overwrite_sees_one_state(arrays: Lake) -> None:
    reader = zarr.open_array(arrays.uri("main", "g/foo"), mode="r")
    assert reader[0] == 1
    stop = threading.Event()
    states: list[set[int]] = []

    def watch() -> None:
        while not stop.is_set():
            states.append({int(value) for value in zarr.open_array(arrays.uri("main", "g/bar"), mode="r")[:]})

    with arrays.session() as s:
        array(s, "bar")[:] = 0
    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(1, 8):
        with arrays.session() as s:
            array(s)[:] = number * 10
            array(s, "bar")[:] = number * 10
    stop.set()
    watcher.join()
    assert states
    assert all(len(values) == 1 for values in states), "a state in which chunks differ was never published"
    assert list(reader[:]) == [1] * 10 + [2] * 10 + [3] * 10, "what is opened stays of its commit"


def test_writers_do_not_clobber_one_another(arrays: Lake) -> None:
    first, second = arrays.session(), arrays.session()
    array(first)[:] = 100
    array(second)[5:25] = 200
    second.publish()
    with pytest.raises(Conflict) as caught:
        first.publish()
    assert set(caught.value.keys) == {f"g/foo/c/{number}" for number in range(3)}
    assert read(arrays) == [1] * 5 + [200] * 20 + [3] * 5


@pytest.mark.parametrize("resizer_first", [True, False])
def test_a_resize_against_a_write_is_a_conflict(arrays: Lake, resizer_first: bool) -> None:
    with arrays.session() as s:
        array(s)[20:30] = 0  # the chunk is not stored: only the shape tells that there is one
    writer, resizer = arrays.session(), arrays.session()
    array(writer)[20:30] = 200
    array(resizer).resize(20)
    first, second = (resizer, writer) if resizer_first else (writer, resizer)
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.kinds == {"g/foo/zarr.json": "ArrayReshaped"}
    assert len(read(arrays)) == (20 if resizer_first else 30)


@pytest.mark.parametrize("resizer_first", [True, False])
def test_an_append_beside_a_write_is_none(arrays: Lake, resizer_first: bool) -> None:
    writer, appender = arrays.session(), arrays.session()
    array(writer)[0:10] = 100
    array(appender).append(np.full(10, 4))
    first, second = (appender, writer) if resizer_first else (writer, appender)
    first.publish()
    second.publish()
    assert read(arrays) == [100] * 10 + [2] * 10 + [3] * 10 + [4] * 10


def test_a_chunk_of_another_data_type_is_a_conflict(arrays: Lake) -> None:
    writer, other = arrays.session(), arrays.session()
    array(writer)[0:10] = 100
    zarr.create_array(store(other, "g/foo"), shape=30, chunks=10, dtype="f4", overwrite=True)
    other.publish()
    with pytest.raises(Conflict):
        writer.publish()


def test_attributes_beside_a_write_are_none(arrays: Lake) -> None:
    writer, other = arrays.session(), arrays.session()
    array(writer)[0:10] = 100
    array(other).update_attributes({"units": "m"})
    other.publish()
    writer.publish()
    stored = array(arrays.at("main"), mode="r")
    assert stored[0] == 100
    assert stored.attrs["units"] == "m"


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_no_strategy_mixes_one_sides_shape_with_the_others_chunks(arrays: Lake, strategy: Any) -> None:
    arrays.create_branch("dev")
    with arrays.session("dev") as s:
        array(s).attrs["units"] = "m"
        array(s)[10:20] = 200
    with arrays.session() as s:
        array(s).resize(20)
    with pytest.raises(Conflict) as caught:
        arrays.merge("dev", strategy=strategy)
    assert caught.value.kinds == {"g/foo/zarr.json": "ArrayReshaped"}


@pytest.mark.parametrize(("strategy", "units"), [("ours", "km"), ("theirs", "m")])
def test_a_strategy_decides_attributes_and_chunks_that_both_wrote(arrays: Lake, strategy: Any, units: str) -> None:
    arrays.create_branch("dev")
    for branch, text, value in (("dev", "m", 100), ("main", "km", 200)):
        with arrays.session(branch) as s:
            array(s).attrs["units"] = text
            array(s)[0:10] = value
    arrays.merge("dev", strategy=strategy)
    merged = array(arrays.at(), mode="r")
    assert (merged.attrs["units"], int(merged[0])) == (units, 100 if units == "m" else 200)


def test_a_chunk_of_an_array_that_is_gone_is_a_conflict(arrays: Lake) -> None:
    with arrays.session() as s:
        array(s)[0:10] = 0
    writer, other = arrays.session(), arrays.session()
    array(writer)[0:10] = 100
    del zarr.open_group(store(other, "g"))["foo"]
    other.publish()
    with pytest.raises(Conflict) as caught:
        writer.publish()
    assert caught.value.kinds == {"g/foo/zarr.json": "ArrayReshaped"}


@pytest.mark.parametrize("creator_first", [True, False])
def test_an_array_in_a_group_that_is_gone_is_a_conflict(arrays: Lake, creator_first: bool) -> None:
    creator, other = arrays.session(), arrays.session()
    zarr.open_group(store(creator, "g"), mode="r+").create_array("new", shape=10, chunks=5, dtype="i8")
    other.filesystem().rm("g", recursive=True)
    first, second = (creator, other) if creator_first else (other, creator)
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.kinds == {"g/zarr.json": "ArrayReshaped"}


def test_sessions_create_and_delete_different_arrays_of_a_group(arrays: Lake) -> None:
    sessions = [arrays.session(isolation="serializable") for _ in range(3)]
    for number, session in enumerate(sessions[:2]):
        zarr.open_group(store(session, "g"), mode="r+").create_array(f"new{number}", shape=10, chunks=5, dtype="i8")[
            :
        ] = 1
    del zarr.open_group(store(sessions[2], "g"), mode="r+")["foo"]
    for session in sessions:
        session.publish()
    assert sorted(zarr.open_group(arrays.uri("main", "g"), mode="r").array_keys()) == ["bar", "new0", "new1"]


def test_another_fill_value_beside_a_write_is_a_conflict(arrays: Lake) -> None:
    writer, other = arrays.session(), arrays.session()
    array(writer)[0:10] = 0  # the fill value: the chunk is taken away
    metadata = json.loads(other.get("g/foo/zarr.json"))
    other.put("g/foo/zarr.json", json.dumps(metadata | {"fill_value": 7}).encode())
    other.publish()
    with pytest.raises(Conflict) as caught:
        writer.publish()
    assert caught.value.kinds == {"g/foo/zarr.json": "ArrayReshaped"}


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_writing_bar_by_what_was_read_of_foo(arrays: Lake, isolation: Any) -> None:
    first, second = arrays.session(isolation=isolation), arrays.session()
    array(first, "bar")[:] = array(first, "foo", "r")[:] * 10
    array(second, "foo")[0:10] = 9
    second.publish()
    if isolation == "snapshot":
        first.publish()
        assert read(arrays, "bar")[:10] == [10] * 10
        return
    with pytest.raises(Conflict) as caught:
        first.publish()
    assert caught.value.kinds == {"g/foo/c/0": "ReadChanged"}
    with arrays.session(isolation="serializable") as again:
        array(again, "bar")[:] = array(again, "foo", "r")[:] * 10
    assert read(arrays, "bar")[:10] == [90] * 10


def test_serializable_forbids_only_what_was_read(arrays: Lake) -> None:
    first, second = arrays.session(isolation="serializable"), arrays.session()
    array(first, "bar")[10:20] = array(first, "foo", "r")[10:20] * 10
    array(second, "foo")[0:10] = 9
    array(second, "bar")[20:30] = 9
    second.publish()
    first.publish()
    assert read(arrays, "bar") == [1] * 10 + [20] * 10 + [9] * 10


def test_serializable_notices_a_chunk_that_was_not_there(arrays: Lake) -> None:
    with arrays.session() as s:
        array(s)[0:10] = 0
    first, second = arrays.session(isolation="serializable"), arrays.session()
    array(first, "bar")[0:10] = array(first, "foo", "r")[0:10]
    array(second, "foo")[0:10] = 9
    second.publish()
    with pytest.raises(Conflict) as caught:
        first.publish()
    assert "g/foo/c/0" in caught.value.keys


# What zarr asks of every store


class TestStore(StoreTests[FsspecStore, cpu.Buffer]):
    """zarr's own suite, in a shared session by its URL."""

    store_cls = FsspecStore
    buffer_cls = cpu.Buffer
    # What these ask for is not FsspecStore's.
    test_get_sync = test_get_sync_missing = test_set_sync = test_delete_sync = test_delete_sync_missing = None  # type: ignore[assignment]

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        lake = Lake.create(tmp_path / "lake")
        mapper = LakeFileSystem(lakes={"prod": lake.url}).get_mapper(f"prod/{lake.open_session('main').id}/work")
        opened = FsspecStore.from_mapper(mapper)
        return {"fs": opened.fs, "path": opened.path}

    @pytest.fixture
    def store(self, open_kwargs: dict[str, Any]) -> FsspecStore:
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> FsspecStore:
        return self.store_cls(**store_kwargs)

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        store.fs.sync_fs.pipe_file(f"{store.path}/{key}", value.to_bytes())

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return self.buffer_cls.from_bytes(store.fs.sync_fs.cat_file(f"{store.path}/{key}"))

    def test_store_repr(self, store: FsspecStore) -> None:
        assert str(store).startswith("<FsspecStore(AsyncFileSystemWrapper, prod/s-")

    def test_store_supports_writes(self, store: FsspecStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FsspecStore) -> None:
        assert store.supports_listing


def _run(test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


for _name, _test in inspect.getmembers(TestStore, inspect.iscoroutinefunction):
    if _name.startswith("test_"):
        setattr(TestStore, _name, _run(_test))


def test_the_rule_for_arrays_is_registered_from_outside_of_lakes() -> None:
    assert [type(rule) for rule in key_rules()] == [ZarrArrays]
