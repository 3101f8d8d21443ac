"""A lakeFS repository as a lake: history with lakeFS's ids, objects where they are, and nothing of it ever deleted."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from contextlib import suppress
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.errors import AlreadyExists, InvalidKey, InvalidUrl
from lake_core.graveler import AddressType, Commit, Entry
from lake_core.lake.errors import (
    DatasetNotFound,
    ExternalAddress,
    FolderInUse,
    ForeignRepository,
    InvalidRef,
    LakeAlreadyExists,
    RefNotFound,
)
from lake_core.store import FolderStore, LocalStore, MemoryStore, large_object
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakefs_repository import WHEN, RepositoryOfLakeFS
from tests.lake.lakes import ids, plain, rows


@pytest.fixture
def repository(store: MemoryStore) -> RepositoryOfLakeFS:
    """Two branches and a tag over three objects."""
    repository = RepositoryOfLakeFS(store)
    first = repository.commit("main", {"a.txt": repository.put("1", b"one"), "b/c.txt": repository.put("2", b"two")})
    repository.tags["v1"] = first.id
    repository.branches["dev"] = first.id
    repository.commit("dev", {"a.txt": repository.put("3", b"three")})
    repository.commit("main", {"b/c.txt": None})
    repository.dump()
    return repository


def test_history_branches_and_tags_have_lakefs_ids(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    lake = Lake.import_lakefs(repository.store, clock=time)
    assert lake.list_branches() == repository.branches
    assert lake.list_tags() == repository.tags
    assert [commit.id for commit in lake.log("dev")] == [repository.branches["dev"], repository.tags["v1"]]
    assert {commit.id: commit for commit in lake.repository.refs().commits()} == repository.commits
    assert lake.at("dev").get("a.txt") == b"three"
    assert lake.at("v1").get("b/c.txt") == b"two"
    assert [meta.key for meta in lake.at().list()] == ["a.txt"]
    assert lake.maintenance.verify() == []
    assert pickle.loads(pickle.dumps(lake.at())).get("a.txt") == b"one"


def test_nothing_is_copied(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    before = {meta.key for meta in repository.store.list()}
    Lake.import_lakefs(repository.store, clock=time)
    assert all(key.startswith("_lake/") for key in {meta.key for meta in repository.store.list()} - before)


def test_work_goes_on_in_the_lake(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    lake = Lake.import_lakefs(repository.store, clock=time)
    with lake.session() as s:
        s.put("new.txt", b"new")
        s.create_delta("tables/t", rows([1]).schema).append(rows([1]))
    lake.merge("dev")
    assert lake.at().get("a.txt") == b"three"
    assert ids(lake.delta("tables/t")) == [1]
    lake.revert("main")
    assert lake.at().get("a.txt") == b"one"


def test_collection_deletes_nothing_that_was_there_before(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    before = {meta.key for meta in repository.store.list()}
    time.pass_days(1)
    lake = Lake.import_lakefs(repository.store, clock=time)
    lake.delete_branch("dev")
    lake.delete_tag("v1")
    for number in range(2):
        with lake.session() as s:
            s.put("a.txt", b"%d" % number)
    time.pass_days(100)
    collected = lake.maintenance.gc(history=dt.timedelta(days=7))
    assert collected.commits
    assert any(key.startswith("_lakefs/") for key in collected.keys), "the lake's own trees go"
    assert before <= {meta.key for meta in repository.store.list()}
    assert lake.maintenance.verify() == []


def test_an_import_that_was_interrupted_is_repeated(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    for operation in range(1, 60):
        store = MemoryStore(clock=time)
        for meta in repository.store.list():
            store.put(meta.key, repository.store.get(meta.key))
        dying = FaultStore(store, operation, "before")
        try:
            Lake.import_lakefs(dying, clock=time)
        except StoreDied:
            if Lake.exists(store):
                with pytest.raises((FolderInUse, LakeAlreadyExists)):
                    Lake.create(store, clock=time)
            with suppress(LakeAlreadyExists):  # it died after the last entry
                Lake.import_lakefs(store, clock=time)
            assert Lake.open(store, clock=time).list_branches() == repository.branches
        else:
            return
    raise AssertionError("more operations than were tried")


def test_a_lake_is_imported_once(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    lake = Lake.import_lakefs(repository.store, clock=time)
    with lake.session() as s:
        s.put("new", b"1")
    with pytest.raises(LakeAlreadyExists):
        Lake.import_lakefs(repository.store, clock=time)
    assert lake.at().get("new") == b"1"


def test_a_lake_of_our_own_is_not_imported(lake: Lake) -> None:
    with pytest.raises(LakeAlreadyExists):
        Lake.import_lakefs(lake.repository.root)


def test_a_repository_without_dumps_says_how_to_write_them() -> None:
    store = MemoryStore()
    store.put("_lakefs/dummy", b"")
    with pytest.raises(ForeignRepository, match="lakectl refs-dump"):
        Lake.import_lakefs(store)
    assert [meta.key for meta in store.list()] == ["_lakefs/dummy"]


def test_the_branch_that_becomes_main_is_named(store: MemoryStore, time: ManualClock) -> None:
    repository = RepositoryOfLakeFS(store)
    repository.commit("master", {"a": repository.put("1", b"one")})
    repository.dump()
    with pytest.raises(ForeignRepository, match=r"rename=\{'master': 'main'\}"):
        Lake.import_lakefs(store, clock=time)
    lake = Lake.import_lakefs(store, rename={"master": "main"}, clock=time)
    assert lake.at().get("a") == b"one"


@pytest.mark.parametrize(
    ("rename", "error"),
    [
        ({}, InvalidRef),
        ({"v1/2": "dev"}, InvalidRef),
        ({"v1/2": "v1"}, InvalidRef),
        ({"v1/2": "v2", "other": "x"}, RefNotFound),
    ],
)
def test_names_that_a_lake_refuses_are_renamed(
    repository: RepositoryOfLakeFS, time: ManualClock, rename: dict[str, str], error: type[Exception]
) -> None:
    repository.tags["v1/2"] = repository.tags["v1"]
    repository.dump()
    with pytest.raises(error, match="rename"):
        Lake.import_lakefs(repository.store, rename=rename, clock=time)
    assert not Lake.exists(repository.store)
    lake = Lake.import_lakefs(repository.store, rename={"v1/2": "v1.2"}, clock=time)
    assert set(lake.list_tags()) == {"v1", "v1.2"}


@pytest.mark.parametrize("key", ["_lake/datasets/x", "_lakefs/x"])
def test_keys_of_a_lake_itself_are_refused(store: MemoryStore, key: str) -> None:
    repository = RepositoryOfLakeFS(store)
    repository.commit("main", {key: repository.put("1", b"one")})
    repository.dump()
    with pytest.raises(ForeignRepository, match="a lake's own"):
        Lake.import_lakefs(store)
    assert not Lake.exists(store)


@pytest.mark.parametrize("datasets", ["mine", "[]", '{"t": 1}', '{"t": {"version": 1}}'])
def test_metadata_that_a_lake_would_misread_is_kept_and_does_not_stop_a_branch(
    repository: RepositoryOfLakeFS, datasets: str
) -> None:
    head = repository.commits[repository.branches["main"]]
    parents = [repository.commits[id] for id in head.parents]
    metadata = {"datasets": datasets, "at": "noon", "session": "mine", "lineage": "mine"}
    commit = Commit.create("admin", "m", WHEN, head.metarange_id, metadata=metadata, parents=parents)
    repository.commits[commit.id] = commit
    repository.branches["main"] = commit.id
    repository.dump()
    lake = Lake.import_lakefs(repository.store)
    assert lake.log(limit=1)[0].metadata == metadata
    with lake.session(id="mine") as s:
        s.create_delta("t/new", rows([]).schema).append(rows([1]))
    assert ids(plain(repository.store, "t/new")) == [1]
    assert len(lake.log(dataset="t/new")) == 1
    assert lake.maintenance.verify() == []
    reverted = lake.revert("main~1").commit
    assert lake.log(limit=1)[0].id == reverted


def test_commits_that_were_altered_are_refused(repository: RepositoryOfLakeFS) -> None:
    head = repository.commits[repository.branches["main"]]
    repository.commits[head.id] = Commit(head.id, "mallory", head.message, head.creation_date, head.metarange_id)
    repository.dump()
    with pytest.raises(ForeignRepository, match="another content"):
        Lake.import_lakefs(repository.store)


def test_external_objects_are_read_where_they_are_allowed(tmp_path: Path) -> None:
    outside = LocalStore(tmp_path / "raw")
    outside.put("day/1.csv", b"a,b")
    repository = RepositoryOfLakeFS(LocalStore(tmp_path / "ns"))
    address = f"{outside.url()}/day/1.csv"
    repository.commit("main", {"1.csv": Entry(address, 3, "md5", address_type=AddressType.FULL)})
    repository.dump()
    lake = Lake.import_lakefs(tmp_path / "ns")
    with pytest.raises(ExternalAddress, match="settings"):
        lake.at().get("1.csv")
    assert [problem.kind for problem in lake.maintenance.verify()] == ["unreadable"]
    lake.settings.update(external=[outside.url()])
    assert lake.at().get("1.csv") == b"a,b"
    assert lake.at().get("1.csv", 1, 2) == b","
    assert lake.maintenance.verify() == []
    assert lake.maintenance.gc().keys == ()
    with lake.session() as s:
        s.put("other", b"1")
    target = MemoryStore()
    assert lake.maintenance.export(target).copied == 2
    assert b"a,b" in [bytes(target.get(meta.key)) for meta in target.list("data/")]
    outside.put("day/1.csv", b"another")
    assert [problem.kind for problem in lake.maintenance.verify()] == ["changed"]
    outside.delete(["day/1.csv"])
    assert [problem.kind for problem in lake.maintenance.verify()] == ["missing"]


def test_paths_that_lead_out_of_an_allowed_location_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"key")
    (tmp_path / "raw").mkdir()
    repository = RepositoryOfLakeFS(LocalStore(tmp_path / "ns"))
    address = f"{LocalStore(tmp_path / 'raw').url()}/../secret"
    repository.commit("main", {"k": Entry(address, 3, "md5", address_type=AddressType.FULL)})
    repository.dump()
    lake = Lake.import_lakefs(tmp_path / "ns", external=[LocalStore(tmp_path / "raw").url()])
    with pytest.raises(InvalidKey):
        lake.at().get("k")


@pytest.mark.parametrize("address", ["../../secret", "/secret", "a//b"])
def test_addresses_that_lead_out_of_the_lake_are_reported(store: MemoryStore, time: ManualClock, address: str) -> None:
    repository = RepositoryOfLakeFS(store)
    repository.commit("main", {"k": Entry(address, 3, "md5"), "other": Entry("data/gone", 3, "md5")})
    repository.dump()
    lake = Lake.import_lakefs(store, clock=time)
    assert {problem.key for problem in lake.maintenance.verify()} == {address, "data/gone"}


@pytest.mark.parametrize("dump", ["commits", "branches", "tags"])
def test_a_missing_dump_is_named(repository: RepositoryOfLakeFS, dump: str) -> None:
    manifest = json.loads(repository.store.get("_lakefs/refs_manifest.json"))
    repository.store.delete([f"_lakefs/{manifest[f'{dump}_meta_range_id']}"])
    with pytest.raises(ForeignRepository, match="is missing: run `lakectl refs-dump` again"):
        Lake.import_lakefs(repository.store)
    assert not Lake.exists(repository.store)


@pytest.mark.parametrize("location", ["raw", "s3://me:secret@host/x", "s3://"])
def test_locations_of_external_objects_are_urls(lake: Lake, location: str) -> None:
    with pytest.raises(InvalidUrl):
        lake.settings.update(external=[location])


def test_an_export_of_a_lake_comes_back_with_its_history(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]))
    target = MemoryStore(clock=time)
    exported = lake.maintenance.export(target)
    back = Lake.import_lakefs(target, clock=time)
    assert [commit.id for commit in back.log()] == [exported.commits[commit.id] for commit in lake.log()]
    assert ids(DeltaTable.open(FolderStore(back.at(), "t/orders"))) == [*range(10), 50]
    assert back.list_datasets() == []
    assert back.status().pending_checkout == []


def test_a_table_becomes_a_dataset(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]))
    target = MemoryStore(clock=time)
    lake.maintenance.export(target)
    time.pass_days(1)
    back = Lake.import_lakefs(target, clock=time)
    with back.session() as s:
        s.import_dataset("t/orders", "delta", copy_files=True)
    assert ids(back.delta("t/orders")) == [*range(10), 50]
    assert ids(plain(target, "t/orders")) == [*range(10), 50], "plain readers see it too"
    back.create_branch("dev")
    for branch, number in (("main", 60), ("dev", 61)):
        with back.session(branch) as s:
            s.delta("t/orders").append(rows([number]))
    back.merge("dev")
    assert ids(back.delta("t/orders")) == [*range(10), 50, 60, 61]
    assert [meta.key for meta in back.at("main~3").list("t/orders/") if "parquet" in meta.key]
    time.pass_days(100)
    back.maintenance.gc()
    assert ids(back.delta("t/orders")) == [*range(10), 50, 60, 61]
    assert back.maintenance.verify() == []


def test_what_is_no_table_does_not_become_one(repository: RepositoryOfLakeFS, time: ManualClock) -> None:
    lake = Lake.import_lakefs(repository.store, clock=time)
    with pytest.raises(DatasetNotFound), lake.session() as s:
        s.import_dataset("b", "delta", copy_files=True)
    assert lake.at("v1").get("b/c.txt") == b"two"


def test_large_data_files_are_copied_in_parts(lake: Lake, time: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    target = MemoryStore(clock=time)
    lake.maintenance.export(target)
    back = Lake.import_lakefs(target, clock=time)
    monkeypatch.setattr(large_object, "PART", 100)
    for _ in range(2):  # the second time, the copies are there
        session = back.session()
        session.import_dataset("t/orders", "delta", copy_files=True)
        assert ids(session.delta("t/orders")) == list(range(10))
        session.abandon()
    copies = [meta for meta in target.list("t/orders/") if meta.key.endswith(".parquet")]
    assert min(meta.size for meta in copies) > 100


def test_a_file_in_the_place_of_a_data_file_is_not_replaced(lake: Lake, time: ManualClock) -> None:
    target = MemoryStore(clock=time)
    lake.maintenance.export(target)
    back = Lake.import_lakefs(target, clock=time)
    key = next(meta.key for meta in back.at().list("t/orders/") if meta.key.endswith(".parquet"))
    target.put(key, b"other")
    with pytest.raises(AlreadyExists), back.session() as s:
        s.import_dataset("t/orders", "delta", copy_files=True)
    assert target.get(key) == b"other"
    assert back.list_datasets() == []
