"""Rows whose type is not known because they have only nulls, at any depth, and structs without fields."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation, SchemaMismatch, UnsupportedType
from lake_core.store import MemoryStore

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("points", pa.list_(pa.struct([("x", pa.float64()), ("y", pa.list_(pa.date32()))]))),
    ]
)
EMPTY_MAP = pa.array([[]], pa.map_(pa.string(), pa.null()))
ROWS: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "lists": (pa.table({"id": [1], "tags": [[]]}), {"tags": []}),
    "a list of nulls": (pa.table({"id": [1], "tags": [[None, None]]}), {"tags": [None, None]}),
    "a struct": (
        pa.table({"id": [1], "point": [{"x": None, "names": []}]}),
        {"point": {"x": None, "names": []}},
    ),
    "a struct without fields": (pa.table({"id": [1], "point": [{}]}), {"point": {"x": None, "names": None}}),
    "a map": (pa.table({"id": [1], "counts": EMPTY_MAP}), {"counts": []}),
    "a list of structs": (
        pa.table({"id": [1], "points": [[{"x": None, "y": [None]}, None]]}),
        {"points": [{"x": None, "y": [None]}, None]},
    ),
    "large lists": (
        pa.table({"id": [1], "tags": pa.array([[]], pa.large_list(pa.null()))}),
        {"tags": []},
    ),
}
WRITES: dict[str, Callable[[DeltaTable, pa.Table], object]] = {
    "append": lambda table, rows: table.append(rows),
    "append, merge": lambda table, rows: table.append(rows, schema_mode="merge"),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "replace where": lambda table, rows: table.overwrite(rows, where="id = 1"),
    "merge": lambda table, rows: (
        table.merge(rows, "t.id = s.id")
        .with_schema_evolution()  # structs may lack fields
        .when_matched_update({name: f"s.{name}" for name in rows.column_names})
        .when_not_matched_insert({name: f"s.{name}" for name in rows.column_names})
        .execute()
    ),
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("write", WRITES)
def test_what_has_only_nulls_gets_the_type_of_the_table(write: str, kind: str) -> None:
    rows, expected = ROWS[kind]
    table = DeltaTable.create(MemoryStore(), NESTED)
    WRITES[write](table, rows)
    assert table.to_arrow().to_pylist() == [dict.fromkeys(NESTED.names) | {"id": 1} | expected]
    assert table.to_arrow().schema.types == table.metadata.arrow_schema.types


def test_frames_of_polars_with_empty_lists() -> None:
    table = DeltaTable.create(MemoryStore(), NESTED)
    table.append(pl.DataFrame({"id": [1], "tags": [[]], "points": [[{"x": None, "y": []}]]}))
    assert table.to_arrow(columns=["tags", "points"]).to_pylist() == [{"tags": [], "points": [{"x": None, "y": []}]}]


def test_nulls_in_elements_that_must_have_a_value_are_refused() -> None:
    strict = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string(), nullable=False)))])
    table = DeltaTable.create(MemoryStore(), strict)
    table.append(pa.table({"id": [1], "tags": [[]]}))
    with pytest.raises(ConstraintViolation, match=r"tags\.element"):
        table.append(pa.table({"id": [1], "tags": [[None]]}))


def test_evolution_leaves_out_new_columns_with_only_nulls() -> None:
    table = DeltaTable.create(MemoryStore(), NESTED)
    rows = pa.table(
        {
            "id": [1],
            "note": pa.nulls(1),
            "point": [{"x": 1.0, "later": None}],
            "points": [[{"x": 2.0, "later": None}]],
            "new": [{"a": 1, "later": None}],
        }
    )
    table.append(rows, schema_mode="merge")
    assert table.metadata.arrow_schema.names == [*NESTED.names, "new"]
    written = table.to_arrow().to_pylist()[0]
    assert (written["point"]["x"], written["points"][0]["x"], written["new"]) == (1.0, 2.0, {"a": 1})
    table.overwrite(rows, schema_mode="merge")
    assert table.to_arrow().num_rows == 1
    with pytest.raises(SchemaMismatch, match="columns that the table lacks: note"):
        table.append(pa.table({"id": [1], "note": pa.nulls(1)}))


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (pa.nulls(1), "new"),
        (pa.array([[]], pa.list_(pa.null())), "new.element"),
        (pa.array([{"a": None}]), "new.a"),
        (pa.array([{"a": 1, "b": [None]}]), "new.b.element"),
        (EMPTY_MAP, "new.value"),
        (pa.array([{}]), "new"),
        (pa.array([{"a": {}}]), "new.a"),
        (pa.array([[{}]]), "new.element"),
        (pa.array([[("k", {})]], pa.map_(pa.string(), pa.struct([]))), "new.value"),
        (pa.array([{"a": [{"b": {}}]}]), "new.a.element.b"),
    ],
)
def test_new_columns_that_files_cannot_hold_are_refused_by_name(column: pa.Array, path: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "new": column})
    store = MemoryStore()
    with pytest.raises(UnsupportedType, match=f"column '{path}'"):
        DeltaTable.create(store, rows.schema)
    assert not list(store.list())
    table = DeltaTable.create(store, pa.schema([("id", pa.int64())]))
    acts: list[Callable[[], object]] = [
        lambda: table.overwrite(rows, schema_mode="overwrite"),
        lambda: table.add_columns(pa.schema([rows.schema.field("new")])),
    ]
    if path != "new" or not pa.types.is_null(column.type):
        acts += [
            lambda: table.append(rows, schema_mode="merge"),
            lambda: table.overwrite(rows, schema_mode="merge"),
            lambda: table.merge(rows, "t.id = s.id").with_schema_evolution().when_not_matched_insert("*").execute(),
        ]
    for act in acts:
        with pytest.raises(UnsupportedType, match=f"column '{path}'"):
            act()
    assert table.refresh().version == 0
    assert not [meta.key for meta in store.list() if meta.key.endswith(".parquet")]


def test_a_table_that_another_writer_gave_a_struct_without_fields() -> None:
    store = MemoryStore()
    DeltaTable.create(store, pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))]))
    key = "_delta_log/00000000000000000000.json"
    lines = [json.loads(line) for line in store.get(key).splitlines()]
    for line in lines:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            schema["fields"][1]["type"]["fields"] = []
            line["metaData"]["schemaString"] = json.dumps(schema)
    store.put(key, "\n".join(map(json.dumps, lines)).encode())
    table = DeltaTable.open(store)
    assert table.to_arrow().num_rows == 0
    for rows in (pa.table({"id": [1]}), pa.table({"id": [1], "s": [{}]})):
        with pytest.raises(UnsupportedType, match="'s' is a struct without fields"):
            table.append(rows)
    table.add_columns(pa.schema([("s", pa.struct([("a", pa.int64())]))]))
    table.append(pa.table({"id": [1], "s": [{}]}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "s": {"a": None}}]


def test_files_are_converted_if_one_of_them_knows_the_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "note": pa.nulls(1), "tags": [[]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "note": ["x"], "tags": [["y"]]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": [3], "note": pa.nulls(1), "tags": [[]]}), tmp_path / "c.parquet")
    table = DeltaTable.convert(str(tmp_path))
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "note": None, "tags": []},
        {"id": 2, "note": "x", "tags": ["y"]},
        {"id": 3, "note": None, "tags": []},
    ]


def test_files_that_have_only_nulls_are_not_converted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "tags": [[]]}), tmp_path / "a.parquet")
    with pytest.raises(UnsupportedType, match=r"'tags\.element' has only nulls"):
        DeltaTable.convert(str(tmp_path))
    assert not (tmp_path / "_delta_log").exists()
