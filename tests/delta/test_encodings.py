"""The encodings of data files: what takes the least time and space, and nothing that another reader does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable

_COUNT = 50_000
_RANDOM = np.random.default_rng(1)
_ROWS = pa.table(
    {
        "id": np.arange(_COUNT),
        "small": pa.array(np.arange(_COUNT) % 100, pa.int16()),
        "day": pa.array(np.arange(_COUNT) % 300, pa.int32()).cast(pa.date32()),
        "moment": pa.array(np.arange(_COUNT) * 1_000_003).cast(pa.timestamp("us", "UTC")),
        "price": _RANDOM.integers(0, 50, _COUNT) / 4,
        "noise": _RANDOM.random(_COUNT),
        "name": [f"name {number % 70}" for number in range(_COUNT)],
        "token": [f"{number:016x}" for number in _RANDOM.integers(0, 2**62, _COUNT)],
        "point": pa.array([{"n": number, "f": number % 3 * 0.5} for number in range(_COUNT)]),
        "list": pa.array([[number, None] for number in range(_COUNT)], pa.list_(pa.int64())),
        "map": pa.array([[("k", number)] for number in range(_COUNT)], pa.map_(pa.string(), pa.int32())),
        "flag": pa.array(np.arange(_COUNT) % 2 == 0),
    }
)
_WHOLE = {"id", "small", "day", "moment", "point.n", "list.list.element", "map.key_value.value"}
_REPEATED = {"price", "name", "point.f", "map.key_value.key"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t")
    DeltaTable.create(folder, _ROWS.schema).append(_ROWS)
    return folder


@pytest.fixture(scope="module")
def columns(folder: Path) -> dict[str, Any]:
    group = pq.read_metadata(next(folder.glob("*.parquet"))).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {chunk.path_in_schema: chunk for chunk in chunks}


def test_whole_numbers_and_times_are_packed_differences(columns: dict[str, Any]) -> None:
    assert {name for name, chunk in columns.items() if "DELTA_BINARY_PACKED" in chunk.encodings} == _WHOLE


def test_values_that_repeat_have_a_dictionary(columns: dict[str, Any]) -> None:
    assert {name for name, chunk in columns.items() if chunk.has_dictionary_page} == _REPEATED


def test_a_short_file_may_have_dictionaries_of_distinct_values(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, _ROWS.schema).append(_ROWS.slice(0, 100))
    group = pq.read_metadata(next(tmp_path.glob("*.parquet"))).row_group(0)
    assert group.column(_ROWS.schema.get_field_index("noise")).has_dictionary_page


def test_every_reader_reads_the_rows(folder: Path) -> None:
    names = ["id", "small", "day", "moment", "price", "noise", "name", "token", "flag"]
    expected = _ROWS.select(names).to_pylist()
    file = str(next(folder.glob("*.parquet")))
    assert DeltaTable.open(folder).to_arrow(names).to_pylist() == expected
    assert deltalake.DeltaTable(folder).to_pyarrow_table(columns=names).to_pylist() == expected
    assert pl.read_parquet(file, columns=names).to_arrow().cast(_ROWS.select(names).schema).to_pylist() == expected
    found = duckdb.sql(f"SELECT sum(id), sum(small), count(DISTINCT token) FROM '{file}'").fetchall()
    assert found == [(_COUNT * (_COUNT - 1) // 2, sum(_ROWS["small"].to_pylist()), _COUNT)]


def test_a_file_without_rows_after_its_columns_is_written(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    table.append(pa.table({"id": [None, 1], "p": ["a", "a"]}))
    assert table.to_arrow(["id"])["id"].to_pylist() == [None, 1]
