"""Vacuum deletes only what nobody needs any more; cleaning the log leaves a table that can be read and written."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing, DeltaError, InvalidProperty, UnsafeRetention, VersionNotFound
from lake_core.delta.file_name import new_name, time_uuid
from lake_core.delta.log_segment import LAST_CHECKPOINT, checkpoint_key, commit_key
from lake_core.store import LocalStore, MemoryStore, ObjectBytes
from tests.delta.tables import SCHEMA, ids, rows

START = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
ORPHAN = new_name(int(START.timestamp() * 1000))
"""A file that one of our own writers left."""


class Time:
    """The clock of a table and of the memory store that it lies in."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now


@pytest.fixture
def time_() -> Time:
    return Time()


@pytest.fixture
def store(time_: Time) -> MemoryStore:
    return MemoryStore(clock=time_)


@pytest.fixture(autouse=True, params=["whole", pytest.param("ranges", marks=pytest.mark.exhaustive)])
def _listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """List the folder at once, or a few files at a time."""
    if request.param == "ranges":
        monkeypatch.setattr("lake_core.delta.operations.listing._KEYS_A_TASK", 2)


def _create(store: Any, clock: Time, partition_by: Sequence[str] = (), **properties: Any) -> DeltaTable:
    table_properties = {name.replace("_", "."): value for name, value in properties.items()}
    return DeltaTable.create(store, SCHEMA, partition_by=partition_by, properties=table_properties, clock=clock)


def _paths(table: DeltaTable) -> list[str]:
    return sorted(table.files(["path"])["path"].to_pylist())


def _data(store: Any) -> list[str]:
    return sorted(meta.key for meta in store.list() if not meta.key.startswith("_delta_log/"))


def _add_actions(table: DeltaTable, *actions: dict[str, Any]) -> None:
    """Add a commit as another writer would."""
    info = {"commitInfo": {"timestamp": int(table._clock().timestamp() * 1000)}}  # type: ignore[union-attr]
    lines = [json.dumps(action) for action in (info, *actions)]
    table.store.put(commit_key(table.refresh().version + 1), "\n".join(lines).encode())
    table.refresh()


def _remove(path: str, when: dt.datetime = START) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": int(when.timestamp() * 1000), "dataChange": True}}


# What goes


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_removed_files_go_when_their_retention_is_over(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = _create(store, time_, ["p"])
    table.append(rows(0, 6))
    old = _paths(table)
    time_.now += 3 * DAY
    table.overwrite(rows(6, 12))
    for passed, expected in ((0, []), (6, []), (7, old)):
        time_.now = START + (3 + passed) * DAY
        planned = table.vacuum(mode=mode, dry_run=True)
        assert (sorted(planned.files.to_pylist()), planned.dry_run) == (expected, True)
        assert set(old) <= set(_data(store))
        result = table.vacuum(mode=mode)
        assert (sorted(result.files.to_pylist()), result.dry_run) == (expected, False)
        if mode == "full":
            assert result.bytes == planned.bytes
            assert bool(result.bytes) == bool(expected)
    assert _data(store) == _paths(table)
    assert ids(table.to_arrow()) == list(range(6, 12))
    assert len(table.vacuum(mode=mode).files) == 0
    with pytest.raises(DataFileMissing):
        DeltaTable.open(store, version=1).to_arrow()


def test_the_property_and_the_argument_say_how_long(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_, delta_deletedFileRetentionDuration="interval 2 days")
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    time_.now += 2 * DAY
    assert len(table.vacuum(3 * DAY, dry_run=True).files) == 0
    assert len(table.vacuum(dry_run=True).files) == 1
    for retention in (DAY, dt.timedelta()):
        with pytest.raises(UnsafeRetention, match="shorter than the table's own"):
            table.vacuum(retention)
        with pytest.raises(UnsafeRetention):
            table.vacuum(retention, dry_run=True)
    for wrong in (dt.timedelta(-1), 7):
        with pytest.raises(ValueError, match="timedelta"):
            table.vacuum(wrong, allow_unsafe=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'full' or 'lite'"):
        table.vacuum(mode="quick")  # type: ignore[arg-type]
    assert len(_data(store)) == 2


def test_an_override_takes_what_is_young(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    store.put(ORPHAN, b"x")
    time_.now += dt.timedelta(seconds=1)
    table.vacuum(dt.timedelta(), allow_unsafe=True)
    assert _data(store) == _paths(table)
    assert ids(table.to_arrow()) == [3, 4, 5]


def test_a_retention_that_cannot_be_read_keeps_everything(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    metadata = table.metadata.to_json()
    metadata["configuration"] = {"delta.deletedFileRetentionDuration": "interval 1 month"}
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    _add_actions(table, {"metaData": metadata})
    time_.now += 4000 * DAY
    with pytest.raises(UnsafeRetention, match="cannot be read"):
        table.vacuum()
    with pytest.raises(UnsafeRetention, match="unknown"):
        table.vacuum(3000 * DAY)
    assert len(_data(store)) == 2
    table.vacuum(3000 * DAY, allow_unsafe=True)
    assert _data(store) == _paths(table)


def test_orphans_go_when_they_are_old(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_, ["p"])
    table.append(rows(0, 3))
    store.put(f"p=p0/{ORPHAN}", b"x")
    store.put(f"elsewhere/deep/{ORPHAN}", b"x")
    time_.now += 7 * DAY - dt.timedelta(seconds=1)
    assert len(table.vacuum().files) == 0
    time_.now += dt.timedelta(seconds=1)
    assert len(table.vacuum(mode="lite").files) == 0
    assert table.vacuum().files.to_pylist() == [f"p=p0/{ORPHAN}"]
    assert sorted(_data(store)) == sorted([*_paths(table), f"elsewhere/deep/{ORPHAN}"])  # in no folder of this writer


def test_ranges_of_keys_are_listed_and_deleted_apart(
    store: MemoryStore, time_: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.delta.operations.listing._KEYS_A_TASK", 3)
    monkeypatch.setattr("lake_core.delta.operations.listing._DELETED_AT_ONCE", 2)
    table = _create(store, time_, ["p"])
    for _ in range(3):
        table.append(rows(0, 3))
    removed = _paths(table)
    table.overwrite(rows(0, 3))
    orphans = [f"p=p{number}/{new_name(int(START.timestamp() * 1000))}" for number in range(7)]
    for key in orphans:
        store.put(key, b"x")
    time_.now += 8 * DAY
    counts: list[int] = []

    def run(task: Callable[[int], Any], count: int) -> list[Any]:
        counts.append(count)
        return [task(number) for number in range(count)]

    assert sorted(table.vacuum(run=run).files.to_pylist()) == sorted([*removed, *orphans])
    assert _data(store) == _paths(table)
    assert counts == [4, 8]


def test_the_name_of_a_file_tells_its_age_by_the_clock_of_the_table(tmp_path: Path) -> None:
    """A writer whose clock is ahead of the file system's is at work: its file looks old there."""
    ahead = Time()
    ahead.now = dt.datetime.now(dt.UTC) + 100 * DAY
    table = _create(tmp_path, ahead)
    table.append(rows(0, 3))
    write = table.plan_append(SCHEMA)
    adds, changes = write.writer.write([rows(3, 6)])
    (tmp_path / ORPHAN).write_bytes(b"x")
    ahead.now += 6 * DAY
    other = DeltaTable.open(tmp_path, clock=ahead)
    assert other.vacuum().files.to_pylist() == [ORPHAN]
    table.commit(write.operation(adds, changes), None)
    assert ids(DeltaTable.open(tmp_path).to_arrow()) == list(range(6))
    # This file is never committed.
    lost = table.plan_append(SCHEMA).writer.write([rows(6, 9)])[0][0].path
    ahead.now += 8 * DAY
    assert other.vacuum().files.to_pylist() == [lost]


def test_a_name_of_another_kind_tells_nothing(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    future = int((START + 1000 * DAY).timestamp() * 1000)
    named = str(time_uuid(future))
    fourth = named[:14] + "4" + named[15:]
    store.put(f"part-00000-{named}-c000.zstd.parquet", b"x")
    store.put(f"part-00000-{fourth}-c000.zstd.parquet", b"x")
    store.put(f"{named}/{ORPHAN}", b"x")
    time_.now += 8 * DAY
    gone = table.vacuum(orphans="delta").files.to_pylist()
    assert gone == [f"{named}/{ORPHAN}", f"part-00000-{fourth}-c000.zstd.parquet"]


def test_a_commit_between_the_listing_and_the_log(store: MemoryStore, time_: Time) -> None:
    """The file is listed before it is committed, and old by then: the log is looked at last."""
    table = _create(store, time_)
    write = table.plan_append(SCHEMA)
    adds, changes = write.writer.write([rows(0, 3)])
    time_.now += 30 * DAY

    class Slow(MemoryStore):
        def _list(self, prefix: str, start_after: str) -> Iterator[Any]:
            yield from super()._list(prefix, start_after)
            if not prefix:
                table.commit(write.operation(adds, changes), None)

    slow = Slow(clock=time_)
    slow._space = store._space
    assert len(DeltaTable.open(slow, clock=time_).vacuum().files) == 0
    assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]


def test_files_that_are_removed_and_added_again_stay(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    table.restore(1)
    time_.now += 8 * DAY
    for mode in ("lite", "full"):
        table.vacuum(mode=mode)
        assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]
    assert _data(store) == _paths(table)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_change_data_goes_with_its_retention(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = _create(store, time_, ["p"], delta_enableChangeDataFeed="true")
    table.append(rows(0, 9))
    table.update({"v": "0"}, "id = 3")
    changes = [key for key in _data(store) if key.startswith("_change_data/")]
    assert changes
    time_.now += 5 * DAY
    table.delete("id = 4")
    young = [key for key in _data(store) if key.startswith("_change_data/") and key not in changes]
    time_.now += 3 * DAY
    table.vacuum(mode=mode)
    assert [key for key in _data(store) if key.startswith("_change_data/")] == young
    assert table.changes(3).read_all()["id"].to_pylist() == [4]
    with pytest.raises(DataFileMissing):
        table.changes(2).read_all()
    time_.now += 8 * DAY
    table.vacuum(mode=mode)
    assert _data(store) == _paths(table)


# Somebody's own files


FOREIGN = [
    "orders.parquet",
    "part.parquet",
    "p=p0/part-0.parquet",
    "raw/2024.csv",
    "README.md",
    "notes",
    # A dump of Spark without Delta, and a copy of another table's file.
    "part-00000-0f8fad5b-d9cb-469f-a165-70867728950e-c000.snappy.parquet",
    "deletion_vector_11111111-1111-4111-8111-111111111111.bin",
]


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_files_that_no_log_named_are_never_vacuumed(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = _create(store, time_, ["p"])
    table.append(rows(0, 3))
    for key in FOREIGN:
        store.put(key, b"x")
    time_.now += 1000 * DAY
    table.vacuum(mode=mode)
    assert set(FOREIGN) <= set(_data(store))


def test_copies_that_somebody_keeps_below_a_table_are_never_vacuumed(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_, ["p"])
    table.append(rows(0, 3))
    copies = {f"backup/{key.rsplit('/')[-1]}": bytes(store.get(key)) for key in _data(store)}
    for key, body in copies.items():
        store.put(key, body)
    table.overwrite(rows(3, 6))
    time_.now += 1000 * DAY
    table.vacuum()
    assert set(copies) <= set(_data(store))


def test_a_vacuum_lists_the_files_that_it_does_not_know(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    for key in FOREIGN:
        store.put(key, b"x")
    assert table.vacuum(dry_run=True).unknown.to_pylist() == []
    time_.now += 8 * DAY
    assert table.vacuum(dry_run=True).unknown.to_pylist() == sorted(FOREIGN)


def test_orphans_of_other_delta_writers_go_when_they_are_asked_for(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    for key in FOREIGN:
        store.put(key, b"x")
    time_.now += 8 * DAY
    assert table.vacuum(orphans="delta").files.to_pylist() == sorted(FOREIGN[-2:])
    with pytest.raises(ValueError, match="'own' or 'delta'"):
        table.vacuum(orphans="all")  # type: ignore[arg-type]


def test_a_file_that_only_an_old_commit_names_goes(store: MemoryStore, time_: Time) -> None:
    """Its tombstone has left the checkpoint, and its name is another writer's: the commits still in the log tell."""
    table = _create(store, time_)
    store.put("theirs.parquet", b"x")
    _add_actions(table, _remove("theirs.parquet"))
    time_.now += 8 * DAY
    table.append(rows(0, 3))
    table.checkpoint()
    fresh = DeltaTable.open(store, clock=time_)
    assert len(fresh.snapshot.tombstones()) == 0
    assert fresh.vacuum().files.to_pylist() == ["theirs.parquet"]


def test_a_file_that_only_an_old_checkpoint_names_goes(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    store.put("theirs.parquet", b"x")
    _add_actions(table, _remove("theirs.parquet"))
    table.checkpoint()
    store.delete([commit_key(0), commit_key(1)])
    time_.now += 8 * DAY
    table.append(rows(0, 3))
    table.checkpoint()
    fresh = DeltaTable.open(store, clock=time_)
    assert len(fresh.snapshot.tombstones()) == 0
    assert fresh.vacuum().files.to_pylist() == ["theirs.parquet"]


def test_a_file_that_the_log_has_forgotten_stays_if_its_name_is_another_writer_s(
    store: MemoryStore, time_: Time
) -> None:
    table = _create(store, time_)
    store.put("theirs.parquet", b"x")
    _add_actions(table, _remove("theirs.parquet"))
    for start in (0, 3):
        time_.now += 60 * DAY
        table.append(rows(start, start + 3))
        table.checkpoint()
    assert not store.exists(commit_key(1))
    assert len(DeltaTable.open(store, clock=time_).vacuum().files) == 0
    assert store.exists("theirs.parquet")


# Names


def test_hidden_files_are_not_the_table_s(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_, ["p"])
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
    assert sorted(_data(store)) == sorted(hidden)


def test_partitions_with_leading_underscores_are_data(store: MemoryStore, time_: Time) -> None:
    schema = pa.schema([("id", pa.int64()), ("_p", pa.string()), ("_change_data", pa.string())])
    table = DeltaTable.create(store, schema, partition_by=["_p", "_change_data"], clock=time_)
    table.append(pa.table({"id": [1, 2], "_p": ["_a", "b"], "_change_data": ["_x", ".y"]}, schema=schema))
    table.overwrite(pa.table({"id": [3], "_p": ["_a"], "_change_data": ["z"]}, schema=schema))
    store.put(f"_p=_a/{ORPHAN}", b"x")
    time_.now += 8 * DAY
    table.vacuum()
    assert _data(store) == _paths(table)
    assert table.to_arrow()["id"].to_pylist() == [3]


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_names_that_the_log_encodes(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = _create(store, time_, ["p"])
    values = ["a b", "ü%20", "50%", "x/y", "ﬁ+", "%2E", "'q'"]

    def some(start: int) -> pa.Table:
        return pa.table(
            {"id": [start + i for i in range(len(values))], "p": values, "v": [0.0] * len(values)}, schema=SCHEMA
        )

    table.append(some(0))
    old = _data(store)
    table.overwrite(some(100))
    # Decoded twice or not at all, these would name live files.
    live = _paths(table)
    time_.now += 8 * DAY
    result = table.vacuum(mode=mode)
    assert sorted(result.files.to_pylist()) == old
    assert _data(store) == live
    assert ids(table.to_arrow()) == [100 + i for i in range(len(values))]


def test_a_path_that_decodes_to_a_live_file_does_not_remove_it(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    live = _paths(table)[0]
    _add_actions(
        table,
        *map(
            _remove,
            [live.replace("part", "%70art"), f"{store.url()}/{live}", f"./{live}", f"x/../{live}", live.upper()],
        ),
    )
    time_.now += 8 * DAY
    for mode in ("lite", "full"):
        table.vacuum(mode=mode)
        assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]


def test_absolute_paths_under_the_root(tmp_path: Path, time_: Time) -> None:
    table = _create(tmp_path / "t", time_)
    table.append(rows(0, 3))
    for path in _paths(table):
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
    _add_actions(table, {"add": add}, _remove(f"file:{tmp_path}/t/gone.parquet"))
    for file in tmp_path.glob("t/*.parquet"):
        os.utime(file, (0, 0))
    time_.now += 8 * DAY
    assert table.vacuum(mode="lite").files.to_pylist() == ["gone.parquet"]
    assert len(table.vacuum().files) == 0
    assert ids(table.to_arrow()) == [0, 0, 1, 1, 2, 2]


def test_a_live_file_that_the_log_knows_by_another_root_stays(tmp_path: Path, time_: Time) -> None:
    """The folder was moved, or is reached through a link: a file that is live by its old name is no orphan."""
    table = _create(tmp_path / "t", time_)
    table.append(rows(0, 3))
    path = _paths(table)[0]
    size = (tmp_path / "t" / path).stat().st_size
    add = {
        "path": f"file:///old/place/{path}",
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
    }
    _add_actions(table, {"add": add}, _remove(path))
    os.utime(tmp_path / "t" / path, (0, 0))
    time_.now += 8 * DAY
    assert len(table.vacuum().files) == len(table.vacuum(mode="lite").files) == 0
    assert (tmp_path / "t" / path).exists()


def test_a_table_inside_of_the_table_is_another(store: MemoryStore, time_: Time, tmp_path: Path) -> None:
    (tmp_path / "t" / "inner" / "deep").mkdir(parents=True)
    outer = _create(tmp_path / "t", time_, ["p"])
    inner = [_create(tmp_path / "t" / name, time_) for name in ("inner", "inner/deep")]
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
    table = _create(store, time_)
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
    table = _create(root, time_)
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
    _add_actions(table, *map(_remove, hostile))
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
    table = _create(store, time_)
    table.append(rows(0, 3))
    table.append(rows(3, 6))
    table.checkpoint()
    store.put("_DELTA_LOG/x", b"x")
    _add_actions(table, _remove(path))
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


# By the log


def test_lite_goes_on_where_it_stopped(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    deleted = []
    for number in range(4):
        old = _paths(table)
        table.overwrite(rows(number * 3, number * 3 + 3))
        time_.now += 4 * DAY
        deleted.append((old, table.vacuum(mode="lite").files.to_pylist()))
    firsts = [old for old, _ in deleted]
    assert [paths for _, paths in deleted] == [[], firsts[0], firsts[1], firsts[2]]
    noted = json.loads(store.get("_delta_log/_last_vacuum_info"))
    assert noted == {"latestCommitVersionOutsideOfRetentionWindow": 4}
    assert table.vacuum(mode="lite", dry_run=True).files.to_pylist() == []
    time_.now += 4 * DAY
    assert table.vacuum(mode="lite", dry_run=True).files.to_pylist() == firsts[3]
    assert json.loads(store.get("_delta_log/_last_vacuum_info")) == noted
    assert table.vacuum(mode="lite").files.to_pylist() == firsts[3]
    assert _data(store) == _paths(table)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"latestCommitVersionOutsideOfRetentionWindow": "1"}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": 1e3}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": -7}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": 99}',
        b'{"latestCommitVersionOutsideOfRetentionWindow": true}',
    ],
)
def test_a_damaged_note_is_none(store: MemoryStore, time_: Time, note: bytes) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    time_.now += 8 * DAY
    store.put("_delta_log/_last_vacuum_info", note)
    assert len(table.vacuum(mode="lite").files) == 1
    assert json.loads(store.get("_delta_log/_last_vacuum_info")) == {"latestCommitVersionOutsideOfRetentionWindow": 2}


def test_lite_finds_what_only_a_checkpoint_names(store: MemoryStore, time_: Time) -> None:
    table = _create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    table.append(rows(6, 9))
    table.checkpoint()
    store.delete([commit_key(version) for version in range(3)])
    time_.now += 8 * DAY
    assert len(DeltaTable.open(store, clock=time_).vacuum(mode="lite").files) == 1
    assert _data(store) == _paths(table)


# Cleaning the log


def _history(store: MemoryStore, time_: Time, versions: int = 12, **properties: Any) -> DeltaTable:
    """Create one commit per day. Version n holds the ids below n, and every fourth has a checkpoint."""
    table = _create(store, time_, delta_checkpointInterval="4", **properties)
    for number in range(versions):
        time_.now += DAY
        table.append(rows(number, number + 1))
    return table


def _log(store: MemoryStore) -> set[str]:
    return {meta.key for meta in store.list("_delta_log/")}


def test_the_log_is_cleaned_to_the_newest_checkpoint_before_the_cutoff(store: MemoryStore, time_: Time) -> None:
    table = _history(store, time_)
    everything = _log(store)
    # Day 8 + 30, at any hour: midnight of day 8 is before its commit at noon. Then all of day 9 is over.
    for passed, kept in ((29, 0), (38, 4), (39, 8), (39, 8), (60, 12)):
        time_.now = START + passed * DAY
        gone = set(table.clean_log())
        assert _log(store) == {key for key in everything if "_last_" in key or int(key[11:31]) >= kept}
        assert gone == everything - _log(store)
        everything = _log(store)
        for version in range(13):
            if version >= kept:
                assert ids(DeltaTable.open(store, version=version).to_arrow()) == list(range(version))
            else:
                with pytest.raises(DeltaError):
                    DeltaTable.open(store, version=version)
        if kept:
            with pytest.raises(VersionNotFound, match="the first that can be rebuilt"):
                DeltaTable.open(store, timestamp=START)
    assert table.append(rows(12, 13)).version == 13
    assert [entry["version"] for entry in table.history()] == [13, 12]


def test_a_checkpoint_cleans_the_log(store: MemoryStore, time_: Time) -> None:
    table = _history(store, time_, 7)
    assert store.exists(commit_key(0))
    time_.now += 60 * DAY
    table.append(rows(7, 8))  # version 8
    assert not store.exists(commit_key(0))
    assert store.exists(commit_key(4))
    table.checkpoint()
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(8))


@pytest.mark.parametrize(
    "properties",
    [{"delta_enableExpiredLogCleanup": "false"}, {"delta_logRetentionDuration": "interval 100 days"}],
)
def test_properties_keep_the_log(store: MemoryStore, time_: Time, properties: dict[str, str]) -> None:
    table = _history(store, time_, **properties)
    time_.now += 60 * DAY
    assert table.clean_log() == []
    assert store.exists(commit_key(0))


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "page"])
def test_a_damaged_checkpoint_stops_the_cleaning(store: MemoryStore, time_: Time, damage: str) -> None:
    """The checkpoint would be all that is left to read the table."""
    table = _history(store, time_)
    key = checkpoint_key(12)
    body = bytes(store.get(key))
    # Damage one page of each column whose loss would lose rows.
    damaged = {
        "cut": [body[:-9]],
        "empty": [b""],
        "text": [b"{}"],
        "page": [_flipped(body, column) for column in range(_columns(body))],
    }
    time_.now += 60 * DAY
    tried = 0
    for variant in damaged[damage]:
        if variant == body:
            continue
        tried += 1
        store.put(key, variant)
        assert DeltaTable.open(store, version=11, clock=time_).refresh().clean_log() == []
    assert tried
    assert store.exists(commit_key(0))
    store.delete([LAST_CHECKPOINT])
    store.put(key, body)
    assert len(table.clean_log()) > 0


def _columns(body: bytes) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(pa.BufferReader(body)).metadata.num_columns)


def _flipped(body: bytes, column: int) -> bytes:
    """Return a Parquet file with a wrong byte in the last page of one of its file-action columns."""
    import pyarrow.parquet as pq

    column_chunk = pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0).column(column)
    if (
        not column_chunk.path_in_schema.startswith(("add.", "txn.", "metaData.", "protocol."))
        or "stats_parsed" in column_chunk.path_in_schema
    ):
        return body
    place = (
        (column_chunk.dictionary_page_offset or column_chunk.data_page_offset) + column_chunk.total_compressed_size - 1
    )
    return body[:place] + bytes([body[place] ^ 0xFF]) + body[place + 1 :]


class _CleanedMeanwhile(MemoryStore):
    """A store in which another clean-up deletes the oldest commits as soon as one of them is read."""

    racing = False

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        if self.racing and key.startswith("_delta_log/0") and key.endswith(".json"):
            self.racing = False
            self.delete([commit_key(version) for version in range(8)])
        return super()._get(key, start, end)


def test_a_log_that_another_clean_up_cleans_right_now_is_left_to_it(time_: Time) -> None:
    store = _CleanedMeanwhile(clock=time_)
    table = _history(store, time_, delta_enableInCommitTimestamps="true")
    time_.now += 60 * DAY
    store.racing = True
    table.checkpoint()
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))


def test_a_log_without_its_last_commit_file_is_left_alone(store: MemoryStore, time_: Time) -> None:
    """Others keep only the checkpoint: when the last version was committed is then not known."""
    table = _history(store, time_)
    store.delete([commit_key(12)])
    time_.now += 60 * DAY
    fresh = DeltaTable.open(store, clock=time_)
    assert fresh.version == 12
    assert fresh.clean_log() == []
    fresh.checkpoint()
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(12))
    assert table.append(rows(12, 13)).version == 13


def test_sidecars_go_a_day_after_nobody_names_them(cases: Path, tmp_path: Path) -> None:
    name = "krs-v2-checkpoints-parquet-with-sidecars"
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    before = DeltaTable.open(tmp_path / "t").files()
    log = tmp_path / "t" / "_delta_log"
    named = sorted((log / "_sidecars").iterdir())
    shutil.copy(named[0], log / "_sidecars" / "00000000-0000-4000-8000-000000000000.parquet")
    for path in log.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    shutil.copy(named[0], log / "_sidecars" / "11111111-0000-4000-8000-000000000000.parquet")
    table, version = DeltaTable.open(tmp_path / "t"), DeltaTable.open(tmp_path / "t").version
    broken = log / f"{version:020d}.checkpoint.00000000-0000-4000-8000-000000000000.parquet"
    broken.write_bytes(b"PAR1")
    table.clean_log()  # which sidecars a damaged checkpoint needs is not known
    assert len(list((log / "_sidecars").iterdir())) == len(named) + 2
    broken.unlink()
    table.clean_log()
    left = {path.name for path in (log / "_sidecars").iterdir()}
    assert "11111111-0000-4000-8000-000000000000.parquet" in left
    assert "00000000-0000-4000-8000-000000000000.parquet" not in left
    assert 1 < len(left) < len(named)  # the older checkpoints went with theirs
    assert DeltaTable.open(tmp_path / "t").files().equals(before)


def test_a_retention_in_words(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    table.append(rows(0, 1))
    with pytest.raises(UnsafeRetention, match="6 days is shorter"):
        table.vacuum("6 days")
    with pytest.raises(InvalidProperty, match="is 'some days'"):
        table.vacuum("some days")
    assert len(table.vacuum("interval 2 weeks").files) == 0
