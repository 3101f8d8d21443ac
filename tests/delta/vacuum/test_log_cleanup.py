"""Cleaning the log leaves a table that can be read and written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DeltaError, VersionNotFound
from lake_core.delta.log_segment import LAST_CHECKPOINT, checkpoint_key, commit_key
from lake_core.store import MemoryStore, ObjectBytes
from tests.delta.tables import ids, rows
from tests.delta.vacuum.clocked_tables import DAY, START, Time, create


def _history(store: MemoryStore, time_: Time, versions: int = 12, **properties: Any) -> DeltaTable:
    """Create one commit per day. Version n holds the ids below n, and every fourth has a checkpoint."""
    table = create(store, time_, delta_checkpointInterval="4", **properties)
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
    position = (
        (column_chunk.dictionary_page_offset or column_chunk.data_page_offset) + column_chunk.total_compressed_size - 1
    )
    return body[:position] + bytes([body[position] ^ 0xFF]) + body[position + 1 :]


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
