"""Variants as Python values and JSON, and back; damaged ones are refused."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.delta import DeltaTable, variant
from lake_core.delta.errors import CorruptDataFile, SchemaMismatch, UnsupportedType
from lake_core.store import MemoryStore

LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**37), 10**37),
    st.floats(allow_nan=False),
    st.decimals(-(10**9), 10**9, places=4),
    st.text(max_size=70),
    st.binary(max_size=70),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(dt.UTC)),
    st.times(),
    st.uuids(),
)
VALUE = st.recursive(
    LEAF, lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=8), inner, max_size=5))
)
JSON_VALUE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=8), inner, max_size=5)),
)
SCHEMA = pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)])


@given(st.lists(VALUE, max_size=4))
def test_python_values_come_back(values: list[Any]) -> None:
    assert variant.to_python(variant.from_python(values)) == values


@given(JSON_VALUE)
def test_json_comes_back(value: Any) -> None:
    (text,) = variant.to_json(variant.from_json([json.dumps(value)])).to_pylist()
    assert json.loads(text) == value


@pytest.mark.parametrize("count", [255, 256, 70_000])
def test_many_elements(count: int) -> None:
    value: list[Any] = [list(range(count)), {f"k{number}": number for number in range(min(count, 300))}]
    assert variant.to_python(variant.from_python([value])) == [value]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1.50"), "1.5"),
        (Decimal("12345678901234567890123"), "12345678901234567890123"),
        (1e300, "1e+300"),
        (math.inf, '"Infinity"'),
        (math.nan, '"NaN"'),
        (b"\x00\x01\xff", '"AAH/"'),
        (dt.date(2024, 2, 29), '"2024-02-29"'),
        (dt.datetime(2024, 2, 29, 1, 2, 3, 400_000), '"2024-02-29 01:02:03.4"'),
        (dt.datetime(2024, 2, 29, 1, 2, 3, 456_789, dt.UTC), '"2024-02-29 01:02:03.456789+00:00"'),
        (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        ({"b": 1, "a": [None, True]}, '{"a":[null,true],"b":1}'),
    ],
)
def test_json_is_as_spark_writes_it(value: Any, text: str) -> None:
    assert variant.to_json(variant.from_python([value])).to_pylist() == [text]


def test_no_value_is_not_the_null_value() -> None:
    column = variant.from_json([None, "null"])
    assert column.null_count == 1
    assert variant.to_json(column).to_pylist() == [None, "null"]


@pytest.mark.parametrize(
    ("metadata", "value"),
    [
        (b"", b"\x00"),
        (b"\x02\x00\x00", b"\x00"),
        (b"\x01\x00\x00", b""),
        (b"\x01\x00\x00", b"\x0c"),
        (b"\x01\x00\x00", b"\x02\x01\x00\x00\x01\x00"),
        (b"\x01\x00\x00", bytes([63 << 2])),
        (b"\x01\x00\x00", b"\x05\xff"),
    ],
)
def test_damaged_variants_are_refused(metadata: bytes, value: bytes) -> None:
    column = pa.array([{"metadata": metadata, "value": value}], variant.VARIANT)
    with pytest.raises(CorruptDataFile):
        variant.to_python(column)


@pytest.mark.parametrize("value", [object(), {1, 2}, Decimal("1e50")])
def test_values_that_a_variant_cannot_hold_are_refused(value: Any) -> None:
    with pytest.raises(UnsupportedType):
        variant.from_python([value])


def test_a_table_of_variants_is_created_written_and_read() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    values: list[Any] = [{"a": 1}, None, "text", [1, 2.5]]
    table.append(pa.table({"id": list(range(4)), "v": variant.from_python(values)}))
    table.update({"id": "id + 10"}, "id = 2")
    source = pa.table({"id": [0, 50], "v": variant.from_python([7, 8])})
    table.merge(source, "t.id = s.id").when_matched_update("*").when_not_matched_insert("*").execute()
    table.delete("v IS NULL")
    table.optimize()
    table.checkpoint()
    rows = DeltaTable.open(store).to_arrow().sort_by("id")
    assert dict(zip(rows["id"].to_pylist(), variant.to_python(rows["v"]), strict=True)) == {
        0: 7,
        3: [1, 2.5],
        12: "text",
        50: 8,
    }
    assert DeltaTable.open(store).schema.field("v").type == variant.VARIANT
    (stats,) = table.files(["stats"])["stats"].to_pylist()
    assert json.loads(stats)["nullCount"] == {"id": 0, "v": 0}
    assert json.loads(stats)["minValues"] == {"id": 0}


def test_a_struct_with_such_fields_is_no_variant() -> None:
    kind = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])
    table = DeltaTable.create(MemoryStore(), pa.schema([("s", kind)]))
    table.append(pa.table({"s": pa.array([{"metadata": b"m", "value": b"v"}, None], kind)}))
    assert "variantType" not in (table.protocol.writer_features or ())
    assert table.to_arrow()["s"].to_pylist() == [{"metadata": b"m", "value": b"v"}, None]


@pytest.mark.parametrize("text", ["{", "", "NaN", "[Infinity]", '{"a": 1, "a": 2}', '"\\ud800"'])
def test_texts_that_are_no_json_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        variant.from_json([text])


def test_half_a_variant_is_refused() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    half = pa.array([{"value": None, "metadata": b"\x01\x00\x00"}], variant.VARIANT)
    with pytest.raises(CorruptDataFile, match="no metadata or no value"):
        table.append(pa.table({"id": [1], "v": half}))


def test_a_table_is_not_partitioned_by_variants() -> None:
    with pytest.raises(SchemaMismatch, match="'v' is a variant"):
        DeltaTable.create(MemoryStore(), SCHEMA, partition_by=["v"])
    table = DeltaTable.create(MemoryStore(), SCHEMA)
    table.append(pa.table({"id": [1], "v": variant.from_python([{"a": 1}])}, schema=SCHEMA))
    with pytest.raises(SchemaMismatch, match="'v' is a variant"):
        table.overwrite(table.to_arrow(), schema_mode="overwrite", partition_by=["v"])
    assert table.to_arrow().num_rows == 1
