"""Which protocol a table gets: the lowest that serves it, raised by request or by what needs it, refused by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.action import Protocol
from lake_core.delta.errors import (
    ConstraintViolation,
    InvalidProperty,
    SchemaMismatch,
    UnsupportedWriterFeature,
)
from lake_core.delta.features import READABLE_FEATURES, WRITABLE_FEATURES, supported_features, upgraded
from lake_core.delta.log_segment import commit_key
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows
from tests.delta.test_rules import generated, invariant

LEGACY = {1: set[str](), 2: {"appendOnly", "invariants"}}
LEGACY[3] = LEGACY[2] | {"checkConstraints"}
LEGACY[4] = LEGACY[3] | {"changeDataFeed", "generatedColumns"}
LEGACY[5] = LEGACY[4] | {"columnMapping"}
LEGACY[6] = LEGACY[5] | {"identityColumns"}


def versions(table: DeltaTable) -> tuple[int, int]:
    return table.protocol.min_reader_version, table.protocol.min_writer_version


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, (1, 2)),
        ({"delta.appendOnly": "true"}, (1, 2)),
        ({"delta.constraints.c": "id > 0"}, (1, 3)),
        ({"delta.enableChangeDataFeed": "true"}, (1, 4)),
        ({"delta.enableChangeDataFeed": "false"}, (1, 2)),
        ({"delta.columnMapping.mode": "name"}, (2, 5)),
        ({"delta.columnMapping.mode": "none"}, (1, 2)),
        ({"delta.enableDeletionVectors": "true"}, (3, 7)),
        ({"delta.enableInCommitTimestamps": "true"}, (1, 7)),
        ({"delta.minWriterVersion": "4"}, (1, 4)),
        ({"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}, (2, 5)),
        ({"delta.feature.appendOnly": "supported"}, (1, 2)),
        ({"delta.feature.v2Checkpoint": "supported"}, (3, 7)),
        ({"delta.feature.domainMetadata": "enabled"}, (1, 7)),
        ({"delta.unknown": "x", "my.own": "y"}, (1, 2)),
    ],
)
def test_a_table_begins_at_the_lowest_protocol(
    store: MemoryStore, properties: dict[str, str], wanted: tuple[int, int]
) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=properties)
    assert versions(table) == wanted
    kept = {key for key in properties if not key.startswith(("delta.feature.", "delta.min"))}
    assert kept <= set(table.properties)
    assert not [key for key in table.properties if key.startswith(("delta.feature.", "delta.min"))]
    # Properties that are set later lead to the same protocol.
    later = DeltaTable.create(MemoryStore(), SCHEMA)
    if "delta.constraints.c" in properties:
        later.add_constraint("c", "id > 0")
    else:
        later.set_properties(properties)
    assert versions(later) == wanted
    assert later.append(rows(1, 2)).rows == 1 == table.append(rows(1, 2)).rows


def test_rules_in_a_schema_ask_for_their_version(store: MemoryStore) -> None:
    assert versions(DeltaTable.create(store, pa.schema([invariant("i", "i > 0", pa.int64())]))) == (1, 2)
    other = MemoryStore()
    assert versions(DeltaTable.create(other, pa.schema([("id", pa.int64()), generated("g", "id", pa.int64())]))) == (
        1,
        4,
    )


@pytest.mark.parametrize("writer", range(1, 7))
@pytest.mark.parametrize("feature", sorted(WRITABLE_FEATURES))
def test_an_upgrade_keeps_what_was_and_adds_one(writer: int, feature: str) -> None:
    before = Protocol(2 if writer >= 5 else 1, writer)
    after = upgraded(before, [feature])
    assert supported_features(before) == LEGACY[writer]
    legacy = next((version for version in range(1, 7) if feature in LEGACY[version]), None)
    if feature in LEGACY[writer]:
        assert after is before
    elif legacy is not None:
        assert (after.min_writer_version, after.writer_features, after.reader_features) == (legacy, None, None)
        assert after.min_reader_version == max(before.min_reader_version, 2 if feature == "columnMapping" else 1)
    else:
        needed = {"domainMetadata"} if feature in ("clustering", "rowTracking", "icebergCompatV3") else set()
        needed |= {"rowTracking"} if feature == "icebergCompatV3" else set()
        needed |= {"columnMapping"} if feature.startswith("icebergCompat") else set()
        assert (after.min_writer_version, after.writer_features) == (7, frozenset(LEGACY[writer] | {feature} | needed))
        if feature in READABLE_FEATURES:
            assert after.min_reader_version == 3
            assert after.reader_features is not None
            assert after.reader_features == {name for name in LEGACY[writer] | {feature} if name in READABLE_FEATURES}
        else:
            assert after.reader_features is None
            least = 2 if "columnMapping" in needed else 1
            assert after.min_reader_version == max(before.min_reader_version, least)
    assert feature in supported_features(after)
    assert supported_features(before) <= supported_features(after)


def test_mapping_raises_the_reader_where_the_writer_knows_it_already() -> None:
    """Readers of version 1 look for columns by logical name and would find none."""
    for number, writer in enumerate(("5", "6")):
        table = DeltaTable.create(MemoryStore(), SCHEMA, properties={"delta.minWriterVersion": writer})
        assert versions(table) == (1, 5 + number)
        table.set_properties({"delta.columnMapping.mode": "name"})
        assert versions(table) == (2, 5 + number)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"delta.minReaderVersion": "2"}, Protocol(2, 2)),
        ({"delta.minWriterVersion": "6"}, Protocol(1, 6)),
        ({"delta.minWriterVersion": "7"}, Protocol(1, 7, None, frozenset({"appendOnly", "invariants"}))),
        ({"delta.minReaderVersion": "3"}, Protocol(3, 7, frozenset(), frozenset({"appendOnly", "invariants"}))),
        (
            {"delta.minReaderVersion": "2", "delta.minWriterVersion": "7"},
            Protocol(2, 7, None, frozenset({"appendOnly", "columnMapping", "invariants"})),
        ),
        (
            {"delta.minReaderVersion": "3", "delta.columnMapping.mode": "name"},
            Protocol(3, 7, frozenset({"columnMapping"}), frozenset({"appendOnly", "columnMapping", "invariants"})),
        ),
    ],
)
def test_a_table_has_the_versions_that_are_asked_for(asked: dict[str, str], expected: Protocol) -> None:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA, properties=asked).append(rows(0, 2))
    assert DeltaTable.open(store).protocol == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.parquet.format.version", "2.12.0"),
        ("delta.randomizeFilePrefixes", "true"),
        ("delta.universalFormat.enabledFormats", "iceberg"),
    ],
)
def test_properties_without_effect_are_refused_and_those_of_others_stay(name: str, value: str) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidProperty, match=re.escape(name)):
        DeltaTable.create(store, SCHEMA, properties={name: value})
    table = DeltaTable.create(store, SCHEMA)
    with pytest.raises(InvalidProperty, match=re.escape(name)):
        table.set_properties({name: value})
    metadata = {"metaData": {**table.metadata.to_json(), "configuration": {name: value}}}
    store.put(commit_key(1), json.dumps(metadata).encode())
    table.refresh().append(rows(0, 2))
    table.set_properties({"my.own": "1"})
    assert table.properties[name] == value


def test_partition_columns_are_written_where_a_property_asks_for_it(tmp_path: Path) -> None:
    properties = {"delta.writePartitionColumnsToParquet": "true"}
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"], properties=properties)
    table.append(rows(0, 3))
    for file in tmp_path.rglob("part-*.parquet"):
        assert pq.read_schema(file).names == ["id", "p", "v"]
    assert ids(table.to_arrow()) == [0, 1, 2]


def test_what_other_clients_say_of_arrow_fields_is_kept() -> None:
    fields = [
        pa.field("id", pa.int64(), metadata={"comment": "a key", "other": "x"}),
        pa.field("a", pa.int32(), metadata={"CURRENT_DEFAULT": "42"}),
        pa.field("c", pa.string(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        pa.field("g", pa.int64(), metadata={"delta.generationExpression": "id * 2"}),
    ]
    table = DeltaTable.create(MemoryStore(), pa.schema(fields))
    assert "allowColumnDefaults" in supported_features(table.protocol)
    table.append(pa.table({"id": [1], "c": ["abc"]}))
    assert table.to_arrow().to_pylist() == [{"id": 1, "a": 42, "c": "abc", "g": 2}]
    assert table.snapshot.metadata.schema.field("id").metadata == {"comment": "a key"}
    with pytest.raises(ConstraintViolation):
        table.append(pa.table({"id": [1], "c": ["too long"]}))


def test_lists_stay_lists() -> None:
    listed = Protocol(1, 7, None, frozenset({"appendOnly"}))
    assert upgraded(listed, ["checkConstraints"]) == Protocol(1, 7, None, frozenset({"appendOnly", "checkConstraints"}))
    assert upgraded(listed, ["columnMapping"]) == Protocol(2, 7, None, frozenset({"appendOnly", "columnMapping"}))
    both = upgraded(upgraded(listed, ["columnMapping"]), ["timestampNtz"])
    assert both == Protocol(
        3, 7, frozenset({"columnMapping", "timestampNtz"}), frozenset({"appendOnly", "columnMapping", "timestampNtz"})
    )
    assert upgraded(both, ["columnMapping"]) is both


@pytest.mark.parametrize("feature", ["futureThing", "collations", "catalogManaged", "lakeManaged"])
def test_features_that_are_not_implemented_are_refused_by_name(store: MemoryStore, feature: str) -> None:
    table = DeltaTable.create(store, SCHEMA)
    with pytest.raises(UnsupportedWriterFeature, match=feature) as caught:
        table.set_properties({f"delta.feature.{feature}": "supported"})
    assert caught.value.feature == feature
    with pytest.raises(UnsupportedWriterFeature, match=feature):
        DeltaTable.create(MemoryStore(), SCHEMA, properties={f"delta.feature.{feature}": "supported"})
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", feature]}
    store.put(commit_key(1), json.dumps({"protocol": protocol}).encode())
    table = DeltaTable.open(store)
    assert table.to_arrow().num_rows == 0
    operations: list[Callable[[], Any]] = [
        lambda: table.append(rows(0, 1)),
        lambda: table.overwrite(rows(0, 1)),
        lambda: table.delete(),
        lambda: table.delete("id = 1", txn=("a", 1)),
        lambda: table.update({"v": "1"}),
        lambda: table.merge(rows(0, 1), "t.id = s.id").when_matched_delete().execute(),
        lambda: table.optimize(),
        lambda: table.restore(0),
        lambda: table.vacuum(),
        lambda: table.set_properties({"a": "b"}),
        lambda: table.unset_properties(["a"]),
        lambda: table.add_constraint("c", "id > 0"),
        lambda: table.drop_constraint("c"),
        lambda: table.add_columns(pa.schema([("n", pa.int64())])),
        lambda: table.reorder_columns(["v"]),
        lambda: table.drop_not_null("v"),
        lambda: table.checkpoint(),
        lambda: table.clean_log(),
        lambda: table.recorded(("a", 1)),
    ]
    before = [meta.key for meta in store.list()]
    for operation in operations:
        with pytest.raises(UnsupportedWriterFeature, match=feature):
            operation()
    assert [meta.key for meta in store.list()] == before


def test_newer_writer_versions_are_refused(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 8, "writerFeatures": []}}
    store.put(commit_key(1), json.dumps(protocol).encode())
    with pytest.raises(UnsupportedWriterFeature, match="writerVersion=8"):
        table.refresh().append(rows(0, 1))


def test_identity_columns_as_a_feature_alone_are_no_hindrance(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={"delta.feature.identityColumns": "supported"})
    assert versions(table) == (1, 6)
    assert table.append(rows(0, 1)).rows == 1


def test_a_change_puts_nothing_in_force_that_was_not_asked_for(store: MemoryStore) -> None:
    """The table's feature list names none of these features: their properties have no effect until one is added."""
    table = DeltaTable.create(store, SCHEMA)
    flags = {"delta.enableChangeDataFeed": "true", "delta.enableIcebergCompatV3": "true"}
    flags["delta.constraints.c"] = "id < 0"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    lines = [{"protocol": protocol}, {"metaData": {**table.metadata.to_json(), "configuration": flags}}]
    store.put(commit_key(1), "\n".join(map(json.dumps, lines)).encode())
    table.refresh().append(rows(0, 3))
    table.add_columns(pa.schema([("n", pa.int64())]))
    table.append(pa.table({"id": [3], "m": [1]}), schema_mode="merge")
    table.set_properties({"my.own": "1", "delta.appendOnly": "false"})
    table.reorder_columns(["v"])
    table.overwrite(rows(0, 3), schema_mode="overwrite")
    assert table.delete("id = 1").metrics["numAddedChangeFiles"] == 0
    assert supported_features(table.protocol) == {"appendOnly"}
    table.set_properties({"delta.enableChangeDataFeed": "true"})
    assert supported_features(table.protocol) == {"appendOnly", "changeDataFeed"}
    assert table.delete("id = 0").metrics["numAddedChangeFiles"] == 1
    with pytest.raises(InvalidProperty, match="only when a table is created"):
        table.set_properties({"delta.enableIcebergCompatV3": "true"})


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"delta.appendOnly": "yes"}, "true"),
        ({"delta.enableChangeDataFeed": "1"}, "true"),
        ({"delta.checkpointInterval": "0"}, "whole number"),
        ({"delta.columnMapping.mode": "NAME"}, "'name'"),
        ({"delta.columnMapping.mode": "id"}, "'none' to 'name'"),
        ({"delta.columnMapping.maxColumnId": "0"}, "set by the table itself"),
        ({"delta.dataSkippingNumIndexedCols": "-2"}, "whole number"),
        ({"delta.dataSkippingStatsColumns": "id,zz"}, "zz"),
        ({"delta.dataSkippingStatsColumns": "`id"}, "commas"),
        ({"delta.logRetentionDuration": "1 month"}, "interval"),
        ({"delta.isolationLevel": "SnapshotIsolation"}, "Serializable"),
        ({"delta.minWriterVersion": "9"}, "from 1 to 7"),
        ({"delta.minReaderVersion": "x"}, "from 1 to 3"),
        ({"delta.feature.appendOnly": "false"}, "supported"),
        ({"a": 1}, "text"),
        ({"delta.minReaderVersion": 2}, "text"),
        ("delta.appendOnly", "mapping"),
        (None, "mapping"),
    ],
)
def test_properties_that_make_no_sense_are_refused(store: MemoryStore, properties: dict[str, Any], text: str) -> None:
    table = DeltaTable.create(store, SCHEMA)
    with pytest.raises(InvalidProperty, match=text):
        table.set_properties(properties)
    assert table.refresh().version == 0
    if properties and text not in ("'none' to 'name'", "set by the table itself", "created"):
        other = MemoryStore()
        with pytest.raises(InvalidProperty, match=text):
            DeltaTable.create(other, SCHEMA, properties=properties)
        assert not DeltaTable.exists(other)


@pytest.mark.parametrize(
    "name",
    [
        "delta.rowTracking.materializedRowIdColumnName",
        "delta.inCommitTimestampEnablementVersion",
        "delta.requireCheckpointProtectionBeforeVersion",
    ],
)
def test_properties_that_the_table_sets_by_itself_are_neither_set_nor_unset(store: MemoryStore, name: str) -> None:
    vectors = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    table = DeltaTable.create(store, SCHEMA, properties=vectors)
    table.append(rows(0, 3))
    table.set_properties({"delta.enableInCommitTimestamps": "true"})
    table.drop_feature("deletionVectors")
    before = table.properties
    assert name in before
    with pytest.raises(InvalidProperty, match="set by the table itself"):
        table.set_properties({name: "7"})
    with pytest.raises(InvalidProperty, match="cannot be unset"):
        table.unset_properties([name])
    assert DeltaTable.open(store).properties == before


def test_unknown_properties_are_kept_by_every_operation(store: MemoryStore) -> None:
    custom_properties = {"my.own": "1", "delta.someday": "é\n"}
    table = DeltaTable.create(store, SCHEMA, properties=custom_properties)
    table.append(rows(0, 3))
    table.set_properties({"other": ""})
    table.unset_properties(["other", "never set"])
    table.add_constraint("c", "id >= 0")
    table.add_columns(pa.schema([("n", pa.int64())]))
    table.overwrite(rows(0, 1), schema_mode="overwrite")
    table.checkpoint()
    properties = DeltaTable.open(store).properties
    assert properties == {**custom_properties, "delta.constraints.c": "id >= 0"}
    version = table.version
    assert table.set_properties(custom_properties).version == version  # nothing new, no commit


def test_names_that_the_change_feed_needs_are_refused_with_it(store: MemoryStore) -> None:
    schema = pa.schema([("id", pa.int64()), ("_Change_Type", pa.string())])
    feed = {"delta.enableChangeDataFeed": "true"}
    with pytest.raises(SchemaMismatch, match="_Change_Type"):
        DeltaTable.create(store, schema, properties=feed)
    table = DeltaTable.create(store, schema)
    with pytest.raises(SchemaMismatch, match="_Change_Type"):
        table.set_properties(feed)
    other = DeltaTable.create(MemoryStore(), SCHEMA, properties=feed)
    with pytest.raises(SchemaMismatch, match="_commit_version"):
        other.add_columns(pa.schema([("_commit_version", pa.int64())]))


def test_domain_metadata_of_others_is_carried_over(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={"delta.feature.domainMetadata": "supported"})
    domains = {"their.domain": '{"a": 1}', "gone": "x"}
    lines = [
        {"domainMetadata": {"domain": key, "configuration": text, "removed": False}} for key, text in domains.items()
    ]
    store.put(commit_key(1), "\n".join(map(json.dumps, lines)).encode())
    store.put(
        commit_key(2), json.dumps({"domainMetadata": {"domain": "gone", "configuration": "", "removed": True}}).encode()
    )
    table.refresh().append(rows(0, 3))
    table.update({"v": "1"})
    table.overwrite(rows(0, 1), schema_mode="overwrite", partition_by=["p"])
    table.optimize()
    table.checkpoint()
    store.delete([commit_key(version) for version in range(3)])
    assert [(domain.domain, domain.configuration) for domain in DeltaTable.open(store).snapshot.domains] == [
        ("their.domain", '{"a": 1}')
    ]


@pytest.mark.parametrize("name", ["derived-feature-unknown-writer"])
def test_tables_of_others_with_unknown_features_are_left_as_they_are(cases: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(cases / "delta" / name, tmp_path / "t")
    table = DeltaTable.open(tmp_path / "t")
    before = sorted(str(path) for path in (tmp_path / "t").rglob("*"))
    with pytest.raises(UnsupportedWriterFeature):
        table.delete()
    with pytest.raises(UnsupportedWriterFeature):
        table.append(table.schema.empty_table())
    assert sorted(str(path) for path in (tmp_path / "t").rglob("*")) == before


@pytest.mark.parametrize("feature", ["variantType", "variantType-preview", "variantShredding-preview"])
@pytest.mark.parametrize(
    "kind",
    [
        "variant",
        {"type": "array", "elementType": "variant", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "variant", "valueContainsNull": True},
        {"type": "struct", "fields": [{"name": "x", "type": "variant", "nullable": True, "metadata": {}}]},
    ],
)
def test_a_column_of_variants_at_any_depth_comes_to_a_table_that_lists_them(
    store: MemoryStore, feature: str, kind: Any
) -> None:
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 2))
    features = {"readerFeatures": [feature], "writerFeatures": [feature, "appendOnly", "invariants"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    store.put(commit_key(2), json.dumps(protocol).encode())
    table.refresh().append(rows(2, 3))
    assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2]
    body = table.metadata.to_json()
    schema = json.loads(body["schemaString"])
    schema["fields"].append({"name": "any kind", "type": kind, "nullable": True, "metadata": {}})
    body["schemaString"] = json.dumps(schema)
    store.put(commit_key(4), json.dumps({"metaData": body}).encode())
    table = DeltaTable.open(store)
    assert table.to_arrow()["any kind"].null_count == 3
    table.append(rows(3, 4))
    assert ids(DeltaTable.open(store).to_arrow(where="`any kind` IS NULL")) == [0, 1, 2, 3]
