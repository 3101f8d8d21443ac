"""Tables that are kept readable for Iceberg: their files have what that needs, and what breaks a rule is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable, variant
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.features import supported_features
from lake_core.delta.log_segment import commit_key
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows

V1, V2 = ({f"delta.enableIcebergCompatV{version}": "true"} for version in (1, 2))
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("a", pa.list_(pa.struct([("x", pa.list_(pa.string()))]))),
        ("p", pa.string()),
    ]
)


def field_ids(kind: pa.Field | pa.Schema) -> dict[str, str]:
    """The field id of everything in a Parquet file, by its path."""
    found: dict[str, str] = {}

    def look(field: pa.Field, path: str) -> None:
        found[path] = (field.metadata or {})[b"PARQUET:field_id"].decode()
        children = [field.type.field(number) for number in range(field.type.num_fields)]
        if pa.types.is_map(field.type):
            children = [field.type.key_field, field.type.item_field]
        for child in children:
            look(child, f"{path}.{child.name}")

    for field in kind:
        look(field, field.name)
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_files_have_field_ids_at_every_level_and_the_partition_columns(tmp_path: Path, version: int) -> None:
    properties = {f"delta.enableIcebergCompatV{version}": "true"}
    table = DeltaTable.create(tmp_path, NESTED, partition_by=["p"], properties=properties)
    row = {"id": 1, "m": [("k", [1, 2])], "a": [{"x": ["t"]}], "p": "x"}
    table.append(pa.Table.from_pylist([row], schema=NESTED))
    (file,) = tmp_path.rglob("part-*.parquet")
    found = field_ids(pq.read_schema(file))
    assert len(set(found.values())) == len(found) == 10
    assert int(table.properties["delta.columnMapping.maxColumnId"]) == 10
    assert table.to_arrow().to_pylist() == [row]
    table.add_columns(pa.schema([("more", pa.list_(pa.int64()))]))
    table.append(pa.Table.from_pylist([row | {"id": 2, "more": [7]}], schema=table.schema))
    newest = max(tmp_path.rglob("part-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    assert len(set(field_ids(pq.read_schema(newest)).values())) == 12


def test_new_files_say_what_they_are() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties=V2)
    assert {"icebergCompatV2", "columnMapping"} <= supported_features(table.protocol)
    table.append(rows(0, 10))
    table.update({"v": "0"}, "id = 3")
    for version in (1, 2):
        lines: list[dict[str, Any]] = [json.loads(line) for line in bytes(store.get(commit_key(version))).splitlines()]
        (add,) = [line["add"] for line in lines if "add" in line]
        assert add["tags"] == {"ICEBERG_COMPAT_VERSION": "2"}
        assert json.loads(add["stats"])["numRecords"] == 10
    assert ids(DeltaTable.open(store).to_arrow()) == list(range(10))


@pytest.mark.parametrize(
    ("schema", "properties", "what"),
    [
        (SCHEMA, V2 | {"delta.columnMapping.mode": "none"}, "columnMapping"),
        (SCHEMA, V2 | {"delta.enableDeletionVectors": "true"}, "deletion vectors"),
        (NESTED, V1, "array or a map"),
        (pa.schema([("id", pa.int64()), pa.field("v", variant.VARIANT)]), V2, "variant"),
    ],
)
def test_a_table_that_breaks_a_rule_is_not_created(schema: pa.Schema, properties: dict[str, str], what: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidProperty, match=what):
        DeltaTable.create(store, schema, properties=properties)
    assert not list(store.list())


def test_changes_that_break_a_rule_are_refused() -> None:
    table = DeltaTable.create(MemoryStore(), SCHEMA, partition_by=["p"], properties=V1)
    table.append(rows(0, 4))
    with pytest.raises(InvalidProperty, match="deletion vectors"):
        table.set_properties({"delta.enableDeletionVectors": "true"})
    with pytest.raises(InvalidProperty, match="array or a map"):
        table.add_columns(pa.schema([("l", pa.list_(pa.int64()))]))
    with pytest.raises(InvalidProperty, match="partitioned"):
        table.overwrite(rows(0, 4), schema_mode="overwrite", partition_by=["id"])
    with pytest.raises(InvalidProperty, match="only when a table is created"):
        DeltaTable.create(MemoryStore(), SCHEMA, properties={"delta.columnMapping.mode": "name"}).set_properties(V2)
    supported = V2 | {"delta.feature.deletionVectors": "supported"}
    with pytest.raises(InvalidProperty, match="Iceberg"):
        DeltaTable.create(MemoryStore(), SCHEMA, properties=supported).delete("id = 1", deletion_vectors=True)
    table.set_properties({"delta.enableIcebergCompatV1": "false"})
    table.add_columns(pa.schema([("l", pa.list_(pa.int64()))]))
    assert table.version == 3


V3 = {"delta.enableIcebergCompatV3": "true"}


def test_version_3_brings_row_ids_and_allows_vectors_and_variants(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, pa.field("x", variant.VARIANT)])
    properties = V3 | {"delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(tmp_path, schema, partition_by=["p"], properties=properties)
    assert supported_features(table.protocol) >= {"icebergCompatV3", "columnMapping", "rowTracking", "domainMetadata"}
    assert table.properties["delta.enableRowTracking"] == "true"
    assert table.properties["delta.columnMapping.mode"] == "name"
    table.append(rows(0, 10).append_column(schema.field("x"), variant.from_python(range(10))))
    table.delete("id = 3")
    table.update({"v": "0"}, "id = 4")
    table.optimize(purge=True)
    table.optimize()
    lines = [json.loads(line) for line in bytes(table.store.get(commit_key(table.version))).splitlines()]
    adds = [line["add"] for line in lines if "add" in line]
    assert all(add["tags"] == {"ICEBERG_COMPAT_VERSION": "3"} and "baseRowId" in add for add in adds)
    newest = pq.read_schema(tmp_path / unquote(adds[0]["path"]))
    assert [field.metadata[b"PARQUET:field_id"] for field in list(newest)[-2:]] == [b"2147483540", b"2147483539"]
    assert ids(table.to_arrow()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        (V3 | V2, "other versions"),
        (V3 | {"delta.enableRowTracking": "false"}, "enableRowTracking"),
        (V3 | {"delta.columnMapping.mode": "none"}, "columnMapping"),
    ],
)
def test_rules_of_version_3(properties: dict[str, str], what: str) -> None:
    with pytest.raises(InvalidProperty, match=what):
        DeltaTable.create(MemoryStore(), SCHEMA, properties=properties)
