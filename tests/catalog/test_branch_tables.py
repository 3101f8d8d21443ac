"""The logs of branches that engines read: what they show, after crashes, races and the end of a branch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core import Lake
from lake_core.catalog import branch_tables, sync_branch, sync_branches
from lake_core.catalog.branch_tables import BranchTables
from lake_core.catalog.errors import CatalogChanged, CatalogUnavailable
from lake_core.delta import DeltaTable
from lake_core.delta.errors import ManagedTable, PathOutsideTable
from lake_core.delta.snapshot import Snapshot
from lake_core.errors import LakeError
from lake_core.lake.errors import RefNotFound
from lake_core.store import FolderStore, MemoryStore
from lake_core.testing import FaultStore, ManualClock
from lake_core.testing.fault_store import StoreDied
from tests.catalog.memory_catalog import MemoryCatalog, ReplacingCatalog
from tests.examples import examples
from tests.store.s3.deltalake_options import deltalake_options

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
EVERYTHING = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.columnMapping.mode": "name",
}
PATH = "tables/orders"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake_core.runtime.sleep", lambda seconds: None)


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


def rows(*ids: int, day: str = "a b") -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids)}, SCHEMA)


def lake_at(place: Path | MemoryStore | str, **options: Any) -> Lake:
    """A lake with a table on main, and a branch that has written to it."""
    lake = Lake.create(place, **options)
    with lake.session() as s:
        s.create_delta(PATH, SCHEMA, partition_by=["day"], properties=EVERYTHING).append(rows(1, 2, 3))
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta(PATH).append(rows(4, 5, day="c"))
    return lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_at(tmp_path / "lake")


def change(lake: Lake, edit: Callable[[DeltaTable], object], branch: str = "dev") -> None:
    with lake.session(branch) as s:
        edit(s.delta(PATH))


def create(lake: Lake, schema: pa.Schema, **options: Any) -> None:
    with lake.session("dev") as s:
        s.create_delta(PATH, schema, **options)


def drop(lake: Lake) -> None:
    with lake.session("dev") as s:
        s.drop(PATH)


def location(catalog: MemoryCatalog, name: str = "orders", schema: str = "db_dev") -> str:
    found = catalog.schemas[schema][name].location
    assert found is not None
    return found


def held(table: pa.Table) -> list[str]:
    """The rows of a table, in any order."""
    return sorted(str(sorted(row.items())) for row in table.to_pylist())


def read(url: str, **options: Any) -> pa.Table:
    """What deltalake reads."""
    table = deltalake.DeltaTable(url, **options)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def clone(lake: Lake, branch: str = "dev", path: str = PATH) -> DeltaTable:
    """The table of a branch, as this package reads it."""
    root = lake.repository.root
    store = FolderStore(root, f"{BranchTables(lake.repository, branch, lake.url).folder}/{path}")
    return DeltaTable.open(store, allowed_roots=[FolderStore(root, path)])


def test_a_branch_is_read_by_its_schema_and_main_by_its_own(lake: Lake, catalog: MemoryCatalog) -> None:
    results = sync_branches(lake, catalog, "db")
    assert [(each.branch, each.schema, len(each.tables)) for each in results] == [
        ("main", "db", 1),
        ("dev", "db_dev", 1),
    ]
    assert read(location(catalog))["id"].to_pylist() in ([1, 2, 3, 4, 5], [4, 5, 1, 2, 3])
    assert sorted(read(location(catalog, schema="db"))["id"].to_pylist()) == [1, 2, 3]


EDITS: dict[str, Callable[[Lake], object]] = {
    "append": lambda lake: change(lake, lambda table: table.append(rows(6))),
    "delete rows of a file": lambda lake: change(lake, lambda table: table.delete("id = 2")),
    "delete rows of it again": lambda lake: (
        change(lake, lambda table: table.delete("id = 2")),
        sync_branches(lake, MemoryCatalog(), "db"),
        change(lake, lambda table: table.delete("id = 1")),
    ),
    "update": lambda lake: change(lake, lambda table: table.update({"day": "'x'"}, "id = 4")),
    "overwrite": lambda lake: change(lake, lambda table: table.overwrite(rows(9))),
    "optimize": lambda lake: (
        change(lake, lambda table: (table.append(rows(6)), table.delete("id = 2"))[0])
        or change(lake, lambda table: table.optimize(purge=True))
    ),
    "add a column": lambda lake: change(
        lake, lambda table: table.append(rows(7).append_column("price", pa.array([1.5])), schema_mode="merge")
    ),
    "rename a column": lambda lake: change(lake, lambda table: table.rename_column("id", "number")),
    "other partitions": lambda lake: change(
        lake, lambda table: table.overwrite(rows(9), schema_mode="overwrite", partition_by=["id"])
    ),
    "create again": lambda lake: (drop(lake), create(lake, pa.schema([("other", pa.string())]))),
    "create again with rows": lambda lake: (
        drop(lake),
        create(lake, SCHEMA, partition_by=["id"]),
        change(lake, lambda table: table.append(rows(10, 11))),
    ),
    "merge into main": lambda lake: lake.merge("dev", into="main"),
    "merge main": lambda lake: (
        change(lake, lambda table: table.append(rows(8)), "main"),
        lake.merge("main", into="dev"),
    ),
    "another branch of this name": lambda lake: (lake.delete_branch("dev"), lake.create_branch("dev")),
}


@pytest.mark.parametrize("name", EDITS)
def test_each_change_is_one_commit_after_which_readers_find_the_same(
    lake: Lake, catalog: MemoryCatalog, name: str
) -> None:
    sync_branches(lake, catalog, "db")
    EDITS[name](lake)
    before = clone(lake).version
    sync_branches(lake, catalog, "db")
    expected = lake.delta(PATH, ref="dev").to_arrow()
    assert held(read(location(catalog))) == held(expected)
    assert held(clone(lake).to_arrow()) == held(expected)
    assert clone(lake).version - before == (name != "merge into main")
    assert catalog.definitions["db_dev", "orders"].schema.names == expected.schema.names


def test_a_second_sync_writes_nothing(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    sync_branches(lake, catalog, "db")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    (_, synced) = sync_branches(lake, catalog, "db")
    assert (synced.tables, synced.unchanged) == ((), 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_dry_run_writes_nothing(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    before = list(tmp_path.rglob("*"))
    assert [len(each.tables) for each in sync_branches(lake, catalog, "db", dry_run=True)] == [1, 1]
    assert list(tmp_path.rglob("*")) == before
    assert catalog.schemas == {}


def test_rows_keep_their_ids(lake: Lake, catalog: MemoryCatalog) -> None:
    columns = ["id", "_metadata.row_id"]
    sync_branches(lake, catalog, "db")
    change(lake, lambda table: table.append(rows(6)))
    change(lake, lambda table: table.delete("id = 2"))
    sync_branches(lake, catalog, "db")
    expected = lake.delta(PATH, ref="dev").to_arrow(columns=columns)
    assert held(clone(lake).to_arrow(columns=columns)) == held(expected)


def test_rows_are_of_the_version_of_the_clone_that_brought_them(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    change(lake, lambda table: table.append(rows(6)))
    change(lake, lambda table: table.delete("id = 2"))
    sync_branches(lake, catalog, "db")
    found = clone(lake).to_arrow(columns=["id", "_metadata.row_commit_version"]).to_pylist()
    assert {row["id"]: row["_metadata.row_commit_version"] for row in found} == {1: 0, 3: 0, 4: 0, 5: 0, 6: 1}


def test_the_change_feed_has_what_a_sync_brought(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    change(lake, lambda table: table.append(rows(6)))
    change(lake, lambda table: table.delete("id = 2"))
    sync_branches(lake, catalog, "db")
    changes = clone(lake).changes(1).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"]) for row in changes) == [("delete", 2), ("insert", 6)]


def test_a_dropped_table_has_no_rows_any_more(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    url = location(catalog)
    drop(lake)
    (_, synced) = sync_branches(lake, catalog, "db")
    assert [(each.action, each.name) for each in synced.tables] == [("drop", "orders")]
    assert read(url).num_rows == 0


def test_nobody_else_writes_to_the_tables(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="lakeManaged"):
        deltalake.write_deltalake(location(catalog), rows(12), mode="append")
    with pytest.raises(ManagedTable):
        clone(lake).vacuum()


def test_what_another_program_commits_to_a_log_is_taken_out(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    removed = clone(lake).snapshot.files(["path"])["path"][0].as_py()
    commit = json.dumps({"remove": {"path": removed, "dataChange": True, "deletionTimestamp": 1}}).encode()
    clone(lake).store.put("_delta_log/00000000000000000001.json", commit, if_absent=True)
    assert read(location(catalog)).num_rows < 5
    sync_branches(lake, catalog, "db")
    assert sorted(read(location(catalog))["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_a_branch_in_a_bucket_is_read_by_its_urls(
    s3_url: str, s3_options: dict[str, object], catalog: MemoryCatalog
) -> None:
    lake = lake_at(s3_url, storage_options=s3_options)
    change(lake, lambda table: table.append(rows(*range(10, 5000))))
    change(lake, lambda table: table.delete("id % 7 = 3"))
    sync_branches(lake, catalog, "db")
    theirs = deltalake_options(s3_options)
    found = read(location(catalog), storage_options=theirs)
    assert held(found) == held(lake.delta(PATH, ref="dev").to_arrow())


def test_logs_get_checkpoints(lake: Lake, catalog: MemoryCatalog) -> None:
    for number in range(12):
        change(lake, lambda table, number=number: table.append(rows(20 + number)))  # type: ignore[misc]
        sync_branches(lake, catalog, "db")
    assert clone(lake).version == 11
    assert [meta.key for meta in clone(lake).store.list("_delta_log/") if "checkpoint" in meta.key]
    assert read(location(catalog)).num_rows == 17


def test_a_deleted_branch_leaves_no_table_and_no_log_and_all_data(
    lake: Lake, catalog: MemoryCatalog, tmp_path: Path
) -> None:
    sync_branches(lake, catalog, "db")
    data = set(tmp_path.rglob("*.parquet"))
    lake.delete_branch("dev")
    (_, synced) = sync_branches(lake, catalog, "db")
    assert (synced.branch, synced.commit, [each.action for each in synced.tables]) == ("dev", "", ["drop"])
    assert catalog.schemas["db_dev"] == {}
    assert list(lake.repository.root.list("_lake/branches/")) == []
    assert set(tmp_path.rglob("*.parquet")) == data
    assert len(sync_branches(lake, catalog, "db")) == 1


def test_the_logs_stay_until_each_schema_has_dropped_its_tables(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    sync_branch(lake, catalog, "other", branch="dev")
    lake.delete_branch("dev")
    sync_branches(lake, catalog, "db")
    assert read(location(catalog, schema="other")).num_rows == 5
    assert sync_branch(lake, catalog, "other", branch="dev").commit == ""
    assert list(lake.repository.root.list("_lake/branches/")) == []
    with pytest.raises(RefNotFound):
        sync_branch(lake, catalog, "other", branch="dev")


def test_files_of_others_in_the_folder_stay(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    key = f"{BranchTables(lake.repository, 'dev', lake.url).folder}/{PATH}/theirs.parquet"
    lake.repository.root.put(key, b"x")
    lake.delete_branch("dev")
    sync_branches(lake, catalog, "db")
    assert [meta.key for meta in lake.repository.root.list("_lake/branches/")] == [key]


def test_tables_of_others_in_the_schema_of_a_deleted_branch_stay(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    catalog.add_foreign("db_dev", "theirs")
    lake.delete_branch("dev")
    sync_branches(lake, catalog, "db")
    assert list(catalog.schemas["db_dev"]) == ["theirs"]


def test_branches_whose_names_differ_in_case_have_folders_of_their_own(lake: Lake) -> None:
    folders = {BranchTables(lake.repository, name, lake.url).folder.lower() for name in ("dev", "Dev", "DEV", "dev.A")}
    assert len(folders) == 4


def test_two_branches_of_one_schema_name_are_refused_by_name(lake: Lake, catalog: MemoryCatalog) -> None:
    lake.create_branch("Dev")
    results = {each.branch: each for each in sync_branches(lake, catalog, "db")}
    assert [each.reason for each in results["dev"].refused] == [
        "'orders' is registered from the branch 'Dev' of this lake: choose another name by --name "
        "'tables/orders=NAME', or another schema"
    ]


def test_a_branch_without_a_schema_name_is_refused_and_the_others_are_synced(lake: Lake) -> None:
    catalog = MemoryCatalog()
    catalog.longest_name = 8  # type: ignore[misc]
    lake.create_branch("longer-than-that")
    results = {each.branch: each for each in sync_branches(lake, catalog, "db")}
    assert [each.name for each in results["longer-than-that"].refused] == ["longer-than-that"]
    assert not results["dev"].refused


def test_the_location_is_that_of_the_files_too(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "spark", branch="dev", location="s3a://bucket/my lake/")
    sync_branch(lake, catalog, "db_dev", branch="dev")
    assert read(location(catalog)).num_rows == 5
    other = location(catalog, schema="spark")
    assert other.startswith("s3a://bucket/my lake/_lake/branches/dev/")
    folder = FolderStore(lake.repository.root, f"{other.removeprefix('s3a://bucket/my lake/')}")
    paths = DeltaTable.open(folder).snapshot.files(["path"])["path"].to_pylist()
    assert all(path.startswith("s3a://bucket/my%20lake/tables/orders/") for path in paths)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_local_files_are_named_as_duckdb_reads_them(
    lake: Lake, catalog: MemoryCatalog, tmp_path: Path, scheme: str
) -> None:
    """Data files by their paths, and files of deletion vectors by URLs."""
    change(lake, lambda table: table.append(rows(*range(10, 5000))))
    change(lake, lambda table: table.delete("id % 7 = 3"))
    sync_branch(lake, catalog, "db_dev", branch="dev", location=f"{scheme}{tmp_path}/lake")
    files = DeltaTable.open(location(catalog)).snapshot.files(["path", "deletionVector"]).to_pylist()
    assert all(file["path"].startswith(f"{tmp_path}/lake/tables/orders/") for file in files)
    vectors = [file["deletionVector"]["pathOrInlineDv"] for file in files if file["deletionVector"]]
    assert any(vector.startswith(f"file:{tmp_path}/lake/tables/orders/") for vector in vectors)
    assert held(read(location(catalog))) == held(lake.delta(PATH, ref="dev").to_arrow())


def test_a_lake_that_has_moved_is_shown_at_its_new_place(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    sync_branches(lake, catalog, "db")
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    moved = Lake.open(tmp_path / "moved")
    assert "pass --moved" in sync_branches(moved, catalog, "db")[1].refused[0].reason
    sync_branches(moved, catalog, "db", moved=True)
    assert read(location(catalog)).num_rows == 5


def test_a_lake_that_was_restored_goes_on_only_if_that_is_said(
    lake: Lake, catalog: MemoryCatalog, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "lake" / "_lake" / "refs", tmp_path / "saved")
    change(lake, lambda table: table.append(rows(6)))
    sync_branches(lake, catalog, "db")
    shutil.rmtree(tmp_path / "lake" / "_lake" / "refs")
    shutil.move(tmp_path / "saved", tmp_path / "lake" / "_lake" / "refs")
    restored = Lake.open(tmp_path / "lake")
    sync_branches(restored, catalog, "db")
    assert read(location(catalog)).num_rows == 6
    sync_branches(restored, catalog, "db", moved=True)
    assert read(location(catalog)).num_rows == 5


def test_a_table_that_cannot_be_cloned_is_refused_by_its_name(
    lake: Lake, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.session("dev") as s:
        s.create_delta("tables/items", SCHEMA)
    original = branch_tables.follow

    def follow(current: Snapshot | None, source: Snapshot, *rest: Any) -> Any:
        if source.store.url().endswith(PATH):
            raise PathOutsideTable("the log names a data file elsewhere")
        return original(current, source, *rest)

    monkeypatch.setattr(branch_tables, "follow", follow)
    synced = sync_branch(lake, catalog, "db_dev", branch="dev")
    assert [(each.name, each.reason) for each in synced.refused] == [
        (PATH, f"{PATH} cannot be shown: the log names a data file elsewhere")
    ]
    assert (list(catalog.schemas["db_dev"]), synced.unchanged) == (["items"], 0)


def test_another_branch_of_the_same_name_and_version_is_registered_anew(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    lake.delete_branch("dev")
    lake.create_branch("dev")
    change(lake, lambda table: table.append(rows(7).append_column("price", pa.array([1.5])), schema_mode="merge"))
    (_, synced) = sync_branches(lake, catalog, "db")
    assert [(each.action, each.changed) for each in synced.tables] == [("update", ("schema",))]


def test_logs_of_a_branch_that_is_there_are_not_removed(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branches(lake, catalog, "db")
    BranchTables(lake.repository, "dev", lake.url).leave("memory", "db_dev")
    assert read(location(catalog)).num_rows == 5


def test_a_sync_follows_a_branch_that_moves_though_no_table_of_the_catalog_changes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = ReplacingCatalog()
    sync_branches(lake, catalog, "db")
    change(lake, lambda table: table.append(rows(6)))
    moves, publish = iter([True]), BranchTables.publish

    def overtaken(tables: BranchTables, *args: Any, **options: Any) -> bool:
        wrote = publish(tables, *args, **options)
        if next(moves, False):
            change(lake, lambda table: table.append(rows(7)))
        return wrote

    monkeypatch.setattr(BranchTables, "publish", overtaken)
    sync_branches(lake, catalog, "db")
    assert read(location(catalog)).num_rows == 7


def test_domains_and_properties_that_come_later_come_to_the_log(lake: Lake, catalog: MemoryCatalog) -> None:
    path = "tables/plain"
    with lake.session("dev") as s:
        s.create_delta(path, SCHEMA).append(rows(1, 2))
    sync_branches(lake, catalog, "db")
    with lake.session("dev") as s:
        s.delta(path).cluster_by(["id"])
        s.delta(path).set_properties({"delta.enableInCommitTimestamps": "true"})
    sync_branches(lake, catalog, "db")
    since = "delta.inCommitTimestampEnablementVersion"
    assert (clone(lake, path=path).detail().clustering_columns, clone(lake, path=path).properties[since]) == (
        ("id",),
        "1",
    )
    with lake.session("dev") as s:
        s.delta(path).set_properties({"my.note": "x"})
    sync_branches(lake, catalog, "db")
    assert clone(lake, path=path).properties[since] == "1"
    assert clone(lake, path=path).properties["my.note"] == "x"


def test_files_whose_rows_get_ids_later_are_added_again_and_not_removed(lake: Lake, catalog: MemoryCatalog) -> None:
    path = "tables/plain"
    with lake.session("dev") as s:
        s.create_delta(path, SCHEMA).append(rows(1, 2))
    sync_branches(lake, catalog, "db")
    with lake.session("dev") as s:
        s.delta(path).set_properties({"delta.enableRowTracking": "true"})
    sync_branches(lake, catalog, "db")
    table, columns = clone(lake, path=path), ["id", "_metadata.row_id"]
    assert held(table.to_arrow(columns=columns)) == held(lake.delta(path, ref="dev").to_arrow(columns=columns))
    commit = table.store.get("_delta_log/00000000000000000001.json").decode().splitlines()
    assert [next(iter(json.loads(line))) for line in commit].count("add") == 1
    assert not [line for line in commit if line.startswith('{"remove"')]


def test_a_failing_catalog_fails_no_publish_and_is_caught_up(lake: Lake, catalog: MemoryCatalog) -> None:
    def fail(request: str) -> None:
        if request.startswith("create "):
            raise CatalogUnavailable("no answer")

    catalog.before = fail
    with pytest.raises(CatalogUnavailable):
        sync_branch(lake, catalog, "db_dev", branch="dev")
    change(lake, lambda table: table.append(rows(6)))
    catalog.before = lambda request: None
    sync_branch(lake, catalog, "db_dev", branch="dev")
    assert read(location(catalog)).num_rows == 6


def test_collection_leaves_what_the_branch_has_and_the_logs(tmp_path: Path, catalog: MemoryCatalog) -> None:
    clock = ManualClock()
    lake = lake_at(tmp_path / "lake", clock=clock)
    change(lake, lambda table: table.delete("id = 2"))
    sync_branches(lake, catalog, "db")
    change(lake, lambda table: table.overwrite(rows(9)))
    sync_branches(lake, catalog, "db")
    logs = {meta.key for meta in lake.repository.root.list("_lake/branches/")}
    clock.pass_days(400)
    lake.maintenance.gc()
    assert {meta.key for meta in lake.repository.root.list("_lake/branches/")} == logs
    assert read(location(catalog))["id"].to_pylist() == [9]
    assert list(lake.maintenance.verify()) == []


# Crashes and races


class Recorded(FaultStore):
    """A store that says which of its operations write: a death after another one leaves what the write before left."""

    def __init__(self, inner: MemoryStore, at: int) -> None:
        super().__init__(inner, at, "after")
        self.writing: list[int] = []

    def _run(self, what: str, operation: Callable[[], Any]) -> Any:
        if what.startswith(("put", "delete")):
            self.writing.append(self.operations + 1)
        return super()._run(what, operation)


def test_a_sync_that_dies_after_any_write_is_completed_by_the_next() -> None:
    """The sync creates a log, continues one, and removes one."""
    writing = [0]
    while writing:
        root = MemoryStore()
        lake, catalog = lake_at(root), MemoryCatalog()
        lake.create_branch("gone")
        sync_branches(lake, catalog, "db")
        lake.delete_branch("gone")
        change(lake, lambda table: table.delete("id = 2"))
        with lake.session("dev") as s:
            s.create_delta("tables/items", SCHEMA).append(rows(1))
        at = writing.pop()
        dying = Recorded(root, at)
        with suppress(StoreDied):
            sync_branches(Lake.open(dying), catalog, "db")
        if at == 0:
            writing = dying.writing
            assert len(writing) == 7, "of the new log, of the one that goes on, and of the record and the logs that go"
        # Whatever has died, the table opens, and is as before or after.
        assert sorted(clone(lake).to_arrow()["id"].to_pylist()) in ([1, 2, 3, 4, 5], [1, 3, 4, 5])
        sync_branches(lake, catalog, "db")
        assert sorted(clone(lake).to_arrow()["id"].to_pylist()) == [1, 3, 4, 5]
        assert clone(lake).version == 1
        assert clone(lake, path="tables/items").to_arrow().num_rows == 1
        assert list(root.list("_lake/branches/gone/")) == []


def test_a_sync_that_was_held_up_does_not_go_back(lake: Lake, catalog: MemoryCatalog) -> None:
    """An earlier state of the branch is published after a later one, as by a process that was suspended."""
    sync_branches(lake, catalog, "db")
    refs = lake.repository.refs()
    state = lake.repository.commit_state(refs.commit(refs.branch("dev")), "dev")
    change(lake, lambda table: table.append(rows(6)))
    tables = BranchTables(lake.repository, "dev", lake.url)
    later = lake.repository.refs()
    sync_branches(lake, catalog, "db")
    version = clone(lake).version
    assert tables.publish(PATH, refs, state)
    assert (clone(lake).version, clone(lake).to_arrow().num_rows) == (version, 6)
    assert not tables.publish(PATH, later, lake.repository.commit_state(later.commit(later.branch("dev"))))


@pytest.mark.parametrize("kind", [MemoryCatalog, ReplacingCatalog])
@pytest.mark.parametrize("request_", ["create orders", "update orders", "drop orders"])
def test_a_sync_that_is_overtaken_leaves_nothing_outdated(lake: Lake, kind: type[MemoryCatalog], request_: str) -> None:
    catalog = kind()
    if request_ != "create orders":
        sync_branches(lake, catalog, "db")
    if request_ == "update orders":
        change(lake, lambda table: table.add_columns(pa.schema([("more", pa.int64())])))
    is_dropped = request_ == "drop orders"
    if is_dropped:
        drop(lake)
    waiting = iter([True])

    def overtake(request: str) -> None:
        if request == request_ and next(waiting, False):
            other = Lake.open(lake.url)
            if is_dropped:
                create(other, SCHEMA)
            change(other, lambda table: table.append(rows(30)))
            sync_branch(other, catalog, "db_dev", branch="dev")

    catalog.before = overtake
    if kind is ReplacingCatalog and request_ == "update orders":
        request_ = "drop orders"
    sync_branch(lake, catalog, "db_dev", branch="dev")
    assert next(waiting, None) is None, "nothing was overtaken"
    assert held(read(location(catalog))) == held(lake.delta(PATH, ref="dev").to_arrow())


def test_syncs_that_race_with_publishes_end_at_the_head_with_each_row_once(lake: Lake, catalog: MemoryCatalog) -> None:
    def sync(_: int) -> None:
        for _ in range(4):
            with suppress(CatalogChanged):
                sync_branch(Lake.open(lake.url), catalog, "db_dev", branch="dev")

    with ThreadPoolExecutor(4) as pool:
        syncs = [pool.submit(sync, number) for number in range(3)]
        for number in range(8):
            change(lake, lambda table, number=number: table.append(rows(100 + number)))  # type: ignore[misc]
        for each in syncs:
            each.result()
    sync_branch(lake, catalog, "db_dev", branch="dev")
    assert sorted(read(location(catalog))["id"].to_pylist()) == [1, 2, 3, 4, 5, *range(100, 108)]


def test_a_log_of_which_a_part_was_removed_is_made_anew(lake: Lake, catalog: MemoryCatalog) -> None:
    """As by a sync that removes the logs of a branch while it is created again."""
    sync_branches(lake, catalog, "db")
    change(lake, lambda table: table.append(rows(6)))
    sync_branches(lake, catalog, "db")
    clone(lake).store.delete(["_delta_log/00000000000000000000.json"])
    sync_branches(lake, catalog, "db")
    assert (clone(lake).version, read(location(catalog)).num_rows) == (0, 6)


@pytest.mark.parametrize("number", range(1, 120, 9))
def test_a_branch_that_is_created_again_while_it_is_removed_is_shown(number: int) -> None:
    """The removal is held up at one of its operations, and another sync runs whole."""
    root = MemoryStore()
    lake, catalog = lake_at(root), MemoryCatalog()
    sync_branches(lake, catalog, "db")
    lake.delete_branch("dev")

    class Interrupted(FaultStore):
        def _run(self, what: str, operation: Callable[[], Any]) -> Any:
            if self.operations + 1 == number:
                lake.create_branch("dev", exist_ok=True)
                sync_branches(lake, catalog, "db")
            return super()._run(what, operation)

    sync_branches(Lake.open(Interrupted(root, 0)), catalog, "db")
    lake.create_branch("dev", exist_ok=True)
    sync_branches(lake, catalog, "db")
    assert clone(lake).to_arrow().num_rows == 3


@given(st.lists(st.sampled_from([*EDITS, "drop", "sync", "die", "forget"]), max_size=8), st.integers(1, 60))
@settings(max_examples=examples(30))
def test_any_history_ends_with_what_the_branch_has(operations: list[str], at: int) -> None:
    root = MemoryStore()
    lake, catalog = lake_at(root), MemoryCatalog()
    for operation in operations:
        is_there = "dev" in lake.list_branches() and PATH in lake.at("dev").datasets()
        if operation == "sync":
            sync_branches(lake, catalog, "db")
        elif operation == "die":
            with suppress(StoreDied):
                sync_branches(Lake.open(FaultStore(root, at, "after")), catalog, "db")
        elif operation == "forget" and "dev" in lake.list_branches():
            lake.delete_branch("dev")
            if at % 2:
                sync_branches(lake, catalog, "db")
            lake.create_branch("dev")
        elif operation == "drop" and is_there:
            drop(lake)
        elif operation in EDITS and is_there:
            with suppress(LakeError):  # an edit that does not fit the table of now, such as of a column that is gone
                EDITS[operation](lake)
    sync_branches(lake, catalog, "db")
    if PATH in lake.at("dev").datasets():
        expected = lake.delta(PATH, ref="dev").to_arrow()
        assert held(clone(lake).to_arrow()) == held(expected)
        assert catalog.definitions["db_dev", "orders"].schema.names == expected.schema.names
    else:
        assert catalog.schemas.get("db_dev", {}) == {}
