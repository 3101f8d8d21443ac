"""DROP FEATURE: what is left of a feature goes first, and what older versions need is protected."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConcurrentModification, FeatureInUse
from lake_core.delta.features import supported_features
from lake_core.delta.log_segment import commit_key, list_log
from lake_core.delta.result import OperationResult
from lake_core.lake import Lake
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, ids, oracle, rows

VECTORS = {"delta.enableDeletionVectors": "true"}


class Time:
    def __init__(self) -> None:
        self.now = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now


def features(table: DeltaTable) -> frozenset[str]:
    return supported_features(table.protocol)


def vectors(table: DeltaTable) -> int:
    column = table.snapshot.files(["deletionVector"])["deletionVector"]
    return int(pc.count(column).as_py())


def test_restored_files_bring_the_feature_back_that_they_need(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=VECTORS)
    table.append(rows(0, 10))
    table.delete("id < 3")
    table.unset_properties(list(VECTORS))
    before, old = held(table), table.version
    table.drop_feature("deletionVectors")
    table.restore(old)
    assert vectors(table) == 1
    assert "deletionVectors" in (table.protocol.reader_features or ())
    assert held(table) == before


def test_a_column_that_must_have_a_value_uses_invariants() -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("p", pa.string(), nullable=False)])
    table = DeltaTable.create(MemoryStore(), schema, properties=VECTORS)
    with pytest.raises(FeatureInUse, match="'invariants'"):
        table.drop_feature("invariants")


def test_a_column_that_must_have_a_value_brings_invariants_back() -> None:
    table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64())]), properties=VECTORS)
    table.drop_feature("invariants")
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table.overwrite(pa.table({"id": [1]}, schema=strict), schema_mode="overwrite")
    assert "invariants" in features(table)


def test_vectors_go_and_the_history_stays_readable(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=VECTORS)
    table.append(rows(0, 2000))
    table.delete("id % 3 = 0")
    before, old = held(table), table.version
    table.drop_feature("deletionVectors")
    assert features(table) == {"appendOnly", "invariants", "checkpointProtection"}
    assert table.protocol.min_reader_version == 1
    assert "delta.enableDeletionVectors" not in table.properties
    assert table.properties["delta.requireCheckpointProtectionBeforeVersion"] == str(table.version)
    assert vectors(table) == 0
    assert held(table) == before == oracle(tmp_path)
    assert held(DeltaTable.open(str(tmp_path), version=old)) == before
    assert list_log(table.store).checkpoints[-1].version == table.version
    table.delete("id = 1")
    assert vectors(table) == 0


def test_the_files_of_old_vectors_are_kept_for_those_who_vacuum_without_knowing_them(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=VECTORS)
    table.append(rows(0, 5000))
    table.delete("id % 2 = 0")
    vector_files = {path.name for path in tmp_path.glob("*.bin")}
    table.drop_feature("deletionVectors")
    actions = [json.loads(line) for line in table.store.get(commit_key(table.version)).splitlines()]
    removed = [action["remove"] for action in actions if "remove" in action]
    assert {remove["path"] for remove in removed} == vector_files
    assert all(remove.keys() == {"path", "deletionTimestamp", "dataChange"} for remove in removed)
    deltalake.DeltaTable(str(tmp_path)).vacuum(retention_hours=168, dry_run=False)
    assert len(held(DeltaTable.open(str(tmp_path), version=2))) == 2500


def test_the_protection_is_dropped_once_older_versions_are_gone() -> None:
    time = Time()
    store = MemoryStore(clock=time)
    table = DeltaTable.create(store, SCHEMA, properties=VECTORS, clock=time)
    table.append(rows(0, 5))
    table.delete("id = 3")
    table.drop_feature("deletionVectors")
    with pytest.raises(FeatureInUse, match="clean the log"):
        table.drop_feature("checkpointProtection")
    time.now += dt.timedelta(days=40)
    table.append(rows(5, 6))
    assert table.clean_log()
    table.drop_feature("checkpointProtection")
    assert features(table) == {"appendOnly", "invariants"}
    assert "delta.requireCheckpointProtectionBeforeVersion" not in table.properties
    assert ids(DeltaTable.open(store).to_arrow()) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("v2Checkpoint", {"delta.checkpointPolicy": "v2"}),
        ("inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"}),
        ("rowTracking", {"delta.enableRowTracking": "true"}),
        ("changeDataFeed", {"delta.enableChangeDataFeed": "true"}),
        ("vacuumProtocolCheck", {"delta.feature.vacuumProtocolCheck": "supported"}),
        ("appendOnly", {"delta.appendOnly": "true"}),
        ("icebergCompatV2", {"delta.enableIcebergCompatV2": "true"}),
    ],
)
def test_features_go_with_their_properties(store: MemoryStore, feature: str, properties: dict[str, str]) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=properties)
    table.append(rows(0, 5))
    table.append(rows(5, 9))
    table.checkpoint()
    before = held(table)
    table.drop_feature(feature)
    assert feature not in features(table)
    assert not set(properties) & set(table.properties)
    assert ("checkpointProtection" in features(table)) == (feature == "v2Checkpoint")
    table.delete("id = 3")
    table.optimize()
    again = DeltaTable.open(store)
    assert ids(again.to_arrow()) == [0, 1, 2, 4, 5, 6, 7, 8]
    assert len(before) == 9
    with pytest.raises(FeatureInUse, match="does not have"):
        again.drop_feature(feature)


def test_a_feature_can_be_had_again(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=VECTORS | {"delta.enableRowTracking": "true"})
    table.append(rows(0, 5))
    for feature, name in (
        ("deletionVectors", "delta.enableDeletionVectors"),
        ("rowTracking", "delta.enableRowTracking"),
    ):
        table.drop_feature(feature)
        table.set_properties({name: "true"})
        assert feature in features(table)
    table.delete("id = 2")
    row_ids = table.to_arrow(columns=["id", "_metadata.row_id"]).to_pydict()
    assert row_ids["id"] == [0, 1, 3, 4]
    assert len(set(row_ids["_metadata.row_id"])) == 4


MAPPED = pa.schema(
    [
        pa.field("p", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("s", pa.struct([("a", pa.int32()), ("gone", pa.int32())])),
        pa.field("gone", pa.string()),
        pa.field("l", pa.list_(pa.struct([("x", pa.string())]))),
    ]
)


def mapped_rows(first: int, stop: int) -> pa.Table:
    values = [
        {"p": f"p={n % 2}", "id": n, "s": {"a": n, "gone": 0}, "gone": "x", "l": [{"x": str(n)}]}
        for n in range(first, stop)
    ]
    return pa.Table.from_pylist(values, schema=MAPPED)


def mapped(
    folder: Path, mode: str, more: dict[str, str], partition_by: Sequence[str] = (), cluster_by: Sequence[str] = ()
) -> DeltaTable:
    """Return a table with renamed and dropped columns, whose physical names are others' names."""
    properties = {"delta.columnMapping.mode": mode, **more}
    table = DeltaTable.create(
        str(folder), MAPPED, properties=properties, partition_by=partition_by, cluster_by=cluster_by
    )
    table.append(mapped_rows(0, 50))
    table.drop_columns(["gone", "s.gone"])
    for old, new in (("id", "key"), ("p", "part"), ("s.a", "b"), ("l", "gone")):
        table.rename_column(old, new)
    table.append(table.to_arrow().slice(0, 10))
    table.delete("key = 3")
    return table


def of(table: DeltaTable, *more: str) -> list[dict[str, object]]:
    names = [*table.schema.names, *more]
    return sorted(
        table.to_arrow(columns=names).to_pylist(), key=lambda row: (row["key"], *(row[name] for name in more))
    )


LAYOUTS = {"partitions": {"partition_by": ["p"]}, "clusters": {"cluster_by": ["id", "s.a"]}, "neither": {}}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("more", [{}, VECTORS, {"delta.enableChangeDataFeed": "true"}])
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.sampled(5)
def test_column_mapping_goes_with_all_names_of_files(
    mode: str, more: dict[str, str], layout: str, tmp_path: Path
) -> None:
    table = mapped(tmp_path, mode, more, **LAYOUTS[layout])
    before, old, clustered = of(table), table.version, table.detail().clustering_columns
    table.drop_feature("columnMapping")
    assert "columnMapping" not in features(table)
    assert "delta.columnMapping.mode" not in table.properties
    assert "columnMapping" not in table.snapshot.metadata.schema_string
    assert of(table) == before
    assert of(DeltaTable.open(str(tmp_path), version=old)) == before
    assert table.detail().clustering_columns == clustered
    if not more:  # which the other reader does not know
        plain = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist() if layout != "clusters" else before
        assert sorted(plain, key=lambda row: row["key"]) == before
    table.append(table.to_arrow().slice(0, 1))
    table.update({"key": "key + 1000"}, "key = 7")
    table.optimize()
    assert len(of(table)) == len(before) + 1


def test_rows_keep_their_ids_when_column_mapping_goes(tmp_path: Path) -> None:
    table = mapped(tmp_path, "name", {"delta.enableRowTracking": "true"})
    before = of(table, "_metadata.row_id", "_metadata.row_commit_version")
    table.drop_feature("columnMapping")
    assert of(table, "_metadata.row_id", "_metadata.row_commit_version") == before


def test_a_name_that_needs_column_mapping_is_told(store: MemoryStore) -> None:
    schema = pa.schema([("a b", pa.int64())])
    table = DeltaTable.create(store, schema, properties={"delta.columnMapping.mode": "name"})
    table.append(pa.table({"a b": [1]}))
    version = table.version
    with pytest.raises(FeatureInUse, match="'a b' needs column mapping"):
        table.drop_feature("columnMapping")
    assert table.version == version
    table.rename_column("a b", "a_b")
    table.drop_feature("columnMapping")
    assert table.to_arrow().to_pydict() == {"a_b": [1]}


def test_column_mapping_can_be_had_again(tmp_path: Path) -> None:
    table = mapped(tmp_path, "name", {})
    old = table.version
    table.drop_feature("columnMapping")
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.rename_column("gone", "list")
    assert table.to_arrow()["list"].to_pylist()[0] == [{"x": "0"}]
    table.restore(old)
    assert of(table) == of(DeltaTable.open(str(tmp_path), version=old))


WIDENED = {"n": (pa.int8(), pa.int64()), "f": (pa.float32(), pa.float64()), "d": (pa.date32(), pa.timestamp("us"))}


def test_widened_columns_are_written_with_their_types(tmp_path: Path) -> None:
    schema = pa.schema([(name, old) for name, (old, _) in WIDENED.items()])
    properties = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
    table = DeltaTable.create(str(tmp_path), schema, properties=properties)
    table.append(pa.table({"n": [1], "f": [0.5], "d": [dt.date(2024, 1, 1)]}, schema=schema))
    for name, (_, new) in WIDENED.items():
        table.widen_column(name, new)
    table.append(pa.table({"n": [2**40], "f": [0.1], "d": [dt.datetime(2024, 1, 1, 5)]}, schema=table.schema))
    before, old = table.to_arrow().to_pylist(), table.version
    table.drop_feature("typeWidening")
    assert "typeWidening" not in features(table)
    assert "typeChanges" not in str(table.snapshot.metadata.schema)
    again = DeltaTable.open(str(tmp_path))
    assert sorted(again.to_arrow().to_pylist(), key=lambda row: row["n"]) == before
    assert (
        sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist(), key=lambda row: row["n"]) == before
    )
    assert DeltaTable.open(str(tmp_path), version=old).to_arrow().to_pylist() == before
    with pytest.raises(FeatureInUse, match="does not have"):
        table.drop_feature("typeWidening")


def test_another_writer_between_the_steps_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mapped(tmp_path, "name", {})
    other = DeltaTable.open(str(tmp_path))
    real = DeltaTable.operate

    def operate(self: DeltaTable, plan: Any, txn: None) -> OperationResult:
        result = real(self, plan, txn)
        monkeypatch.setattr(DeltaTable, "operate", real)
        other.refresh().append(other.to_arrow().slice(0, 1))
        other.set_properties({"delta.columnMapping.mode": "name"})
        return result

    monkeypatch.setattr(DeltaTable, "operate", operate)
    with pytest.raises((FeatureInUse, ConcurrentModification)):
        table.drop_feature("columnMapping")
    again = DeltaTable.open(str(tmp_path))
    again.drop_feature("columnMapping")
    assert "columnMapping" not in features(again)
    assert len(of(again)) == len(of(table)) + 1


def test_what_is_in_use_is_not_dropped(store: MemoryStore) -> None:
    schema = pa.schema([*SCHEMA, pa.field("t", pa.timestamp("us"))])
    properties = {"delta.feature.timestampNtz": "supported", "delta.columnMapping.mode": "name"}
    table = DeltaTable.create(store, schema, cluster_by=["id"], properties=properties)
    table.add_constraint("positive", "id >= 0")
    version = table.version
    for feature, message in (
        ("checkConstraints", "columns or constraints"),
        ("timestampNtz", "copy them"),
        ("identityColumns", "does not have"),
        ("domainMetadata", "clustering"),
        ("nothing", "does not have"),
    ):
        with pytest.raises(FeatureInUse, match=message):
            table.drop_feature(feature)
    assert table.version == version
    table.drop_constraint("positive")
    table.drop_feature("checkConstraints")
    table.drop_feature("clustering")
    table.drop_feature("domainMetadata")
    assert features(table) >= {"columnMapping", "timestampNtz"}
    assert table.detail().clustering_columns == ()


def test_a_lake_keeps_the_features_of_its_history(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session("main") as session:
        session.create_delta("t", SCHEMA, properties=VECTORS).append(rows(0, 5))
    with pytest.raises(FeatureInUse, match="release"), lake.session("main") as session:
        session.delta("t").drop_feature("deletionVectors")


def test_a_restore_keeps_the_protection(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=VECTORS)
    table.append(rows(0, 5))
    table.delete("id = 3")
    table.drop_feature("deletionVectors")
    protected = table.properties["delta.requireCheckpointProtectionBeforeVersion"]
    table.restore(1)
    assert table.properties["delta.requireCheckpointProtectionBeforeVersion"] == protected


def test_no_more_versions_are_protected_when_another_feature_is_dropped(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties={**VECTORS, "delta.enableChangeDataFeed": "true"})
    table.append(rows(0, 3))
    table.drop_feature("deletionVectors")
    protected = table.properties["delta.requireCheckpointProtectionBeforeVersion"]
    table.append(rows(3, 6))
    table.drop_feature("changeDataFeed")
    assert table.properties["delta.requireCheckpointProtectionBeforeVersion"] == protected
