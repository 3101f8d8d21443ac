"""Handles that are behind, or moved while they write: nothing is lost, doubled, or overwritten unseen."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConcurrentAppend, ConcurrentModification, InvalidProperty, MetadataChanged
from lake_core.delta.log_segment import commit_key
from lake_core.store import MemoryStore, ObjectStore
from lake_core.store.object_store import ObjectBytes
from lake_core.testing import FaultStore
from tests.delta.tables import SCHEMA, ids, rows


def _cleaned(store: ObjectStore, commits: int = 24, keep_from: int = 20) -> DeltaTable:
    """Create a table whose old commits were cleaned up. Return a handle that was opened before, at version 1."""
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1), txn=("early", 1))
    stale = DeltaTable.open(store)
    for number in range(1, commits):
        table.append(rows(number, number + 1), txn=("late", number))
    store.delete([commit_key(version) for version in range(keep_from)])
    return stale


@pytest.mark.parametrize("keep_from", [2, 3, 20, 21])
def test_slots_that_cleaning_freed_are_not_written_into(keep_from: int) -> None:
    store = MemoryStore()
    stale = _cleaned(store, keep_from=keep_from)
    result = stale.append(rows(999, 1000))
    assert result.version == 25 == stale.version
    assert ids(DeltaTable.open(store).to_arrow()) == [*range(24), 999]


def test_a_handle_from_before_a_cleaning_goes_on() -> None:
    store = MemoryStore()
    stale = _cleaned(store)
    assert DeltaTable.at(stale.snapshot, stale._clock).append(rows(5, 6), txn=("late", 23)).skipped
    with pytest.raises(ConcurrentModification):
        DeltaTable.at(stale.snapshot, stale._clock).overwrite(rows(5, 6))
    assert ids(stale.refresh().to_arrow()) == list(range(24))
    assert stale.overwrite(rows(7, 8)).version == 25


def test_a_table_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    import shutil

    DeltaTable.create(tmp_path / "t", SCHEMA).append(rows(0, 3))
    stale = DeltaTable.open(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    DeltaTable.create(tmp_path / "t", SCHEMA)
    with pytest.raises(MetadataChanged):
        stale.append(rows(3, 4))
    assert DeltaTable.open(tmp_path / "t").version == 0


def test_deltalake_cleans_up_behind_a_stale_handle(tmp_path: Path) -> None:
    import os

    table = DeltaTable.create(tmp_path, SCHEMA, properties={"delta.logRetentionDuration": "interval 0 days"})
    table.append(rows(0, 1))
    stale = DeltaTable.open(tmp_path)
    for number in range(1, 15):
        table.append(rows(number, number + 1))
    for path in (tmp_path / "_delta_log").iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    deltalake.DeltaTable(str(tmp_path)).cleanup_metadata()
    assert not (tmp_path / commit_key(2)).exists()
    stale.append(rows(99, 100))
    assert ids(DeltaTable.open(tmp_path).to_arrow()) == [*range(15), 99]


def _stream(step: object, batch: pa.Table) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        step()  # type: ignore[operator]
        yield from batch.to_batches()

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def test_a_handle_that_moves_while_it_writes_still_sees_what_it_skipped() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1))
    with pytest.raises(ConcurrentAppend):
        table.overwrite(_stream(lambda: table.append(rows(77, 78)), rows(2, 3)))

    def refreshed() -> None:
        DeltaTable.open(store).append(rows(88, 89))
        table.refresh()

    with pytest.raises(ConcurrentAppend):
        table.overwrite(_stream(refreshed, rows(2, 3)))
    assert ids(table.refresh().to_arrow()) == [0, 77, 88]

    def other_attempt() -> None:
        DeltaTable.open(store).append(rows(2, 3), txn=("a", 1))
        table.refresh()

    assert table.append(_stream(other_attempt, rows(2, 3)), txn=("a", 1)).skipped
    assert ids(table.to_arrow()) == [0, 2, 77, 88]


def test_threads_that_share_a_handle_do_not_double() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    appended = []

    def work(number: int) -> None:
        try:
            table.overwrite(rows(number * 3, number * 3 + 1), where="p = 'p0'")
            appended.append(number * 3)
        except ConcurrentModification:
            pass

    for _ in range(5):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert appended
        assert len(ids(DeltaTable.open(store).to_arrow())) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.checkpointInterval": "0"},
        {"delta.checkpointInterval": "1", "delta.deletedFileRetentionDuration": "interval 1 month"},
    ],
)
def test_nothing_fails_after_the_commit(tmp_path: Path, configuration: dict[str, str]) -> None:
    """Another writer's odd property must not turn a committed write into an error, which would be repeated."""
    deltalake.write_deltalake(str(tmp_path), rows(0, 1), configuration=configuration)
    table = DeltaTable.open(tmp_path)
    for number in range(1, 12):
        assert table.append(rows(number, number + 1)).version == number
    assert ids(DeltaTable.open(tmp_path).to_arrow()) == list(range(12))
    with pytest.raises(InvalidProperty):
        DeltaTable.create(MemoryStore(), SCHEMA, properties=configuration)


@pytest.mark.extended
def test_a_long_tail_of_commits_is_not_read_again_for_each_commit() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={"delta.checkpointInterval": "100000"})
    for number in range(230):
        table.append(rows(number, number + 1))
    counted = CountingStore(store)
    fresh = DeltaTable.open(counted)
    counted.read = 0
    for number in range(230, 240):
        fresh.append(rows(number, number + 1))
    assert counted.read < 240
    assert ids(fresh.to_arrow()) == list(range(240))
    counted.read = 0
    other = DeltaTable.open(counted)
    for number in range(240, 460):
        (fresh if number % 2 else other).append(rows(number, number + 1))
    assert counted.read < 3 * 460
    assert ids(fresh.refresh().to_arrow()) == ids(DeltaTable.open(store).to_arrow()) == list(range(460))


class CountingStore(FaultStore):
    """Counts the objects that are read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, at=10**9)
        self.read = 0

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        self.read += len(requests)
        return super()._get_many(requests)
