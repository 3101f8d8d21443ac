"""Variants that data files shred: parts get columns of their own, and each value comes back with the same bytes."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable, variant
from lake_core.delta.errors import CorruptDataFile, InvalidProperty
from lake_core.delta.variant_shredding import STORED, ShreddedColumns, whole
from lake_core.store import MemoryStore
from tests.delta.test_variant import SCHEMA, VALUE

SHREDDED = {"delta.enableVariantShredding": "true"}
FIELDS = st.sampled_from(["a", "b", "c", "ä", ""])
RECORD = st.dictionaries(FIELDS, st.one_of(VALUE, st.integers(0, 9)), max_size=4)


def stored(values: list[Any]) -> pa.Table:
    column = variant.from_python(values)
    parts = [part.fill_null(b"") for part in column.flatten()]
    mask = column.is_null()
    return pa.table({"v": pa.StructArray.from_arrays(parts, fields=list(STORED), mask=mask)})


def back(rows: pa.Table) -> pa.Array:
    return whole(rows["v"].combine_chunks(), variant.VARIANT)


@given(st.lists(st.one_of(VALUE, RECORD, st.lists(RECORD, max_size=3)), max_size=12), st.integers(0, 12))
def test_bytes_come_back_also_of_values_unlike_the_first_rows(values: list[Any], first: int) -> None:
    rows = stored(values)
    columns = ShreddedColumns.of(rows.slice(0, first))
    shredded = columns.shred(rows)
    sink = io.BytesIO()
    pq.write_table(shredded, sink)
    expected = rows["v"].combine_chunks().cast(variant.VARIANT)
    assert back(pq.read_table(sink)).equals(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, pa.bool_()),
        (300, pa.int64()),
        (2.5, pa.float64()),
        (Decimal("2.50"), pa.decimal128(38, 2)),
        ("text", pa.string()),
        ("t" * 100, pa.string()),
        (b"\x00", pa.binary()),
        (dt.date(2024, 2, 29), pa.date32()),
        (dt.datetime(2024, 2, 29, 1), pa.timestamp("us")),
        (dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        ([1, 2], pa.list_(pa.field("element", pa.struct({"value": pa.binary(), "typed_value": pa.int64()}), False))),
        (
            {"a": "x"},
            pa.struct([pa.field("a", pa.struct({"value": pa.binary(), "typed_value": pa.string()}), nullable=False)]),
        ),
    ],
)
def test_a_type_gets_a_column(value: Any, kind: pa.DataType) -> None:
    rows = stored([value, value, None])
    column = ShreddedColumns.of(rows).shred(rows)["v"].combine_chunks()
    assert column.type.field("typed_value").type == kind
    assert column.field("value").null_count == 3


def test_values_of_mixed_types_stay_bytes() -> None:
    rows = stored([1, "a", 2.5, None])
    assert ShreddedColumns.of(rows).levels == {}


def test_rare_fields_stay_bytes() -> None:
    rows = stored([{"common": number} | ({"rare": 1} if number == 7 else {}) for number in range(30)])
    column = ShreddedColumns.of(rows).shred(rows)["v"].combine_chunks()
    assert column.type.field("typed_value").type.names == ["common"]
    assert column.field("value").null_count == 29


def test_a_column_gets_no_more_fields_than_spark_gives_it() -> None:
    rows = stored([{f"k{number}": {"x": 1, "y": 2} for number in range(1000)}] * 2)
    column = ShreddedColumns.of(rows).shred(rows)["v"].combine_chunks()
    assert column.type.field("typed_value").type.num_fields == 300
    assert back(pa.table({"v": column})).equals(rows["v"].combine_chunks().cast(variant.VARIANT))


def of_another_writer(body: bytes, names: bytes = b"\x01\x00\x00") -> pa.Table:
    values = pa.array([{"value": body, "metadata": names}] * 2, variant.VARIANT)
    return pa.table({"v": values.cast(STORED)})


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<Bq", 6 << 2, 5),  # a whole number in eight bytes, where one is enough
        struct.pack("<Bd", 7 << 2, float("nan")),
        bytes([16 << 2, 1, 0, 0, 0]) + b"a",  # a long text of one character
        bytes([9 << 2, 2]) + (250).to_bytes(8, "little"),  # a decimal in eight bytes
        struct.pack("<Bq", 18 << 2, 1_700_000_000_000_000_001),  # nanoseconds
        struct.pack("<Bi", 11 << 2, 3_000_000),  # a date after the year 9999
    ],
)
def test_values_that_other_writers_encode_in_another_way_keep_their_bytes(body: bytes) -> None:
    rows = of_another_writer(body)
    columns = ShreddedColumns.of(rows)
    assert back(columns.shred(rows)).field("value").to_pylist() == [body, body]


@pytest.mark.parametrize(
    ("typed", "body"),
    [
        (
            pa.array([1_700_000_000_000_000_001], pa.timestamp("ns")),
            struct.pack("<Bq", 19 << 2, 1_700_000_000_000_000_001),
        ),
        (pa.array([3_000_000], pa.int32()).cast(pa.date32()), struct.pack("<Bi", 11 << 2, 3_000_000)),
        (pa.array([7], pa.int8()), bytes([3 << 2, 7])),
    ],
)
def test_typed_values_of_other_writers_are_read_exactly(typed: pa.Array, body: bytes) -> None:
    column = pa.StructArray.from_arrays(
        [pa.array([b"\x01\x00\x00"]), pa.array([None], pa.binary()), typed], names=["metadata", "value", "typed_value"]
    )
    assert whole(column, variant.VARIANT).field("value").to_pylist() == [body]


def test_a_table_shreds_its_variants() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties=SHREDDED)
    assert "variantShredding" in (table.protocol.reader_features or ())
    values: list[Any] = [{"a": 1, "b": "x"}, None, {"a": 2, "c": float("nan")}, [1]]
    table.append(pa.table({"id": list(range(4)), "v": variant.from_python(values)}))
    table.update({"id": "id + 10"}, "id = 2")
    table.delete("variant_get(v, '$.a', 'int') = 1")
    rows = DeltaTable.open(store).to_arrow().sort_by("id")
    assert repr(variant.to_python(rows["v"])) == repr([None, [1], {"a": 2, "c": float("nan")}])
    for path in table.files(["path"])["path"].to_pylist():
        (column,) = (field for field in pq.read_schema(io.BytesIO(store.get(path))) if field.name == "v")
        assert column.type.get_field_index("metadata") >= 0


def test_files_of_a_table_hold_the_parts_in_columns() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties=SHREDDED)
    values = [{"a": number, "b": f"text {number}"} for number in range(100)]
    table.append(pa.table({"id": list(range(100)), "v": variant.from_python(values)}))
    (path,) = table.files(["path"])["path"].to_pylist()
    kind = pq.read_schema(io.BytesIO(store.get(path))).field("v").type
    assert kind.field("typed_value").type.names == ["a", "b"]


def test_a_table_that_does_not_list_the_feature_is_not_shredded() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(pa.table({"id": [1], "v": variant.from_python([{"a": 1}])}))
    (path,) = table.files(["path"])["path"].to_pylist()
    assert pq.read_schema(io.BytesIO(store.get(path))).field("v").type.names == ["value", "metadata"]


def test_bytes_that_are_no_variant_are_refused() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, properties=SHREDDED)
    damaged = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x02\x01\x00\x00\x01\x00"}], variant.VARIANT)
    with pytest.raises(CorruptDataFile, match="cannot be read"):
        table.append(pa.table({"id": [1], "v": damaged}))
    assert table.version == 0


def test_the_property_is_true_or_false() -> None:
    with pytest.raises(InvalidProperty, match="enableVariantShredding"):
        DeltaTable.create(MemoryStore(), SCHEMA, properties={"delta.enableVariantShredding": "yes"})


def test_statistics_count_the_nulls_of_shredded_columns() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, properties=SHREDDED)
    table.append(pa.table({"id": [1, 2], "v": variant.from_python([{"a": 1}, None])}))
    (stats,) = table.files(["stats"])["stats"].to_pylist()
    assert json.loads(stats)["nullCount"] == {"id": 0, "v": 1}
