"""Reading a batch at a time: the same rows, their positions, and a file of any size in little memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.data_file_reader import DataFiles
from lake_core.delta.errors import CorruptDataFile, DataFileMissing
from lake_core.delta.scan import open_data_files, plan_scan
from lake_core.store import LocalStore, MemoryStore
from tests.delta.tables import SCHEMA, rows


def _one_file(store: Any, data: pa.Table, row_group_size: int) -> tuple[DeltaTable, str]:
    """Create a table of one file, with row groups of this size."""
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 1))
    key = table.files(["path"])["path"][0].as_py()
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, row_group_size=row_group_size)
    body = bytes(sink.getvalue())
    log = store.get("_delta_log/00000000000000000001.json").decode()
    size = table.files(["size"])["size"][0].as_py()
    store.put("_delta_log/00000000000000000001.json", log.replace(f'"size":{size}', f'"size":{len(body)}').encode())
    store.put(key, body)
    return DeltaTable.open(store), key


def _files(table: DeltaTable, **changes: Any) -> DataFiles:
    from dataclasses import replace

    return replace(open_data_files(plan_scan(table.snapshot, changes.pop("columns", None), None)), **changes)


@pytest.mark.parametrize("row_group_size", [1000, 7, 200_000])
def test_the_rows_are_those_of_the_whole_file(row_group_size: int) -> None:
    table, _ = _one_file(MemoryStore(), rows(0, 150_000 if row_group_size > 7 else 100), row_group_size)
    files = _files(table, position="where")
    actual = pa.concat_tables(files.batches(0))
    assert actual.equals(files.read(0).combine_chunks()) or actual.combine_chunks().equals(
        files.read(0).combine_chunks()
    )
    assert actual["where"].to_pylist() == actual["id"].to_pylist()
    assert actual.column_names == ["id", "p", "v", "where"]
    assert max(len(batch) for batch in files.batches(0)) <= 65536


def test_rows_chosen_by_position() -> None:
    table, _ = _one_file(MemoryStore(), rows(0, 3000), 1000)
    gone, only = np.array([0, 999, 1000, 2999]), np.array([0, 5, 1000, 1500, 2998])
    for changes, expected in (
        ({"deleted": [gone]}, [i for i in range(3000) if i not in gone]),
        ({"only": [only]}, only.tolist()),
        ({"only": [only], "deleted": [gone]}, [5, 1500, 2998]),
        ({"only": [np.array([], np.int64)]}, []),
    ):
        files = _files(table, position="n", **changes)
        for parts in ([files.read(0)], list(files.batches(0))):
            assert _values(parts, "id") == expected == _values(parts, "n")
        empty = _files(table, columns=[], position="n", **changes)
        assert _values(list(empty.batches(0)), "n") == expected


def _values(parts: list[pa.Table], name: str) -> list[int]:
    return [value for part in parts for value in part[name].to_pylist()]


def test_no_columns_still_count_rows() -> None:
    table, _ = _one_file(MemoryStore(), rows(0, 3000), 1000)
    assert sum(batch.num_rows for batch in _files(table, columns=[]).batches(0)) == 3000
    assert table.to_batches(columns=[]).read_all().num_rows == 3000
    assert table.to_batches(columns=[], where="id < 10").read_all().num_rows == 10


def test_a_reader_gives_what_the_table_gives() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for start in range(0, 30, 10):
        table.append(rows(start, start + 10))
    for columns, where in ((None, None), (["v", "p"], None), (["id"], "v > 7 AND p = 'p1'"), (None, "id < 0")):
        reader = table.to_batches(columns, where)
        whole = table.to_arrow(columns, where)
        assert reader.schema == whole.schema
        assert sorted(map(str, reader.read_all().to_pylist())) == sorted(map(str, whole.to_pylist()))


def test_errors_come_through_the_reader() -> None:
    store = MemoryStore()
    table, key = _one_file(store, rows(0, 100), 10)
    good = bytes(store.get(key))
    store.put(key, good[:300] + bytes(len(good) - 300 - 900) + good[-900:])
    with pytest.raises(CorruptDataFile, match=r"cannot be read as Parquet"):
        table.to_batches().read_all()
    reader = table.to_batches()
    store.delete([key])
    with pytest.raises(DataFileMissing):
        reader.read_all()


def test_memory_stays_flat(tmp_path: Any) -> None:
    noise = np.random.default_rng(0).random(2_000_000)
    data = pa.table(
        {"id": pa.array(range(len(noise))), "p": pa.nulls(len(noise), pa.string()), "v": noise}, schema=SCHEMA
    )
    table, _ = _one_file(LocalStore(tmp_path), data, 100_000)
    whole = data.nbytes
    del data
    before, peak, count = pa.total_allocated_bytes(), 0, 0
    for batch in table.to_batches():
        peak = max(peak, pa.total_allocated_bytes() - before)
        count += batch.num_rows
    assert count == len(noise)
    assert peak < whole / 4, f"{peak} of {whole} bytes"
