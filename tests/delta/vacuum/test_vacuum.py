"""Vacuum deletes only what nobody needs any more."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing, InvalidProperty, UnsafeRetention
from lake_core.delta.file_name import new_name, time_uuid
from lake_core.delta.log_segment import commit_key
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows
from tests.delta.vacuum.clocked_tables import (
    DAY,
    ORPHAN,
    START,
    Time,
    add_actions,
    create,
    live_paths,
    remove,
    stored_files,
)

pytestmark = pytest.mark.usefixtures("listed")


# What goes


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_removed_files_go_when_their_retention_is_over(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = create(store, time_, ["p"])
    table.append(rows(0, 6))
    old = live_paths(table)
    time_.now += 3 * DAY
    table.overwrite(rows(6, 12))
    for passed, expected in ((0, []), (6, []), (7, old)):
        time_.now = START + (3 + passed) * DAY
        planned = table.vacuum(mode=mode, dry_run=True)
        assert (sorted(planned.files.to_pylist()), planned.dry_run) == (expected, True)
        assert set(old) <= set(stored_files(store))
        result = table.vacuum(mode=mode)
        assert (sorted(result.files.to_pylist()), result.dry_run) == (expected, False)
        if mode == "full":
            assert result.bytes == planned.bytes
            assert bool(result.bytes) == bool(expected)
    assert stored_files(store) == live_paths(table)
    assert ids(table.to_arrow()) == list(range(6, 12))
    assert len(table.vacuum(mode=mode).files) == 0
    with pytest.raises(DataFileMissing):
        DeltaTable.open(store, version=1).to_arrow()


def test_the_property_and_the_argument_say_how_long(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_, delta_deletedFileRetentionDuration="interval 2 days")
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
    assert len(stored_files(store)) == 2


def test_an_override_takes_what_is_young(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    store.put(ORPHAN, b"x")
    time_.now += dt.timedelta(seconds=1)
    table.vacuum(dt.timedelta(), allow_unsafe=True)
    assert stored_files(store) == live_paths(table)
    assert ids(table.to_arrow()) == [3, 4, 5]


def test_a_retention_that_cannot_be_read_keeps_everything(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    metadata = table.metadata.to_json()
    metadata["configuration"] = {"delta.deletedFileRetentionDuration": "interval 1 month"}
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    add_actions(table, {"metaData": metadata})
    time_.now += 4000 * DAY
    with pytest.raises(UnsafeRetention, match="cannot be read"):
        table.vacuum()
    with pytest.raises(UnsafeRetention, match="unknown"):
        table.vacuum(3000 * DAY)
    assert len(stored_files(store)) == 2
    table.vacuum(3000 * DAY, allow_unsafe=True)
    assert stored_files(store) == live_paths(table)


def test_orphans_go_when_they_are_old(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_, ["p"])
    table.append(rows(0, 3))
    store.put(f"p=p0/{ORPHAN}", b"x")
    store.put(f"elsewhere/deep/{ORPHAN}", b"x")
    time_.now += 7 * DAY - dt.timedelta(seconds=1)
    assert len(table.vacuum().files) == 0
    time_.now += dt.timedelta(seconds=1)
    assert len(table.vacuum(mode="lite").files) == 0
    assert table.vacuum().files.to_pylist() == [f"p=p0/{ORPHAN}"]
    assert sorted(stored_files(store)) == sorted(
        [*live_paths(table), f"elsewhere/deep/{ORPHAN}"]
    )  # in no folder of this writer


def test_ranges_of_keys_are_listed_and_deleted_apart(
    store: MemoryStore, time_: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake_core.delta.operations.listing._KEYS_A_TASK", 3)
    monkeypatch.setattr("lake_core.delta.operations.listing._DELETED_AT_ONCE", 2)
    table = create(store, time_, ["p"])
    for _ in range(3):
        table.append(rows(0, 3))
    removed = live_paths(table)
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
    assert stored_files(store) == live_paths(table)
    assert counts == [4, 8]


def test_the_name_of_a_file_tells_its_age_by_the_clock_of_the_table(tmp_path: Path) -> None:
    """A writer whose clock is ahead of the file system's is at work: its file looks old there."""
    ahead = Time()
    ahead.now = dt.datetime.now(dt.UTC) + 100 * DAY
    table = create(tmp_path, ahead)
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
    table = create(store, time_)
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
    table = create(store, time_)
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
    table = create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    table.restore(1)
    time_.now += 8 * DAY
    for mode in ("lite", "full"):
        table.vacuum(mode=mode)
        assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]
    assert stored_files(store) == live_paths(table)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_change_data_goes_with_its_retention(store: MemoryStore, time_: Time, mode: Any) -> None:
    table = create(store, time_, ["p"], delta_enableChangeDataFeed="true")
    table.append(rows(0, 9))
    table.update({"v": "0"}, "id = 3")
    changes = [key for key in stored_files(store) if key.startswith("_change_data/")]
    assert changes
    time_.now += 5 * DAY
    table.delete("id = 4")
    young = [key for key in stored_files(store) if key.startswith("_change_data/") and key not in changes]
    time_.now += 3 * DAY
    table.vacuum(mode=mode)
    assert [key for key in stored_files(store) if key.startswith("_change_data/")] == young
    assert table.changes(3).read_all()["id"].to_pylist() == [4]
    with pytest.raises(DataFileMissing):
        table.changes(2).read_all()
    time_.now += 8 * DAY
    table.vacuum(mode=mode)
    assert stored_files(store) == live_paths(table)


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_change_data_of_a_young_commit_stays_however_long_its_writer_took(
    store: MemoryStore, time_: Time, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(store, time_, delta_enableChangeDataFeed="true")
    table.append(rows(0, 9))
    put: Callable[..., Any] = store.put

    def put_late(key: str, data: bytes, **conditions: Any) -> Any:
        time_.now += 9 * DAY if key == commit_key(2) else dt.timedelta()
        return put(key, data, **conditions)

    monkeypatch.setattr(store, "put", put_late)
    table.update({"v": "0"}, "id = 3")
    time_.now += DAY
    table.vacuum(mode=mode)
    assert table.changes(2).read_all()["id"].to_pylist() == [3, 3]


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
    table = create(store, time_, ["p"])
    table.append(rows(0, 3))
    for key in FOREIGN:
        store.put(key, b"x")
    time_.now += 1000 * DAY
    table.vacuum(mode=mode)
    assert set(FOREIGN) <= set(stored_files(store))


def test_copies_that_somebody_keeps_below_a_table_are_never_vacuumed(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_, ["p"])
    table.append(rows(0, 3))
    copies = {f"backup/{key.rsplit('/')[-1]}": bytes(store.get(key)) for key in stored_files(store)}
    for key, body in copies.items():
        store.put(key, body)
    table.overwrite(rows(3, 6))
    time_.now += 1000 * DAY
    table.vacuum()
    assert set(copies) <= set(stored_files(store))


def test_a_vacuum_lists_the_files_that_it_does_not_know(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    for key in FOREIGN:
        store.put(key, b"x")
    assert table.vacuum(dry_run=True).unknown.to_pylist() == []
    time_.now += 8 * DAY
    assert table.vacuum(dry_run=True).unknown.to_pylist() == sorted(FOREIGN)


def test_orphans_of_other_delta_writers_go_when_they_are_asked_for(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    for key in FOREIGN:
        store.put(key, b"x")
    time_.now += 8 * DAY
    assert table.vacuum(orphans="delta").files.to_pylist() == sorted(FOREIGN[-2:])
    with pytest.raises(ValueError, match="'own' or 'delta'"):
        table.vacuum(orphans="all")  # type: ignore[arg-type]


def test_a_file_that_only_an_old_commit_names_goes(store: MemoryStore, time_: Time) -> None:
    """Its tombstone has left the checkpoint, and its name is another writer's: the commits still in the log tell."""
    table = create(store, time_)
    store.put("theirs.parquet", b"x")
    add_actions(table, remove("theirs.parquet"))
    time_.now += 8 * DAY
    table.append(rows(0, 3))
    table.checkpoint()
    fresh = DeltaTable.open(store, clock=time_)
    assert len(fresh.snapshot.tombstones()) == 0
    assert fresh.vacuum().files.to_pylist() == ["theirs.parquet"]


def test_a_file_that_only_an_old_checkpoint_names_goes(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    store.put("theirs.parquet", b"x")
    add_actions(table, remove("theirs.parquet"))
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
    table = create(store, time_)
    store.put("theirs.parquet", b"x")
    add_actions(table, remove("theirs.parquet"))
    for start in (0, 3):
        time_.now += 60 * DAY
        table.append(rows(start, start + 3))
        table.checkpoint()
    assert not store.exists(commit_key(1))
    assert len(DeltaTable.open(store, clock=time_).vacuum().files) == 0
    assert store.exists("theirs.parquet")


# By the log


def test_lite_goes_on_where_it_stopped(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    deleted = []
    for number in range(4):
        old = live_paths(table)
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
    assert stored_files(store) == live_paths(table)


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
    table = create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    time_.now += 8 * DAY
    store.put("_delta_log/_last_vacuum_info", note)
    assert len(table.vacuum(mode="lite").files) == 1
    assert json.loads(store.get("_delta_log/_last_vacuum_info")) == {"latestCommitVersionOutsideOfRetentionWindow": 2}


def test_lite_finds_what_only_a_checkpoint_names(store: MemoryStore, time_: Time) -> None:
    table = create(store, time_)
    table.append(rows(0, 3))
    table.overwrite(rows(3, 6))
    table.append(rows(6, 9))
    table.checkpoint()
    store.delete([commit_key(version) for version in range(3)])
    time_.now += 8 * DAY
    assert len(DeltaTable.open(store, clock=time_).vacuum(mode="lite").files) == 1
    assert stored_files(store) == live_paths(table)


def test_a_retention_in_words(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    table.append(rows(0, 1))
    with pytest.raises(UnsafeRetention, match="6 days is shorter"):
        table.vacuum("6 days")
    with pytest.raises(InvalidProperty, match="is 'some days'"):
        table.vacuum("some days")
    assert len(table.vacuum("interval 2 weeks").files) == 0
