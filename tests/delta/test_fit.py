"""Frames whose types are not the table's, though their values fit: without rows, and whole floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation, SchemaMismatch
from lake_core.store import MemoryStore

SCHEMA = pa.schema(
    [
        ("day", pa.string()),
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.float64())])),
        ("n", pa.decimal128(10, 2)),
    ]
)
NAN = float("nan")
EMPTY: dict[str, Any] = {
    "pandas, floats": pd.DataFrame({name: pd.Series([], dtype="float64") for name in SCHEMA.names}),
    "pandas, objects": pd.DataFrame({name: [] for name in SCHEMA.names}, dtype="object"),
    "pandas, instants without a zone": pd.DataFrame({"at": pd.Series([], dtype="datetime64[ns]"), "id": [], "day": []}),
    "polars": pl.DataFrame({name: [] for name in SCHEMA.names}),
    "Arrow, no types of Delta": pa.table({"day": pa.array([], pa.duration("s")), "ID": pa.array([], pa.bool_())}),
    "a batch": pa.RecordBatch.from_pydict({"id": pa.array([], pa.string())}),
}
WRITES: dict[str, Callable[[DeltaTable, Any], object]] = {
    "append": lambda table, rows: table.append(rows),
    "append, merge": lambda table, rows: table.append(rows, schema_mode="merge"),
    "replace where": lambda table, rows: table.overwrite(rows, where="id = 99"),
    "merge": lambda table, rows: (
        table.merge(rows, "t.id = s.id").when_matched_update({"id": "s.id"}).when_not_matched_insert({"id": "s.id"})
    ).execute(),
}


@pytest.mark.parametrize("frame", EMPTY)
@pytest.mark.parametrize("write", WRITES)
def test_a_frame_without_rows_fits_every_type(write: str, frame: str) -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(pa.table({"id": [1]}))
    WRITES[write](table, EMPTY[frame])
    assert table.to_arrow()["id"].to_pylist() == [1]
    assert table.schema.types == SCHEMA.types


def test_an_overwrite_with_a_frame_without_rows_empties_the_table() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(pa.table({"id": [1]}))
    table.overwrite(EMPTY["pandas, floats"])
    assert table.to_arrow().num_rows == 0
    with pytest.raises(SchemaMismatch, match="columns that the table lacks: other"):
        table.append(pd.DataFrame({"other": []}))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [1.0, NAN, -0.0], [1, None, 0]),
        (pa.int64(), [float((1 << 53) - 1), -float((1 << 53) - 1)], [(1 << 53) - 1, 1 - (1 << 53)]),
        (pa.int8(), [-128.0, 127.0, None], [-128, 127, None]),
        (pa.int16(), [NAN, NAN], [None, None]),
    ],
)
@pytest.mark.parametrize(
    "frame", [lambda values: pd.DataFrame({"id": values}), lambda values: pa.table([values], ["id"])]
)
def test_whole_floats_fit_a_column_of_integers(
    frame: Callable[[list[Any]], Any], kind: pa.DataType, values: list[Any], expected: list[int | None]
) -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", kind)]))
    table.append(frame(values))
    assert table.to_arrow()["id"].to_pylist() == expected
    table.overwrite(frame(values))
    assert table.to_arrow()["id"].to_pylist() == expected


@pytest.mark.parametrize(
    ("source", "kind", "value"),
    [
        (pa.float64(), pa.int64(), 1.5),
        (pa.float64(), pa.int64(), float(1 << 53)),
        (pa.float64(), pa.int64(), float("inf")),
        (pa.float64(), pa.int8(), 128.0),
        (pa.float64(), pa.int8(), -129.0),
        (pa.float32(), pa.int32(), float(1 << 24)),
    ],
)
def test_floats_that_may_not_be_exact_are_refused(source: pa.DataType, kind: pa.DataType, value: float) -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", kind)]))
    name = f"Int{kind.bit_width}"
    with pytest.raises(SchemaMismatch, match=rf"column 'id' .* {value} is no whole number .*astype\('{name}'\)"):
        table.append(pa.table({"id": pa.array([1.0, value, 0.5], source)}))
    assert table.refresh().version == 0
    assert not [meta.key for meta in table.store.list() if meta.key.endswith(".parquet")]


def test_missing_values_in_columns_that_need_one_are_refused() -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(ConstraintViolation, match="'id' is NOT NULL"):
        table.append(pd.DataFrame({"id": [1, None]}))


def test_a_stream_is_not_looked_into() -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64())]))
    with pytest.raises(SchemaMismatch, match="'id' is double in the data and int64 in the table"):
        table.append(pa.table({"id": [1.0]}).to_reader())


def test_a_merge_computes_with_the_source_s_own_types() -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64()), ("v", pa.int64())]))
    table.append(pa.table({"id": [1], "v": [3]}))
    source = pd.DataFrame({"id": [1, None], "v": [1.5, 2.0]})
    table.merge(source, "t.id = s.id").when_matched_update({"v": "CAST(t.v * s.v AS BIGINT)"}).execute()
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 4}]
