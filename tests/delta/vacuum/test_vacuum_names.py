"""Whatever others name, link and log, vacuum deletes nothing that is live, hidden or outside of a table."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DeltaError
from lake_core.delta.file_name import new_name
from lake_core.delta.log_segment import LAST_CHECKPOINT, checkpoint_key, commit_key
from lake_core.store import LocalStore, MemoryStore
from tests.delta.tables import SCHEMA, ids, rows
from tests.delta.vacuum.clocked_tables import DAY, ORPHAN, Time, add_actions, create, live_paths, remove, stored_files

pytestmark = pytest.mark.usefixtures("listed")


# Names


def test_hidden_files_are_not_the_table_s(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_, ["p"])
    hidden = [
        "_tmp/x",
        ".hoodie/y",
        "p=p0/_SUCCESS",
        "p=p0/.crc",
        "_spark_metadata/0",
        "a/_b/c.parquet",
        "_change_data/.x",
        "_change_data/_y",
    ]
    for key in [*hidden, "_change_data/" + new_name(0, changes=True)]:
        store.put(key, b"x")
    time_.now += 100 * DAY
    table.vacuum()
    assert sorted(stored_files(store)) == sorted(hidden)


def test_partitions_with_leading_underscores_are_data(store: MemoryStore, time_: Time) -> None:
    schema = pa.schema([("id", pa.int64()), ("_p", pa.string()), ("_change_data", pa.string())])
    table = DeltaTable.create(store, schema, partition_by=["_p", "_change_data"], clock=time_)
    table.append(pa.table({"id": [1, 2], "_p": ["_a", "b"], "_change_data": ["_x", ".y"]}, schema=schema))
    table.overwrite(pa.table({"id": [3], "_p": ["_a"], "_change_data": ["z"]}, schema=schema))
    store.put(f"_p=_a/{ORPHAN}", b"x")
    time_.now += 8 * DAY
    table.vacuum()
    assert stored_files(store) == live_paths(table)
    assert table.to_arrow()["id"].to_pylist() == [3]


@pytest.mark.parametrize("name", [".p", ".", "._", ". a", ".".ljust(60, "x")])
@pytest.mark.parametrize("mapped", [False, True])
def test_partitions_with_leading_dots_are_data(store: MemoryStore, time_: Time, name: str, mapped: bool) -> None:
    schema = pa.schema([("id", pa.int64()), (name, pa.string())])
    properties = {"delta.enableChangeDataFeed": "true"} | ({"delta.columnMapping.mode": "name"} if mapped else {})
    table = DeltaTable.create(store, schema, partition_by=[name], properties=properties, clock=time_)
    table.append(pa.table({"id": [1, 2, 3], name: ["a", "b", "." * 250]}, schema=schema))
    table.update({"id": "id + 1"}, "id > 2")
    table.delete(f"`{name}` = 'a'")
    folders = {key.rsplit("/", 1)[0] for key in stored_files(store)}
    orphans = [f"{folder}/{new_name(0, changes=folder.startswith('_change_data'))}" for folder in sorted(folders)]
    hidden = [".hidden=a/x.parquet", ".tmp/y.parquet", f"{min(folders, key=len)}/.crc"]
    for key in [*orphans, *hidden]:
        store.put(key, b"x")
    time_.now += 8 * DAY
    table.vacuum()
    assert stored_files(store) == sorted([*live_paths(table), *hidden])
    assert ids(table.to_arrow()) == [2, 4]


def test_partitions_of_an_earlier_partitioning_with_leading_dots_are_data(store: MemoryStore, time_: Time) -> None:
    schema = pa.schema([("id", pa.int64()), (".p", pa.string())])
    table = DeltaTable.create(store, schema, partition_by=[".p"], clock=time_)
    table.append(pa.table({"id": [1], ".p": ["a"]}, schema=schema))
    table.overwrite(pa.table({"id": [2]}), schema_mode="overwrite", partition_by=[])
    time_.now += 8 * DAY
    table.vacuum()
    assert stored_files(store) == live_paths(table)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_names_that_the_log_encodes(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = create(store, time_, ["p"])
    values = ["a b", "ü%20", "50%", "x/y", "ﬁ+", "%2E", "'q'"]

    def some(start: int) -> pa.Table:
        return pa.table(
            {"id": [start + i for i in range(len(values))], "p": values, "v": [0.0] * len(values)}, schema=SCHEMA
        )

    table.append(some(0))
    old = stored_files(store)
    table.overwrite(some(100))
    # Decoded twice or not at all, these would name live files.
    live = live_paths(table)
    time_.now += 8 * DAY
    result = table.vacuum(mode=mode)
    assert sorted(result.files.to_pylist()) == old
    assert stored_files(store) == live
    assert ids(table.to_arrow()) == [100 + i for i in range(len(values))]


def test_a_path_that_decodes_to_a_live_file_does_not_remove_it(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    live = live_paths(table)[0]
    add_actions(
        table,
        *map(
            remove,
            [live.replace("part", "%70art"), f"{store.url()}/{live}", f"%2E/{live}", live.upper()],
        ),
    )
    time_.now += 8 * DAY
    for mode in ("lite", "full"):
        table.vacuum(mode=mode)
        assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]


def test_absolute_paths_under_the_root(tmp_path: Path, time_: Time) -> None:
    table = create(tmp_path / "t", time_)
    table.append(rows(0, 3))
    for path in live_paths(table):
        shutil.copy(tmp_path / "t" / path, tmp_path / "t" / "live.parquet")
        shutil.copy(tmp_path / "t" / path, tmp_path / "t" / "gone.parquet")
    size = (tmp_path / "t" / "live.parquet").stat().st_size
    add = {
        "path": f"file://{tmp_path}/t/live.parquet",
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
    }
    add_actions(table, {"add": add}, remove(f"file:{tmp_path}/t/gone.parquet"))
    for file in tmp_path.glob("t/*.parquet"):
        os.utime(file, (0, 0))
    time_.now += 8 * DAY
    assert table.vacuum(mode="lite").files.to_pylist() == ["gone.parquet"]
    assert len(table.vacuum().files) == 0
    assert ids(table.to_arrow()) == [0, 0, 1, 1, 2, 2]


def test_a_live_file_that_the_log_knows_by_another_root_stays(tmp_path: Path, time_: Time) -> None:
    """The folder was moved, or is reached through a link: a file that is live by its old name is no orphan."""
    table = create(tmp_path / "t", time_)
    table.append(rows(0, 3))
    path = live_paths(table)[0]
    size = (tmp_path / "t" / path).stat().st_size
    add = {
        "path": f"file:///old/place/{path}",
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
    }
    add_actions(table, {"add": add}, remove(path))
    os.utime(tmp_path / "t" / path, (0, 0))
    time_.now += 8 * DAY
    assert len(table.vacuum().files) == len(table.vacuum(mode="lite").files) == 0
    assert (tmp_path / "t" / path).exists()


def test_a_table_inside_of_the_table_is_another(store: MemoryStore, time_: Time, tmp_path: Path) -> None:
    (tmp_path / "t" / "inner" / "deep").mkdir(parents=True)
    outer = create(tmp_path / "t", time_, ["p"])
    inner = [create(tmp_path / "t" / name, time_) for name in ("inner", "inner/deep")]
    for table in (outer, *inner):
        table.append(rows(0, 3))
    (tmp_path / "t" / "p=p9").mkdir()
    (tmp_path / "t" / "p=p9" / ORPHAN).write_bytes(b"x")
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    time_.now += 8 * DAY
    assert outer.vacuum().files.to_pylist() == [f"p=p9/{ORPHAN}"]
    assert [ids(table.to_arrow()) for table in (outer, *inner)] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_longer_retention_than_the_table_s_own(store: MemoryStore, time_: Time, mode: Any) -> None:
    """Checkpoints forget what was removed longer ago than the table's own; the commits still tell."""
    table = create(store, time_)
    table.append(rows(0, 3))
    time_.now += 20 * DAY
    table.overwrite(rows(3, 6))
    time_.now += 10 * DAY
    table.checkpoint()
    fresh = DeltaTable.open(store, clock=time_)
    assert len(fresh.snapshot.tombstones()) == 0
    assert len(fresh.vacuum(12 * DAY, mode=mode).files) == 0
    assert ids(DeltaTable.open(store, version=1).to_arrow()) == [0, 1, 2]
    assert len(fresh.vacuum(mode=mode).files) == 1


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_a_retention_that_was_raised_after_a_checkpoint(store: MemoryStore, time_: Time, mode: Any) -> None:
    """The checkpoint has forgotten what was removed longer ago than the retention of that time."""
    table = create(store, time_, delta_deletedFileRetentionDuration="interval 1 days")
    table.append(rows(0, 3))
    time_.now += 40 * DAY
    table.overwrite(rows(3, 6))
    time_.now += 2 * DAY
    table.checkpoint()
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    assert len(DeltaTable.open(store, clock=time_).vacuum(mode=mode).files) == 0
    assert ids(DeltaTable.open(store, version=1).to_arrow()) == [0, 1, 2]


# Others' tables, hostile logs, file systems


@pytest.mark.parametrize("mode", ["full", "lite"])
@pytest.mark.parametrize(
    "name", ["krs-table-with-dv-small", "krs-cdf-table-with-dv", "kerneljava-basic-dv-no-checkpoint"]
)
def test_deletion_vectors_of_others_stay(cases: Path, tmp_path: Path, name: str, mode: Any) -> None:
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    before = DeltaTable.open(tmp_path / "t").to_arrow()
    vectors = sorted(path.name for path in (tmp_path / "t").rglob("deletion_vector_*.bin"))
    assert vectors
    for path in (tmp_path / "t").rglob("*"):
        os.utime(path, (0, 0))
    shutil.copy(
        tmp_path / "t" / vectors[0], tmp_path / "t" / "deletion_vector_11111111-1111-4111-8111-111111111111.bin"
    )
    os.utime(tmp_path / "t" / "deletion_vector_11111111-1111-4111-8111-111111111111.bin", (0, 0))
    table = DeltaTable.open(tmp_path / "t", clock=lambda: time.time() + 1e9)
    deleted = table.vacuum(mode=mode, orphans="delta").files.to_pylist()
    assert mode == "lite" or "deletion_vector_11111111-1111-4111-8111-111111111111.bin" in deleted
    assert DeltaTable.open(tmp_path / "t").to_arrow().equals(before)


def test_nothing_outside_of_the_root_is_touched(tmp_path: Path, time_: Time) -> None:
    root = tmp_path / "t"
    table = create(root, time_)
    table.append(rows(0, 3))
    outside = [tmp_path / "outside.parquet", tmp_path / "t2" / "x.parquet", tmp_path / "linked" / "y.parquet"]
    for path in outside:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    (root / "link").symlink_to(tmp_path / "linked", target_is_directory=True)
    (root / "file-link.parquet").symlink_to(tmp_path / "outside.parquet")
    os.utime(root / "file-link.parquet", (0, 0), follow_symlinks=False)
    hostile = [
        "../outside.parquet",
        "..%2Foutside.parquet",
        f"file://{tmp_path}/outside.parquet",
        f"{tmp_path}/outside.parquet",
        f"file://{root}/../outside.parquet",
        f"file://{tmp_path}/t2/x.parquet",
        "link/y.parquet",
        "file-link.parquet",
        "",
        ".",
        "/",
        "%00",
        "s3://bucket/x",
    ]
    add_actions(table, *map(remove, hostile))
    time_.now += 8 * DAY
    for mode in ("lite", "full"):
        try:
            table.vacuum(mode=mode)
        except DeltaError:
            pytest.fail("a hostile path must not keep others' files from going")
    assert all(path.exists() for path in outside)
    assert ids(DeltaTable.open(root).to_arrow()) == [0, 1, 2]


@pytest.mark.parametrize(
    "path", [commit_key(0), commit_key(1).replace("/", "%2F"), LAST_CHECKPOINT, checkpoint_key(2), "_DELTA_LOG/x"]
)
def test_the_log_is_never_vacuumed(store: MemoryStore, time_: Time, path: str) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    table.append(rows(3, 6))
    table.checkpoint()
    store.put("_DELTA_LOG/x", b"x")
    add_actions(table, remove(path))
    kept = {meta.key for meta in store.list()}
    time_.now += 8 * DAY
    for mode in ("lite", "full"):
        table.vacuum(mode=mode)
        assert kept - {meta.key for meta in store.list()} <= ({"_DELTA_LOG/x"} if mode == "full" else set())
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(6))


def test_half_written_files_of_dead_writers_are_swept(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"])
    table.append(rows(0, 3))
    left = [tmp_path / "p=p0" / ".lake-tmp-a", tmp_path / "_delta_log" / ".lake-tmp-b", tmp_path / ".lake-tmp-young"]
    now = time.time()
    for path, age in zip(left, (8 * 86_400, 30 * 86_400, 3600), strict=True):
        path.write_bytes(b"half")
        os.utime(path, (now - age, now - age))
    table.vacuum(dry_run=True)
    assert all(path.exists() for path in left)
    table.vacuum()
    assert [path.exists() for path in left] == [False, False, True]
    # However far ahead the table's clock is, a file may be being written by the store's.
    DeltaTable.open(tmp_path, clock=lambda: now + 1e9).vacuum(dt.timedelta(), allow_unsafe=True)
    assert left[2].exists()
    assert ids(DeltaTable.open(tmp_path).to_arrow()) == [0, 1, 2]


def test_sweeping_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    other = tmp_path / "outside" / ".lake-tmp-other"
    other.write_bytes(b"x")
    os.utime(other, (0, 0))
    table = DeltaTable.create(tmp_path / "t", SCHEMA)
    (tmp_path / "t" / "link").symlink_to(tmp_path / "outside", target_is_directory=True)
    table.vacuum()
    assert other.exists()
    assert LocalStore(tmp_path / "outside").sweep(time.time()) == 1
