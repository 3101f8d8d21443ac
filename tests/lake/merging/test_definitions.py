"""Changes of a definition that are undone: what others wrote under it must fit the earlier one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.lake.errors import Conflict
from lake_core.store import MemoryStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
WIDENING = {"delta.enableTypeWidening": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
ROW = {"id": 2, "n": 2}


def created(properties: dict[str, str]) -> Lake:
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        table = session.create_delta("t", SCHEMA, properties=properties)
        table.append(pa.Table.from_pylist([{"id": 1, "n": 1}], schema=SCHEMA))
        table.add_constraint("small", "n < 10")
    return lake


def change(lake: Lake, operation: Callable[[DeltaTable], object]) -> None:
    with lake.session() as session:
        operation(session.delta("t"))


def append(lake: Lake, row: dict[str, object]) -> None:
    change(lake, lambda table: table.append(pa.Table.from_pylist([row], schema=table.schema)))


def unconstrained(table: DeltaTable) -> None:
    table.drop_constraint("small")


def with_column(table: DeltaTable) -> None:
    table.add_columns(pa.schema([("x", pa.int64())]))


def widened(table: DeltaTable) -> None:
    table.widen_column("n", pa.int64())


def nullable(table: DeltaTable) -> None:
    table.drop_not_null("id")


@pytest.mark.parametrize(
    ("properties", "operation", "row", "what"),
    [
        ({}, unconstrained, {"id": 2, "n": 99}, "the constraint 'small'"),
        ({}, with_column, {**ROW, "x": 7}, "column 'x'"),
        (MAPPED, with_column, {**ROW, "x": 7}, "column 'x'"),
        ({}, nullable, {"id": None, "n": 2}, "NOT NULL of column 'id'"),
        (WIDENING, widened, {"id": 2, "n": 2**40}, "the type of column 'n'"),
    ],
)
def test_a_change_that_later_rows_need_is_not_reverted(
    properties: dict[str, str], operation: Callable[[DeltaTable], None], row: dict[str, object], what: str
) -> None:
    lake = created(properties)
    if operation is widened:
        change(lake, unconstrained)
    change(lake, operation)
    append(lake, row)
    with pytest.raises(Conflict, match=what):
        lake.revert("main~1")
    assert row in lake.delta("t").to_arrow().to_pylist()
    lake.revert("main")
    lake.revert("main~2")
    assert lake.delta("t").to_arrow().to_pylist() == [{"id": 1, "n": 1}]


@pytest.mark.parametrize("operation", [unconstrained, with_column, nullable])
def test_a_change_comes_to_a_branch_whose_rows_were_written_before(operation: Callable[[DeltaTable], None]) -> None:
    lake = created({})
    lake.create_branch("dev")
    with lake.session("dev") as session:
        operation(session.delta("t"))
    append(lake, ROW)
    lake.merge("dev")
    assert lake.delta("t").to_arrow(columns=["id"])["id"].to_pylist() == [1, 2]


def with_struct(table: DeltaTable) -> None:
    table.add_columns(pa.schema([("s", pa.struct([("x", pa.int64())]))]))


@pytest.mark.parametrize(
    ("operation", "row", "what"),
    [
        (with_struct, {**ROW, "s": {"x": 7}}, "column 's'"),
        (with_struct, {**ROW, "s": {"x": None}}, "column 's'"),
        (nullable, {"id": None, "n": 2}, "NOT NULL of column 'id'"),
    ],
)
def test_a_part_that_some_row_breaks_is_not_reverted(
    operation: Callable[[DeltaTable], None], row: dict[str, object], what: str
) -> None:
    lake = created({})
    change(lake, operation)
    append(lake, ROW)
    append(lake, row)
    with pytest.raises(Conflict, match=what):
        lake.revert("main~2")


@pytest.mark.parametrize("operation", [with_column, nullable])
@pytest.mark.parametrize("properties", [{}, MAPPED])
def test_a_change_that_no_later_row_needs_is_reverted(
    operation: Callable[[DeltaTable], None], properties: dict[str, str]
) -> None:
    lake = created(properties)
    before = lake.delta("t").schema
    change(lake, operation)
    append(lake, ROW)
    lake.revert("main~1")
    assert lake.delta("t").schema == before
    assert lake.delta("t").to_arrow().to_pylist() == [{"id": 1, "n": 1}, ROW]


def test_a_column_is_dropped_beside_an_append() -> None:
    lake = created(MAPPED)
    change(lake, with_column)
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta("t").drop_columns(["x"])
    append(lake, {**ROW, "x": 7})
    lake.merge("dev")
    assert lake.delta("t").to_arrow().to_pylist() == [{"id": 1, "n": 1}, ROW]
