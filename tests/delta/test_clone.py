"""Clones: tables of the files of another one at a version, or of copies of them."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing, FolderNotEmpty, PathOutsideTable, TableAlreadyExists
from lake_core.lake import Lake
from lake_core.store import FolderStore, MemoryStore
from tests.delta.tables import SCHEMA, held, ids, rows

EVERYTHING = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.columnMapping.mode": "name",
}
ROW_IDS = ["id", "_metadata.row_id"]


@pytest.fixture
def source(tmp_path: Path) -> DeltaTable:
    """A table with everything that names files or rows; a partition's folder needs to be encoded."""
    table = DeltaTable.create(str(tmp_path / "so urce"), SCHEMA, partition_by=["p"], properties=EVERYTHING)
    table.append(pa.table({"id": [1, 2, 3], "p": ["ü %", "b", "b"], "v": [1.0, 2.0, 3.0]}), txn=("app", 5))
    table.delete("id = 2")
    table.append(rows(4, 4000), txn=("app", 6))
    table.delete("id % 7 = 3")
    return table


def _row_ids(table: DeltaTable) -> Counter[str]:
    return Counter(map(str, table.to_arrow(columns=ROW_IDS).to_pylist()))


@pytest.mark.parametrize("shallow", [True, False])
def test_a_clone_has_the_rows_their_ids_and_the_definition(source: DeltaTable, tmp_path: Path, shallow: bool) -> None:
    clone = source.clone(str(tmp_path / "clone"), shallow=shallow)
    assert held(clone) == held(source)
    assert _row_ids(clone) == _row_ids(source)
    assert clone.metadata.schema == source.metadata.schema
    assert clone.metadata.id != source.metadata.id
    assert clone.version == 0
    assert (clone.txn_version("app") == 6) is not shallow
    versions = clone.to_arrow(columns=["_metadata.row_commit_version"])["_metadata.row_commit_version"]
    assert set(versions.to_pylist()) == {0}


@pytest.mark.parametrize("shallow", [True, False])
def test_a_clone_lives_on_its_own(source: DeltaTable, tmp_path: Path, shallow: bool) -> None:
    before = held(source)
    clone = source.clone(str(tmp_path / "clone"), shallow=shallow)
    clone.delete("id < 100")
    clone.append(rows(5000, 5003))
    clone.optimize(purge=True)
    assert held(source) == before
    assert ids(clone.to_arrow()) == [n for n in ids(source.to_arrow()) if n >= 100] + [5000, 5001, 5002]
    root = str(tmp_path / "so urce")
    again = DeltaTable.open(str(tmp_path / "clone"), allowed_roots=[root] if shallow else [])
    assert held(again) == held(clone)
    new = set(_row_ids(again)) - set(_row_ids(source))
    assert len(new) == 3


def test_a_shallow_clone_copies_no_file_and_names_its_source_alone(source: DeltaTable, tmp_path: Path) -> None:
    source.clone(str(tmp_path / "clone"))
    names = {path.suffix for path in (tmp_path / "clone").rglob("*") if path.is_file()}
    assert names == {".json", ".crc"}
    with pytest.raises(PathOutsideTable, match="shallow clone"):
        DeltaTable.open(str(tmp_path / "clone")).to_arrow()


def test_a_clone_of_a_clone_names_the_files_of_the_first(source: DeltaTable, tmp_path: Path) -> None:
    first = source.clone(str(tmp_path / "first"))
    first.append(rows(9000, 9002))
    second = first.clone(str(tmp_path / "second"))
    assert held(second) == held(first)
    with pytest.raises(PathOutsideTable):
        first.clone(str(tmp_path / "third"), shallow=False)
    assert not DeltaTable.exists(str(tmp_path / "third"))


def test_an_old_version_is_cloned(source: DeltaTable, tmp_path: Path) -> None:
    old = DeltaTable.open(source.store, version=1)
    assert ids(old.clone(str(tmp_path / "clone")).to_arrow()) == [1, 2, 3]


@pytest.mark.parametrize("deletes", ["id % 7 = 4", "id > 0"])
def test_a_shallow_clone_is_restored(source: DeltaTable, tmp_path: Path, deletes: str) -> None:
    clone = source.clone(str(tmp_path / "clone"))
    before = held(clone)
    clone.delete(deletes)
    clone.append(rows(5000, 5003))
    clone.restore(0)
    assert held(clone) == before
    assert _row_ids(clone) == _row_ids(source)


def test_a_shallow_clone_is_not_restored_without_the_files_of_its_source(source: DeltaTable, tmp_path: Path) -> None:
    clone = source.clone(str(tmp_path / "clone"))
    clone.delete("id > 0")
    source.store.delete(source.files(["path"])["path"].to_pylist())
    with pytest.raises(DataFileMissing):
        clone.restore(0)
    assert clone.version == 1


@pytest.mark.parametrize("shallow", [True, False])
def test_a_clone_protects_no_version_of_its_source(source: DeltaTable, tmp_path: Path, shallow: bool) -> None:
    source.drop_feature("deletionVectors")
    assert "checkpointProtection" in source.detail().table_features
    clone = source.clone(str(tmp_path / "clone"), shallow=shallow)
    assert "checkpointProtection" not in clone.detail().table_features
    assert "delta.requireCheckpointProtectionBeforeVersion" not in clone.properties
    assert held(clone) == held(source)


def test_a_deep_clone_of_vectors_that_are_named_by_their_locations_lives_on_its_own(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "own", SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    table.append(rows(0, 40_000))
    table.delete("id % 3 = 1 OR id % 7 = 2")  # too many for a vector in the log
    table.clone(tmp_path / "shallow")
    # Its first commit names files and vectors by their locations, which are in the folder of the table itself.
    shutil.rmtree(tmp_path / "own" / "_delta_log")
    shutil.copytree(tmp_path / "shallow" / "_delta_log", tmp_path / "own" / "_delta_log")
    before = held(DeltaTable.open(tmp_path / "own"))
    DeltaTable.open(tmp_path / "own").clone(tmp_path / "deep", shallow=False)
    shutil.rmtree(tmp_path / "own")
    assert held(DeltaTable.open(tmp_path / "deep")) == before


def test_nothing_is_overwritten(source: DeltaTable, tmp_path: Path) -> None:
    with pytest.raises(TableAlreadyExists):
        source.clone(str(tmp_path / "so urce"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("a")
    with pytest.raises(FolderNotEmpty):
        source.clone(str(tmp_path / "folder"))


@pytest.mark.parametrize("shallow", [True, False])
def test_a_commit_of_a_lake_is_cloned_to_a_table_that_belongs_to_none(tmp_path: Path, shallow: bool) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session("main") as session:
        session.create_delta("t", SCHEMA).append(rows(0, 5))
    commit = lake.log()[0].id
    with lake.session("main") as session:
        session.delta("t").overwrite(rows(7, 9))
    clone = lake.delta("t", ref=commit).clone(str(tmp_path / "clone"), shallow=shallow)
    assert ids(clone.to_arrow()) == [0, 1, 2, 3, 4]
    clone.append(rows(10, 11))
    assert ids(clone.to_arrow()) == [0, 1, 2, 3, 4, 10]
    assert ids(lake.delta("t").to_arrow()) == [7, 8]


def test_tables_in_one_store_are_cloned() -> None:
    store = MemoryStore()
    table = DeltaTable.create(FolderStore(store, "a"), SCHEMA)
    table.append(rows(0, 3))
    assert ids(table.clone(FolderStore(store, "b")).to_arrow()) == [0, 1, 2]
