"""An evolving MERGE whose source lacks columns, or fields of structs, that the table has: as delta-spark fills them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation, InvalidMerge
from lake_core.delta.operations.merge import Merge
from lake_core.expression import InvalidExpression
from lake_core.store import MemoryStore

POINT = pa.struct([("x", pa.int64()), ("y", pa.int64()), ("in", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
SCHEMA = pa.schema([("id", pa.int64()), ("p", POINT), ("l", pa.list_(POINT)), ("v", pa.string())])
FULL = {"x": 1, "y": 2, "in": {"a": 3, "b": "b"}}


def table_of_points(*points: Any) -> DeltaTable:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    rows = [{"id": number, "p": point, "l": [point], "v": "old"} for number, point in enumerate(points)]
    table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return table


def evolving(table: DeltaTable, source: pa.Table) -> Merge:
    merge = table.merge(source, "t.id = s.id").with_schema_evolution()
    return merge.when_matched_update("*").when_not_matched_insert("*")


def by_id(table: DeltaTable) -> list[dict[str, Any]]:
    return table.to_arrow().sort_by("id").to_pylist()


def test_columns_that_the_source_lacks_are_kept_and_are_null_in_new_rows() -> None:
    table = table_of_points(FULL)
    evolving(table, pa.table({"ID": [0, 9], "V": ["new", "new"]})).execute()
    assert by_id(table) == [
        {"id": 0, "p": FULL, "l": [FULL], "v": "new"},
        {"id": 9, "p": None, "l": None, "v": "new"},
    ]
    with pytest.raises(InvalidMerge, match=r"no column 'p', which \"\*\" needs"):
        table.merge(pa.table({"id": [0]}), "t.id = s.id").when_matched_update("*").execute()


@pytest.mark.parametrize(
    ("given", "updated", "inserted"),
    [
        ({"x": 7}, {**FULL, "x": 7}, {"x": 7, "y": None, "in": None}),
        ({"Y": 8, "X": 7}, {**FULL, "x": 7, "y": 8}, {"x": 7, "y": 8, "in": None}),
        (
            {"x": None, "in": {"a": 9}},
            {"x": None, "y": 2, "in": {"a": 9, "b": "b"}},
            {"x": None, "y": None, "in": {"a": 9, "b": None}},
        ),
        (
            {"in": {"b": "n", "c": 1.5}, "z": True},
            {"x": 1, "y": 2, "in": {"a": 3, "b": "n", "c": 1.5}, "z": True},
            {"x": None, "y": None, "in": {"a": None, "b": "n", "c": 1.5}, "z": True},
        ),
    ],
)
def test_fields_that_the_source_lacks_are_kept_and_are_null_in_new_rows(
    given: dict[str, Any], updated: dict[str, Any], inserted: dict[str, Any]
) -> None:
    table = table_of_points(FULL, None, FULL)
    source = pa.table({"id": [0, 1, 9], "p": [given, given, given]})
    evolving(table, source).execute()
    kept = {"in": {**FULL["in"], "c": None}, "z": None} if "z" in given else {}
    assert [row["p"] for row in by_id(table)] == [updated, inserted, {**FULL, **kept}, inserted]


def test_a_null_struct_of_the_source_keeps_the_fields_that_it_lacks() -> None:
    table = table_of_points(FULL, FULL, None)
    kind = pa.struct([("x", pa.int64()), ("in", pa.struct([("a", pa.int64())]))])
    source = pa.table({"id": [0, 1, 2], "p": pa.array([None, {"x": 5, "in": None}, None], kind)})
    evolving(table, source).execute()
    inner = {"a": None, "b": FULL["in"]["b"]}
    assert [row["p"] for row in by_id(table)] == [
        {"x": None, "y": 2, "in": inner},
        {"x": 5, "y": 2, "in": inner},
        None,
    ]


def test_structs_in_lists_get_null_for_the_fields_that_they_lack() -> None:
    table = table_of_points(FULL)
    evolving(table, pa.table({"id": [0, 9], "l": [[{"x": 7}, None], [{"x": 8}]]})).execute()
    filled = {"y": None, "in": None}
    assert [row["l"] for row in by_id(table)] == [[{"x": 7, **filled}, None], [{"x": 8, **filled}]]


def test_assigned_structs_get_null_for_the_fields_that_they_lack() -> None:
    table = table_of_points(FULL)
    source = pa.table({"id": [0, 9], "p": [{"x": 7}, {"x": 8}]})
    merge = table.merge(source, "t.id = s.id").with_schema_evolution()
    merge.when_matched_update({"p": "s.p"}).when_not_matched_insert({"id": "s.id", "p": "s.p"}).execute()
    filled = {"y": None, "in": None}
    assert [row["p"] for row in by_id(table)] == [{"x": 7, **filled}, {"x": 8, **filled}]
    with pytest.raises(InvalidExpression, match="cannot be assigned to p"):
        table.merge(source, "t.id = s.id").when_matched_update({"p": "s.p"}).execute()
    with pytest.raises(InvalidExpression, match="cannot be assigned to p"):
        other = pa.table({"id": [0], "p": [{"other": 7}]})
        table.merge(other, "t.id = s.id").with_schema_evolution().when_matched_update({"p": "s.p"}).execute()


def test_a_column_that_must_have_a_value_is_not_filled() -> None:
    table = DeltaTable.create(
        MemoryStore(), pa.schema([("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    )
    table.append(pa.table({"id": [0], "v": ["old"]}))
    evolving(table, pa.table({"id": [0]})).execute()
    assert by_id(table) == [{"id": 0, "v": "old"}]
    with pytest.raises(ConstraintViolation, match="'v' is NOT NULL"):
        evolving(table, pa.table({"id": [1]})).execute()
