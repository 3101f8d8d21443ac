"""Tables with what newer writers enable: read as their writer meant, and written on."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable, variant
from lake_core.delta.errors import (
    InvalidProperty,
    SchemaMismatch,
    UnsupportedExpression,
    UnsupportedWriterFeature,
)
from lake_core.delta.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from lake_core.store import MemoryStore
from tests.skip_rule import CASES

ROOT = CASES / "delta-wild"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in ROOT.glob("*.expected.json"))
IDENTITY = "identity-two-kinds"
"""Its rows cannot be appended again with the numbers that they have."""
WRITTEN = [name for name in NAMES if name != IDENTITY]


def expected_of(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((ROOT / f"{name}.expected.json").read_text())
    return expected


def own(name: str, folder: Path) -> DeltaTable:
    """Open a copy of a table. What it names by absolute paths is copied with it."""
    shutil.copytree(ROOT / name, folder / name)
    roots = []
    if expected_of(name).get("relocate"):
        shutil.copytree(ROOT / f"{name}.source", folder / f"{name}.source")
        for path in (folder / name / "_delta_log").glob("*.json"):
            path.write_text(path.read_text().replace("file:///DELTA-WILD", folder.as_uri()))
        for path in (folder / name / "_delta_log").glob("*.checkpoint*"):
            path.unlink()  # it has the paths as well
        (folder / name / "_delta_log" / "_last_checkpoint").unlink(missing_ok=True)
        roots.append((folder / f"{name}.source").as_uri())
    return DeltaTable.open(folder / name, allowed_roots=roots)


def canonical(rows: pa.Table) -> Any:
    sys.path.insert(0, str(CASES / "delta"))
    try:
        import rowhash
    finally:
        sys.path.remove(str(CASES / "delta"))
    return rowhash


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(canonical(rows).rows(rows))


def with_json(kind: DataType, value: Any) -> Any:
    """A value with variants as what Spark's JSON says of them, without fields that are null."""
    if value is None:
        return None
    match kind:
        case PrimitiveType("variant"):
            (text,) = variant.to_json(pa.array([value], variant.VARIANT)).to_pylist()
            return json.loads(text)
        case StructType(fields):
            parts = ((field.name, with_json(field.type, value[field.name])) for field in fields)
            return {name: part for name, part in parts if part is not None}
        case ArrayType(element):
            return [with_json(element, each) for each in value]
        case MapType(_, item):
            return {key: with_json(item, each) for key, each in value}
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_read_as_its_writer_meant(cases: Path, name: str, tmp_path: Path) -> None:
    expected, table = expected_of(name), own(name, tmp_path)
    rows = table.to_arrow()
    assert (table.version, table.files(["path"]).num_rows) == (expected["version"], expected["num_files"])
    assert rows.num_rows == expected["num_rows"]
    names = expected["json_columns"]
    if names:
        schema = table.snapshot.metadata.schema
        key = next(name for name in rows.column_names if name not in names)
        meant = {row[key]: row for row in map(dict, expected["rows"])}
        for row in rows.to_pylist():
            for name in names:
                text = meant[row[key]][name]
                found = with_json(schema.field(name).type, row[name])
                assert found == (None if text is None else json.loads(text["json"])), (name, row[key])
    elif not expected.get("char_columns"):  # which Spark pads
        assert canonical(rows).row_hash(rows) == expected["sha256_sorted_rows"]


@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if "row_tracking" in expected_of(name) and not expected_of(name)["json_columns"]],
)
def test_the_ids_of_rows_are_those_that_its_writer_gave(cases: Path, name: str, tmp_path: Path) -> None:
    table = own(name, tmp_path)
    rows = table.to_arrow(columns=[*table.schema.names, "_metadata.row_id", "_metadata.row_commit_version"])
    assert canonical(rows).row_hash(rows) == expected_of(name)["row_tracking"]["sha256_sorted_rows"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_table_is_written_on(cases: Path, name: str, tmp_path: Path) -> None:
    table = own(name, tmp_path)
    before = table.to_arrow()
    table.append(before.slice(0, 1))
    rows = pa.concat_tables([before, before.slice(0, 1)])
    meant = counted(rows)
    assert counted(table.to_arrow()) == meant
    if table.snapshot.metadata.configuration.get("delta.appendOnly") != "true":
        column, gone = next(
            (name, value)
            for name in before.column_names
            for value in before[name].to_pylist()
            if isinstance(value, (int, str))
        )
        table.delete(f"`{column}` = {gone!r}")
        meant = counted(rows.filter(pc.fill_null(pc.not_equal(rows[column], gone), True)))
        assert counted(table.to_arrow()) == meant
    table.optimize()
    table.checkpoint()
    again = DeltaTable.open(tmp_path / name, allowed_roots=[(tmp_path / f"{name}.source").as_uri()])
    assert counted(again.to_arrow()) == meant
    assert again.snapshot.domains == table.snapshot.domains


@pytest.mark.parametrize("change", ["append", "update", "optimize"])
def test_columns_without_a_type_are_in_no_file_and_no_statistics(cases: Path, change: str, tmp_path: Path) -> None:
    table = own("void-columns", tmp_path)
    match change:
        case "append":
            table.append(table.to_arrow())
        case "update":
            table.update({"id": "id + 10"})
        case "optimize":
            table.optimize()
    added = [row for row in table.files(["path", "stats"]).to_pylist() if "-c000.zstd" in row["path"]]
    assert added
    for row in added:
        kept = pq.read_schema(tmp_path / "void-columns" / row["path"])
        assert (kept.names, [field.name for field in kept.field("s").type]) == (["id", "s", "n"], ["a"])
        assert json.loads(row["stats"])["nullCount"].keys() == {"id", "s", "n"}
    assert table.to_arrow().schema == table.schema


def test_a_table_goes_on_giving_numbers(cases: Path, tmp_path: Path) -> None:
    table = own(IDENTITY, tmp_path)
    table.append(pa.table({"s": ["new"]}))
    table.append(pa.table({"d": [70], "s": ["given"]}))
    table.delete("s = 'a'")
    table.optimize()
    found = {row["s"]: (row["k"], row["d"]) for row in DeltaTable.open(tmp_path / IDENTITY).to_arrow().to_pylist()}
    assert found == {"b": (110, 2), "c": (120, 3), "x": (130, 50), "d": (140, 51), "new": (150, 52), "given": (160, 70)}


# Defaults


def with_defaults(store: MemoryStore, **defaults: str) -> DeltaTable:
    """Create a table whose columns have defaults, as Spark writes them."""
    kinds = {"id": "long", "a": "integer", "s": "string", "d": "date"}
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": name != "s",
            "metadata": {"CURRENT_DEFAULT": defaults[name]} if name in defaults else {},
        }
        for name, kind in kinds.items()
    ]
    return with_log(store, fields, {}, ["allowColumnDefaults", "appendOnly", "invariants"])


def with_log(
    store: MemoryStore,
    fields: list[dict[str, Any]],
    configuration: dict[str, str],
    features: list[str],
    *domains: dict[str, Any],
    partitions: tuple[str, ...] = (),
) -> DeltaTable:
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": "a",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": list(partitions),
                "configuration": configuration,
            }
        },
        *({"domainMetadata": domain} for domain in domains),
    ]
    store.put("_delta_log/00000000000000000000.json", "\n".join(map(json.dumps, actions)).encode())
    return DeltaTable.open(store)


WRITES: dict[str, Callable[[DeltaTable, pa.Table], object]] = {
    "append": lambda table, rows: table.append(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "merge": lambda table, rows: (
        table.merge(rows, "t.id = s.id")
        .when_not_matched_insert({name: f"s.{name}" for name in rows.column_names})
        .execute()
    ),
}


@pytest.mark.parametrize("write", sorted(WRITES))
def test_a_column_that_rows_lack_gets_its_default(write: str) -> None:
    table = with_defaults(MemoryStore(), a="42", s="'x''y'", d="DATE'2020-02-29'")
    WRITES[write](table, pa.table({"id": [1]}))
    (row,) = table.to_arrow().to_pylist()
    assert (row["a"], row["s"], str(row["d"])) == (42, "x'y", "2020-02-29")


def test_a_null_that_rows_have_stays() -> None:
    table = with_defaults(MemoryStore(), a="42", s="'x'")
    table.append(pa.table({"id": [1], "a": pa.array([None], pa.int32())}))
    assert table.to_arrow()["a"].to_pylist() == [None]


def test_an_update_keeps_the_columns_that_have_defaults() -> None:
    table = with_defaults(MemoryStore(), a="42", s="'x'")
    table.append(pa.table({"id": [1], "a": pa.array([7], pa.int32()), "s": ["y"]}))
    table.update({"id": "2"})
    assert table.to_arrow().select(["id", "a", "s"]).to_pylist() == [{"id": 2, "a": 7, "s": "y"}]


def test_a_default_that_cannot_be_evaluated_is_refused_where_it_is_needed() -> None:
    table = with_defaults(MemoryStore(), a="their_function(1)", s="'x'")
    with pytest.raises(UnsupportedExpression, match=r"their_function\(1\)"):
        table.append(pa.table({"id": [1]}))
    table.append(pa.table({"id": [1], "a": pa.array([7], pa.int32())}))
    assert table.to_arrow()["a"].to_pylist() == [7]


# Partition columns in the files


@pytest.mark.parametrize("optimized", [False, True])
def test_files_hold_the_partition_columns_where_the_table_asks_for_them(tmp_path: Path, optimized: bool) -> None:
    properties = {"delta.enableMaterializePartitionColumnsFeature": "true"}
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    table = DeltaTable.create(tmp_path, schema, partition_by=["p"], properties=properties)
    for number in range(2):
        table.append(pa.table({"p": ["a", None], "id": [number, number + 10]}, schema=schema))
    if optimized:
        table.optimize()
    rows = []
    for path in table.files(["path"])["path"].to_pylist():
        rows += pq.ParquetFile(tmp_path / path).read().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"p": p, "id": n} for p, n in (("a", 0), ("a", 1), (None, 10), (None, 11))
    ]
    assert table.to_arrow().sort_by("id").to_pylist() == sorted(rows, key=lambda row: row["id"])


# Clustering

DOMAIN = {"domain": "delta.clustering", "removed": False, "configuration": json.dumps({"clusteringColumns": [["b"]]})}


def clustered(properties: dict[str, str] | None = None) -> DeltaTable:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "abc"]
    features = ["appendOnly", "clustering", "domainMetadata", "invariants"]
    return with_log(MemoryStore(), fields, properties or {}, features, DOMAIN)


def test_a_column_that_clusters_keeps_its_statistics() -> None:
    table = clustered()
    with pytest.raises(InvalidProperty, match="clustered by column 'b'"):
        table.set_properties({"delta.dataSkippingStatsColumns": "a,c"})
    table.set_properties({"delta.dataSkippingStatsColumns": "b"})
    table.append(pa.table({"a": [1], "b": [2], "c": [3]}))
    (stats,) = table.files(["stats"])["stats"].to_pylist()
    assert json.loads(stats)["minValues"] == {"b": 2}


def test_a_column_that_clusters_is_not_dropped() -> None:
    table = clustered()
    table.set_properties({"delta.columnMapping.mode": "name"})
    with pytest.raises((InvalidProperty, SchemaMismatch), match="clustered by column 'b'"):
        table.drop_columns(["b"])


# Versions whose features were dropped, and writers to come


def test_the_log_before_a_dropped_feature_goes_at_once_or_not_at_all(cases: Path, tmp_path: Path) -> None:
    table = own("dropped-vectors-protected", tmp_path)
    log = tmp_path / "dropped-vectors-protected" / "_delta_log"
    assert (log / f"{0:020}.json").exists()
    # All versions are long past the retention, and the newest checkpoint before the cutoff is of version 8 or later.
    protected = int(table.snapshot.metadata.configuration["delta.requireCheckpointProtectionBeforeVersion"])
    table.set_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.checkpoint()
    kept = sorted(int(path.name[:20]) for path in log.glob("*.json") if path.name[:20].isdecimal())
    assert kept[0] == 0 or kept[0] >= protected


def test_a_table_of_a_later_writer_is_read_and_not_written() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    later = {"minReaderVersion": 1, "minWriterVersion": 8}
    store.put("_delta_log/00000000000000000002.json", json.dumps({"protocol": later}).encode())
    table = DeltaTable.open(store)
    assert table.to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(UnsupportedWriterFeature, match="writerVersion=8"):
        table.append(pa.table({"id": [2]}))
