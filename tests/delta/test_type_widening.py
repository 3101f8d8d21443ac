"""Columns get wider types: rows of files from before are read in the new type, and filters find them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import SchemaMismatch
from lake_core.store import MemoryStore

WIDENING = {"delta.enableTypeWidening": "true"}
WIDER: list[tuple[pa.DataType, pa.DataType, Any, Any, Any]] = [
    (pa.int8(), pa.int16(), -128, 300, -128),
    (pa.int16(), pa.int32(), -5, 70_000, -5),
    (pa.int32(), pa.int64(), 2**31 - 1, 2**40, 2**31 - 1),
    (pa.int32(), pa.float64(), 7, 0.5, 7.0),
    (pa.int16(), pa.decimal128(12, 2), 7, Decimal("0.25"), Decimal("7.00")),
    (pa.int64(), pa.decimal128(20, 0), 2**62, Decimal(10**19), Decimal(2**62)),
    (pa.float32(), pa.float64(), 0.5, 1e300, 0.5),
    (pa.decimal128(5, 2), pa.decimal128(9, 4), Decimal("1.25"), Decimal("1.2345"), Decimal("1.2500")),
    (pa.date32(), pa.timestamp("us"), dt.date(2024, 2, 29), dt.datetime(2024, 3, 1, 5), dt.datetime(2024, 2, 29)),
]
NARROWER = [
    (pa.int64(), pa.int32()),
    (pa.int64(), pa.float64()),
    (pa.int32(), pa.decimal128(9, 0)),
    (pa.int64(), pa.decimal128(19, 0)),
    (pa.float64(), pa.float32()),
    (pa.decimal128(9, 4), pa.decimal128(9, 2)),
    (pa.decimal128(9, 2), pa.decimal128(9, 4)),
    (pa.string(), pa.int64()),
    (pa.int32(), pa.string()),
    (pa.list_(pa.int32()), pa.list_(pa.int64())),
]


def create(kind: pa.DataType, properties: dict[str, str] = WIDENING, **more: Any) -> DeltaTable:
    properties = properties | {"delta.feature.timestampNtz": "supported"}
    return DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64()), ("v", kind)]), properties=properties, **more)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(("old", "new", "before", "after", "read"), WIDER, ids=lambda value: str(value))
def test_a_column_gets_a_wider_type(
    old: pa.DataType, new: pa.DataType, before: Any, after: Any, read: Any, partitioned: bool
) -> None:
    table = create(old, partition_by=["v"] if partitioned else [])
    table.append(pa.table({"id": [1, 2], "v": pa.array([before, None], old)}))
    table.widen_column("v", new)
    table.append(pa.table({"id": [3], "v": pa.array([after], new)}))
    for again in (table, DeltaTable.open(table.store)):
        assert again.schema.field("v").type == new
        assert {row["id"]: row["v"] for row in again.to_arrow().to_pylist()} == {1: read, 2: None, 3: after}
    table.update({"id": "id + 10"}, "id < 3")
    table.optimize()
    table.checkpoint()
    found = DeltaTable.open(table.store)
    assert {row["id"]: row["v"] for row in found.to_arrow().to_pylist()} == {11: read, 12: None, 3: after}
    assert found.to_arrow(where="v IS NOT NULL").num_rows == 2


def test_the_schema_says_what_its_columns_were() -> None:
    table = create(pa.int8())
    table.widen_column("V", pa.int16())
    table.widen_column("v", pa.int64())
    table.widen_column("v", pa.int64())
    assert table.version == 2
    assert table.snapshot.metadata.schema.field("v").metadata["delta.typeChanges"] == [
        {"fromType": "byte", "toType": "short"},
        {"fromType": "short", "toType": "long"},
    ]
    assert json.loads(table.snapshot.metadata.schema_string)["fields"][1]["type"] == "long"


def test_a_field_of_a_struct() -> None:
    table = create(pa.struct([("a", pa.int32()), ("b", pa.string())]))
    table.append(pa.table({"id": [1], "v": [{"a": 5, "b": "x"}]}, schema=table.schema))
    table.widen_column("v.a", pa.int64())
    table.append(pa.table({"id": [2], "v": [{"a": 2**40, "b": "y"}]}, schema=table.schema))
    assert [row["v"]["a"] for row in table.to_arrow().sort_by("id").to_pylist()] == [5, 2**40]
    assert table.to_arrow(where="v.a > 5").num_rows == 1


@pytest.mark.parametrize(("old", "new"), NARROWER, ids=lambda kind: str(kind))
def test_a_type_that_is_not_wider_is_refused(old: pa.DataType, new: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="cannot become"):
        create(old).widen_column("v", new)


def test_what_else_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="enableTypeWidening"):
        create(pa.int32(), {}).widen_column("v", pa.int64())
    with pytest.raises(SchemaMismatch, match="no column"):
        create(pa.int32()).widen_column("w", pa.int64())
    with pytest.raises(SchemaMismatch, match="CHECK"):
        create(pa.int32(), WIDENING | {"delta.constraints.c": "v > 0"}).widen_column("v", pa.int64())
