"""Writes lakes: pools are created, renamed and dropped, rows are loaded and read again."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.pool import types
from lake_core.pool.data_object import data_key, seek_index_key
from lake_core.pool.errors import (
    InvalidPoolConfig,
    InvalidTransaction,
    InvalidValue,
    LakeExists,
    NoSuchPool,
    PoolExists,
)
from lake_core.pool.lake import PoolLake
from lake_core.pool.pool import Pool
from lake_core.pool.types import record
from lake_core.pool.value import Value
from lake_core.pool.zng.frame import read_frames
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.writer import encode_values
from lake_core.store import MemoryStore, ObjectStore, open_store
from lake_core.testing import ManualClock
from tests.pool.cases import expected_branches, lake_path
from tests.pool.scalar_objects import encode_object


@pytest.fixture
def store() -> ObjectStore:
    return MemoryStore()


@pytest.fixture
def pool(store: ObjectStore) -> Pool:
    return PoolLake.create(store).create_pool("events", key="k", order="asc")


def test_a_lake_is_created_once(store: ObjectStore) -> None:
    PoolLake.create(store)
    with pytest.raises(LakeExists):
        PoolLake.create(store)
    assert PoolLake.create(store, exist_ok=True).pools() == []


def test_the_magic_has_the_bytes_of_zed(store: ObjectStore) -> None:
    PoolLake.create(store)
    assert store.get("lake.zng") == (lake_path("empty-lake-v1.18") / "lake.zng").read_bytes()


def test_pools_are_created_renamed_and_dropped(store: ObjectStore) -> None:
    lake = PoolLake.create(store)
    config = lake.create_pool("a", key="user.id").config
    lake.rename_pool("a", "b")
    assert [(pool.name, pool.id, pool.keys) for pool in PoolLake.open(store).pools()] == [
        ("b", config.id, (("user", "id"),))
    ]
    lake.drop_pool("b")
    assert lake.pools() == []
    assert list(store.list(config.id)) == []


def test_names_are_taken_once(store: ObjectStore) -> None:
    lake = PoolLake.create(store)
    lake.create_pool("a")
    lake.create_pool("b")
    with pytest.raises(PoolExists):
        lake.create_pool("a")
    with pytest.raises(PoolExists):
        lake.rename_pool("b", "a")
    with pytest.raises(NoSuchPool):
        lake.drop_pool("c")
    with pytest.raises(InvalidPoolConfig):
        lake.create_pool("a@b")


def test_loaded_rows_are_read_in_the_order_of_the_key(pool: Pool) -> None:
    pool.load([{"k": 3}, {"k": 1, "s": "x"}])
    pool.load(pa.table({"k": [2, 5]}))
    assert [record["k"] for record in pool.scan().records()] == [1, 2, 3, 5]
    assert pool.scan().to_table()["s"].to_pylist() == ["x", None, None, None]


def test_the_log_tells_who_loaded_and_why(pool: Pool) -> None:
    first = pool.load([{"k": 1}], author="ada", message="first", meta={"job": 7})
    second = pool.load([{"k": 2}])
    log = list(pool.log())
    assert log == [second, first]
    assert (log[1].author, log[1].message, log[1].meta.decode()) == ("ada", "first", {"job": 7})
    assert [record["k"] for record in pool.scan(commit=log[1].id).records()] == [1]


def test_a_marked_load_happens_once(pool: Pool) -> None:
    assert pool.load([{"k": 1}], txn=("app", 7)) is not None
    assert pool.load([{"k": 2}], txn=("other", 1)) is not None
    assert pool.load([{"k": 1}], txn=("app", 7)) is None
    assert pool.load([{"k": 3}], txn=("app", 8)) is not None
    assert [record["k"] for record in pool.scan().records()] == [1, 2, 3]


def test_every_commit_carries_the_markers_that_count(store: ObjectStore) -> None:
    clock = ManualClock()
    pool = PoolLake.create(store, clock=clock).create_pool("events", key="k")
    pool.load([{"k": 1}], txn=("app", 7))
    clock.pass_days(20)
    commit = pool.load([{"k": 2}], meta="mine")
    assert commit is not None
    assert commit.meta.decode() == "mine"
    assert commit.markers is not None
    assert commit.markers["app"].version == 7
    clock.pass_days(20)
    assert not pool.has_marker(("app", 7)), "it has expired"
    later = pool.load([{"k": 3}])
    assert later is not None
    assert later.markers == {}
    assert list(pool.log())[:2] == [later, commit]


def test_the_markers_of_a_branch_have_its_last_versions(pool: Pool) -> None:
    assert pool.markers() == {}
    pool.load([{"k": 1}], txn=("app", 7))
    pool.load([{"k": 1}], txn=("other", 1))
    pool.load([{"k": 2}], txn=("app", 8))
    assert {app_id: marker.version for app_id, marker in pool.markers().items()} == {"app": 8, "other": 1}


def test_markers_count_for_ever_where_that_is_asked_for(store: ObjectStore) -> None:
    clock = ManualClock()
    pool = PoolLake.create(store, clock=clock, txn_retention=None).create_pool("events", key="k")
    pool.load([{"k": 1}], txn=("app", 7))
    clock.pass_days(4000)
    assert PoolLake.open(store, clock=clock, txn_retention=None).pool("events").load([{"k": 1}], txn=("app", 7)) is None


@pytest.mark.parametrize("txn", [("", 1), ("app", -1), ("app", True), ("app",), "app", ("\ud800", 1)])
def test_a_txn_that_is_none_is_refused(pool: Pool, txn: Any) -> None:
    with pytest.raises(InvalidTransaction):
        pool.load([{"k": 1}], txn=txn)


def test_a_load_without_rows_makes_no_commit(pool: Pool) -> None:
    assert pool.load([]) is None
    assert list(pool.log()) == []


def test_rows_without_a_form_make_no_commit(pool: Pool) -> None:
    with pytest.raises(InvalidValue):
        pool.load([{"k": 1}, object()])
    assert list(pool.log()) == []


def test_loads_of_many_writers_all_count(tmp_path: Path) -> None:
    PoolLake.create(tmp_path).create_pool("events", key="k", order="desc")

    def load(number: int) -> None:
        PoolLake.open(tmp_path).pool("events").load([{"k": number}])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(load, range(12)))
    pool = PoolLake.open(tmp_path).pool("events")
    assert [record["k"] for record in pool.scan().records()] == list(range(11, -1, -1))
    assert len(list(pool.log())) == 12


def test_large_loads_become_several_objects(store: ObjectStore) -> None:
    pool = PoolLake.create(store).create_pool("events", key="k", order="asc", threshold=1000)
    pool.load([{"k": number * 7 % 500} for number in range(500)])
    assert len(pool.objects()) > 1
    assert [record["k"] for record in pool.scan().records()] == list(range(500))


def test_a_lake_whose_head_is_behind_takes_loads(tmp_path: Path) -> None:
    source, target = open_store(lake_path("head-behind-v1.18")), MemoryStore()
    for each in source.list():
        target.put(each.key, source.get(each.key))
    pool = PoolLake.open(target).pool("P")
    count = sum(1 for _ in pool.scan().values())
    pool.load([{"k": 1}])
    assert sum(1 for _ in PoolLake.open(target).pool("P").scan().values()) == count + 1


def value_in_index(entry: Value) -> tuple[object, ...]:
    """Return what an entry of a seek index says, but for the bytes that depend on the compressor."""
    return tuple(entry.field(name) for name in ("min", "max", "val_off", "val_cnt"))


def test_objects_have_the_frames_and_segments_that_zed_gives_them() -> None:
    compared = 0
    for name, pool, branch in expected_branches():
        if name in ("frames-v1.18", "ties-v1.18", "compact-v1.18", "nested-key-v1.18"):
            store = open_store(lake_path(name))
            config = PoolLake.open(store).pool(pool["name"]).config
            for each in branch["objects"]:
                data = store.get(data_key(config.id, each["id"]))
                encoded, segments = encode_object(list(read_values(bytes(data))), config)
                assert list(read_frames(encoded)) == list(read_frames(bytes(data))), name
                index = list(read_values(bytes(store.get(seek_index_key(config.id, each["id"])))))
                assert [value_in_index(value) for value in index] == [
                    value_in_index(segment.to_value()) for segment in segments
                ], name
                compared += 1
    assert compared


def test_a_load_and_a_scan_do_not_import_pandas(tmp_path: Path) -> None:
    # An import of pandas takes longer than either.
    zng = tmp_path / "rows.zng"
    type = record(k=types.INT64, text=types.STRING, inner=record(list=types.ArrayType(types.STRING)))
    zng.write_bytes(
        encode_values([Value.of(type, {"k": k % 7, "text": "x", "inner": {"list": ["a"]}}) for k in range(100)])
    )
    program = f"""
import sys
from pathlib import Path
from lake_core.pool import PoolLake
pool = PoolLake.create({str(tmp_path / "lake")!r}).create_pool("p", key="k")
pool.load(Path({str(zng)!r}))
pool.load(pool.scan().to_table())
assert sum(batch.num_rows for batch in pool.scan().to_reader()) == 200
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
