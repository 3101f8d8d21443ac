"""A dataset of Arrow over files of any writer has the rows that every other type of input has."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.file_care import BOUNDS_HOLD_IN
from lake_orch import DeltaIOManager, LakeResource

KINDS = (pa.Table, ds.Dataset, pl.DataFrame, pl.LazyFrame, pd.DataFrame)
_LEGACY = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}


@pytest.fixture
def folder(root: str) -> Path:
    path = Path(root) / "tables" / "foreign"
    os.makedirs(path)
    return path


def write(path: Path, rows: pa.Table, keys: dict[str, str] | None = None, **options: Any) -> None:
    with pq.ParquetWriter(path, rows.schema, store_schema=False, **options) as file:
        file.write_table(rows)
        file.add_key_value_metadata(keys or {})


def loaded(root: str, kind: type, **metadata: Any) -> Any:
    """Return the ids of an input, or the input itself where the ids are not asked for."""
    found = []

    def read(foreign: Any) -> None:
        found.append(foreign)

    read.__annotations__["foreign"] = kind
    reader = dg.asset(read, ins={"foreign": dg.AssetIn(metadata=metadata)})
    dg.materialize(
        [dg.AssetSpec("foreign"), reader], resources={"io_manager": DeltaIOManager(lake=LakeResource(root=root))}
    )
    return found[0]


def rows_of(value: Any) -> pa.Table:
    if isinstance(value, ds.Dataset):
        return value.to_table()
    if isinstance(value, pl.LazyFrame):
        value = value.collect()
    return (
        value.to_arrow()
        if isinstance(value, pl.DataFrame)
        else (pa.Table.from_pandas(value, preserve_index=False) if isinstance(value, pd.DataFrame) else value)
    )


def ids_of(value: Any) -> list[int]:
    return sorted(rows_of(value)["id"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_names_may_be_spelled_in_another_case(root: str, folder: Path, kind: type) -> None:
    write(folder / "1.parquet", pa.table({"id": [1], "Name": ["a"]}))
    write(folder / "2.parquet", pa.table({"ID": [2], "name": ["b"]}))
    DeltaTable.convert(folder)
    rows = rows_of(loaded(root, kind)).sort_by("id")
    assert (rows["id"].to_pylist(), rows["Name"].to_pylist()) == ([1, 2], ["a", "b"])


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_fields_may_be_spelled_in_another_case(root: str, folder: Path, kind: type) -> None:
    write(folder / "1.parquet", pa.table({"id": [1], "r": [{"Name": "a"}]}))
    write(folder / "2.parquet", pa.table({"id": [2], "r": [{"name": "b"}]}))
    DeltaTable.convert(folder)
    rows = rows_of(loaded(root, kind)).sort_by("id")
    assert rows["r"].to_pylist() == [{"Name": "a"}, {"Name": "b"}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["x > 5", "NOT (x <= 5)", "x != 1", "x >= 1 AND id < 3"])
def test_rows_with_nan_are_not_hidden_by_bounds(root: str, folder: Path, kind: type, where: str) -> None:
    nan = float("nan")
    write(folder / "a.parquet", pa.table({"id": [1, 2, 3], "x": [1.0, nan, 1.0]}))
    write(folder / "b.parquet", pa.table({"id": [4, 5, 6], "x": [7.0, nan, 8.0]}))
    write(folder / "c.parquet", pa.table({"id": [7, 8, 9], "x": [1.0, nan, 2.0]}))
    expected = ids_of(DeltaTable.convert(folder).to_arrow(where=where))
    assert ids_of(loaded(root, kind, **{"lake/where": where})) == expected
    others = {"x >= 1 AND id < 3": [1, 2], "x != 1": [2, 4, 5, 6, 8, 9]}
    assert expected == others.get(where, [2, 4, 5, 6, 8])


@pytest.mark.parametrize("kind", [pa.Table, ds.Dataset, pl.DataFrame, pl.LazyFrame])
def test_int96_may_have_any_year(root: str, folder: Path, kind: type) -> None:
    moments = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1, 1677, 2024, 2300, 9999)]
    rows = pa.table({"id": range(5), "t": pa.array(moments, pa.timestamp("us", "UTC"))})
    write(folder / "a.parquet", rows, use_deprecated_int96_timestamps=True)
    DeltaTable.convert(folder)
    found = rows_of(loaded(root, kind)).sort_by("id")
    assert found["t"].cast(pa.int64()).to_pylist() == rows["t"].cast(pa.int64()).to_pylist()


def test_int96_is_filtered_by_arrow(root: str, folder: Path) -> None:
    moments = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1, 2024, 9999)]
    rows = pa.table({"id": range(3), "t": pa.array(moments, pa.timestamp("us", "UTC"))})
    write(folder / "a.parquet", rows, use_deprecated_int96_timestamps=True)
    DeltaTable.convert(folder)
    dataset = loaded(root, ds.Dataset)
    assert ids_of(dataset.to_table(filter=ds.field("t") >= moments[1])) == [1, 2]


@pytest.mark.parametrize("kind", [pa.Table, ds.Dataset, pl.DataFrame, pl.LazyFrame])
def test_dates_of_the_hybrid_calendar_keep_their_names(root: str, folder: Path, kind: type) -> None:
    # 1001-01-01 of the Julian calendar is the day 1001-01-07.
    write(folder / "a.parquet", pa.table({"id": [1], "d": [dt.date(1001, 1, 7)]}), _LEGACY)
    write(folder / "b.parquet", pa.table({"id": [2], "d": [dt.date(1001, 1, 1)]}))
    DeltaTable.convert(folder)
    found = loaded(root, kind, **{"lake/where": "d = DATE '1001-01-01'"})
    assert ids_of(found) == [1, 2]


def test_only_the_files_that_need_care_are_read_into_memory(root: str, folder: Path) -> None:
    for number in range(3):
        write(folder / f"{number}.parquet", pa.table({"id": [number], "x": [float(number)]}))
    write(folder / "3.parquet", pa.table({"ID": [3], "x": [1.5]}))
    DeltaTable.convert(folder)
    dataset = loaded(root, ds.Dataset)
    assert isinstance(dataset, ds.UnionDataset)
    assert ids_of(dataset) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [3, 1_500_000], ids=["read at once", "read in ranges"])
@pytest.mark.parametrize(
    "query",
    [~(ds.field("x") <= 5.0), ds.field("x") != 5.0, ~(ds.field("r", "f") < 9.0), ~(ds.field("f") == 1.0)],
    ids=str,
)
def test_filters_of_a_dataset_see_nan_outside_of_bounds(root: str, folder: Path, size: int, query: Any) -> None:
    x = np.full(size, 5.0)
    x[-1] = np.nan
    ids = np.random.default_rng(1).permutation(size)
    columns = {"id": ids, "x": x, "r": pa.StructArray.from_arrays([pa.array(x)], ["f"]), "f": x.astype(np.float32) / 5}
    write(folder / "1.parquet", pa.table(columns))
    DeltaTable.convert(folder)
    assert ids_of(loaded(root, ds.Dataset).to_table(filter=query)) == [ids[-1]]


def test_filters_of_a_dataset_see_nan_beside_one_value_and_nulls(root: str, folder: Path) -> None:
    write(folder / "1.parquet", pa.table({"id": [1, 2, 3], "x": [5.0, None, float("nan")]}))
    DeltaTable.convert(folder)
    found = loaded(root, ds.Dataset).to_table(filter=ds.field("x") != 5.0)
    assert found["id"].to_pylist() == [3]


def test_row_groups_are_still_passed_over_by_bounds_of_other_columns(root: str, folder: Path) -> None:
    write(folder / "1.parquet", pa.table({"id": [1, 2], "x": [1.0, 2.0]}))
    write(folder / "2.parquet", pa.table({"id": [3, 4], "x": [3.0, 4.0]}))
    DeltaTable.convert(folder)
    dataset = loaded(root, ds.Dataset)
    groups = [len(part.row_groups) for part in dataset.get_fragments() for part in [part.subset(ds.field("id") > 2)]]
    assert groups == [0, 1]


def test_row_groups_of_files_of_this_package_are_passed_over_by_bounds_of_floats(root: str, folder: Path) -> None:
    rows = pa.table({"id": [1, 2], "x": [1.0, 2.0]})
    DeltaTable.create(folder, rows.schema).append(rows)
    (part,) = loaded(root, ds.Dataset).get_fragments()
    assert part.subset(ds.field("x") > 2.0).row_groups == []


def test_what_a_footer_says_of_another_file_is_not_believed(root: str, folder: Path) -> None:
    """Arrow copies the keys of a footer to the files that are made of its rows."""
    source = Path(root) / "source"
    DeltaTable.create(source, pa.schema([("x", pa.float64())])).append(pa.table({"x": [5.0, 6.0]}))
    rows = pq.ParquetFile(next(source.glob("*.parquet"))).read()
    keys = rows.schema.metadata
    rows = pa.table({"id": [1, 2], "x": [5.0, float("nan")]}).replace_schema_metadata(keys)
    pq.write_table(rows, folder / "1.parquet")
    DeltaTable.convert(folder)
    assert pq.read_metadata(folder / "1.parquet").metadata[BOUNDS_HOLD_IN]
    assert ids_of(loaded(root, ds.Dataset).to_table(filter=~(ds.field("x") <= 5.0))) == [2]


def test_instants_of_files_without_a_zone_are_filtered(root: str, folder: Path) -> None:
    moments = [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]
    write(folder / "1.parquet", pa.table({"id": [1, 2], "t": pa.array(moments, pa.timestamp("us", "UTC"))}))
    DeltaTable.convert(folder)
    # The file's times lose their zone, as some writers leave it out.
    path = next(folder.glob("1.parquet"))
    write(path, pa.table({"id": [1, 2], "t": pa.array(moments, pa.timestamp("us"))}))
    log = folder / "_delta_log" / f"{0:020}.json"
    log.write_text(_with_sizes(log.read_text(), path.stat().st_size))
    found = loaded(root, ds.Dataset).to_table(filter=ds.field("t") > dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
    assert found["id"].to_pylist() == [2]


def _with_sizes(log: str, size: int) -> str:
    actions = [json.loads(line) for line in log.splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["size"] = size
    return "\n".join(json.dumps(action) for action in actions) + "\n"


def test_files_of_this_package_are_left_to_arrow(root: str, folder: Path) -> None:
    rows = pa.table({"id": [1, 2], "x": [0.5, 1.5], "t": pa.array([0, 1], pa.timestamp("us", "UTC")), "l": [[1], None]})
    DeltaTable.create(folder, rows.schema).append(rows)
    assert isinstance(loaded(root, ds.Dataset), ds.FileSystemDataset)


def test_deleted_rows_are_not_in_a_dataset(root: str, folder: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    table = DeltaTable.create(folder, schema, properties={"delta.enableDeletionVectors": "true"})
    table.append(pa.table({"id": [1, 2], "x": [1.0, 2.0]}))
    table.append(pa.table({"id": [3, 4], "x": [3.0, 4.0]}))
    table.delete("id = 3")
    assert ids_of(loaded(root, ds.Dataset)) == [1, 2, 4]


def test_duckdb_reads_files_with_and_without_care(root: str, folder: Path) -> None:
    write(folder / "1.parquet", pa.table({"id": [1], "n": ["a"]}))
    write(folder / "2.parquet", pa.table({"ID": [2], "n": ["b"]}))
    DeltaTable.convert(folder)
    dataset = loaded(root, ds.Dataset)
    assert duckdb.sql("SELECT id, n FROM dataset WHERE id > 0 ORDER BY id").fetchall() == [(1, "a"), (2, "b")]
    assert dataset.count_rows() == 2


def test_large_integers_with_nulls_pass_through_pandas(root: str) -> None:
    ids = [2**53 + 1, None, 1239162456494753671]

    @dg.asset
    def source() -> pa.Table:
        return pa.table(
            {
                "row": [1, 2, 3],
                "id": pa.array(ids, pa.int64()),
                "m": pa.array([[("k", 2**53 + 1)], None, []], pa.map_(pa.string(), pa.int64())),
            }
        )

    @dg.asset
    def copy(source: pd.DataFrame) -> pd.DataFrame:
        return source

    dg.materialize([source, copy], resources={"io_manager": DeltaIOManager(lake=LakeResource(root=root))})
    stored = DeltaTable(f"{root}/tables/copy").to_arrow().sort_by("row")
    assert stored["id"].to_pylist() == ids
    assert stored["m"].to_pylist() == [[("k", 2**53 + 1)], None, []]
    assert np.dtype("int64") == DeltaTable(f"{root}/tables/source").to_pandas()["row"].dtype


def test_a_relation_of_duckdb_is_stored_and_loaded(root: str) -> None:
    @dg.asset
    def orders() -> duckdb.DuckDBPyRelation:
        return duckdb.sql("SELECT i AS id, i * 2 AS n FROM range(5) t(i)")

    @dg.asset
    def large(orders: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        return orders.filter("n > 4")

    dg.materialize([orders, large], resources={"io_manager": DeltaIOManager(lake=LakeResource(root=root))})
    assert DeltaTable(f"{root}/tables/large").to_arrow().sort_by("id").to_pylist() == [
        {"id": 3, "n": 6},
        {"id": 4, "n": 8},
    ]
