"""Snapshots that later ones are built on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable, snapshot_cache
from lake_core.delta.snapshot import load_snapshot
from lake_core.delta.snapshot_cache import SnapshotCache
from lake_core.store import open_store

ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def tables(tmp_path: Path) -> list[DeltaTable]:
    tables = [DeltaTable.create(str(tmp_path / name), ROWS.schema) for name in "abcd"]
    for table in tables:
        for _ in range(3):
            table.append(ROWS)
    return tables


def counted_runs(cache: SnapshotCache) -> int:
    return len({id(run) for snapshot in cache._snapshots.values() for run in snapshot.runs})


def test_a_log_that_goes_on_is_read_from_there(tables: list[DeltaTable]) -> None:
    cache, store = SnapshotCache(), open_store(tables[0].store.url())
    first = cache.load(store)
    tables[0].append(ROWS)
    assert cache.load(store).known_since(first) is not None


def test_a_snapshot_on_another_one_equals_a_new_one(tables: list[DeltaTable]) -> None:
    cache, store = SnapshotCache(), open_store(tables[0].store.url())
    cache.load(store)
    tables[0].append(ROWS)
    assert cache.load(store).files(["path"]).equals(load_snapshot(store).files(["path"]))


def test_what_was_used_longest_ago_makes_room(tables: list[DeltaTable], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_cache, "_MOST", 4)
    cache = SnapshotCache()
    stores = [open_store(table.store.url()) for table in tables]
    first = cache.load(stores[0])
    for store in stores[1:]:
        cache.load(store)
    assert len(cache._snapshots) + counted_runs(cache) <= 4
    assert cache.load(stores[0]).known_since(first) is None


def test_runs_are_counted_once_however_many_snapshots_share_them(tables: list[DeltaTable]) -> None:
    cache, store = SnapshotCache(), open_store(tables[0].store.url())
    for _ in range(30):
        cache.load(store)
        tables[0].append(ROWS)
    assert len(cache._runs) == counted_runs(cache)
    assert sum(cache._runs.values()) == sum(len(snapshot.runs) for snapshot in cache._snapshots.values())
