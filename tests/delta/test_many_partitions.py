"""Streams of rows into many partitions: rows are held back, written in rounds, and each is there once."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable, data_file
from lake_core.store import MemoryStore

SCHEMA = pa.schema([("part", pa.int64()), ("id", pa.int64()), ("inner", pa.struct([("value", pa.float64())]))])
PARTS, BATCHES, ROWS = 30, 12, 200
WITH_NAN = {0: 3, BATCHES - 1: 7}
"""The partitions that hold a NaN, by the only batch in which it comes. Rows of the first batch wait for others."""


def _batches(seed: int) -> Iterator[pa.RecordBatch]:
    chance = random.Random(seed)
    for number in range(BATCHES):
        parts = [chance.choice([None, *range(PARTS)]) for _ in range(ROWS)]
        values = [math.nan if part == WITH_NAN.get(number, "none") else chance.random() for part in parts]
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = {"part": parts, "id": ids, "inner": [{"value": value} for value in values]}
        yield from pa.table(rows, schema=SCHEMA).to_batches()


@pytest.fixture(params=[0, 1, 2])
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def table(seed: int, monkeypatch: pytest.MonkeyPatch) -> DeltaTable:
    monkeypatch.setattr("lake_core.delta.row_writer._PIECE_ROWS", ROWS)
    monkeypatch.setattr(data_file, "HELD_BYTES", 20_000)
    monkeypatch.setattr(data_file, "_TOGETHER_BYTES", 5_000)
    monkeypatch.setattr(data_file, "_WORTH_A_THREAD", 1_000)  # some files are large, some small
    created = DeltaTable.create(MemoryStore(), SCHEMA, partition_by=["part"])
    created.append(pa.RecordBatchReader.from_batches(SCHEMA, _batches(seed)))
    return created


def test_every_row_is_there_once_in_its_partition(table: DeltaTable, seed: int) -> None:
    expected = pa.Table.from_batches(_batches(seed)).select(["id", "part"])
    assert table.to_arrow().select(["id", "part"]).sort_by("id") == expected


def test_rows_were_written_before_all_had_come(table: DeltaTable) -> None:
    assert len(_adds(table)) > PARTS + 1


def test_files_with_nan_have_no_bounds_of_that_column(table: DeltaTable) -> None:
    without, checked = 0, 0
    for add in _adds(table):
        data = bytes(table.store.get(add["path"]))
        holds_nan = any(map(math.isnan, pq.read_table(io.BytesIO(data))["inner"].combine_chunks().field(0).to_pylist()))
        column = pq.read_metadata(io.BytesIO(data)).row_group(0).column(1)
        assert column.path_in_schema == "inner.value"
        assert column.is_stats_set != holds_nan
        assert ("inner" in json.loads(add["stats"])["maxValues"]) != holds_nan
        without, checked = without + holds_nan, checked + 1
    assert 0 < without < checked


def _adds(table: DeltaTable) -> list[dict[str, Any]]:
    adds: list[dict[str, Any]] = table.snapshot.files(["path", "stats"]).to_pylist()
    return adds
