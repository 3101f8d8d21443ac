"""A lake as a lakeFS repository: whole trees, data files included, and dumps whose commit ids prove themselves."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from contextlib import suppress

import pytest

from lake_core import Lake
from lake_core.graveler import Commit, Entry, Exported, Graveler, export_commits
from lake_core.lake.errors import InvalidRef, RefNotFound
from lake_core.lake.lakefs.exported_trees import ExportedTrees
from lake_core.store import MemoryStore, ObjectMeta
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, START, create_tables, ids, plain, rows


def test_branches_and_tags_with_their_data(lake: Lake, store: MemoryStore) -> None:
    lake.create_branch("dev")
    lake.create_tag("v1")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([50]))
        s.delete(["notes.txt"])
    target = MemoryStore()
    exported = lake.maintenance.export(target)
    manifest = json.loads(target.get("_lakefs/refs_manifest.json"))
    assert manifest == dict(exported.manifest)
    assert sorted(manifest) == ["branches_meta_range_id", "commits_meta_range_id", "tags_meta_range_id"]
    trees = Graveler(target)
    commits = {
        record.key.decode(): Commit.decode(record.value) for record in trees.scan(manifest["commits_meta_range_id"])
    }
    assert len(commits) == 4
    assert all(commit.is_named_right and commit.generation >= 1 for commit in commits.values())
    assert {id for commit in commits.values() for id in commit.parents} <= set(commits)
    assert [record.key for record in trees.scan(manifest["branches_meta_range_id"])] == [b"dev", b"main"]
    assert [record.key for record in trees.scan(manifest["tags_meta_range_id"])] == [b"v1"]
    for branch, expected in (("main", list(range(10))), ("dev", [*range(10), 50])):
        tree = commits[exported.commits[lake.list_branches()[branch]]].metarange_id
        entries = {record.key.decode(): Entry.decode(record.value) for record in trees.scan(tree)}
        assert not any(key.startswith("_lake") for key in entries)
        assert ("notes.txt" in entries) is (branch == "main")
        # What lakeFS would serve under this branch is a table.
        served = MemoryStore()
        for key, entry in entries.items():
            body = bytes(target.get(entry.address))
            assert len(body) == entry.size
            assert entry.address.startswith("data/")
            served.put(key, body)
        assert len([key for key in entries if key.endswith(".json")]) == (1 if branch == "main" else 2)
        assert ids(plain(served, "t/orders")) == expected
    assert lake.maintenance.export(target).copied == 0
    assert ids(plain(store, "t/orders")) == list(range(10))


def _eventful(lake: Lake) -> None:
    """Give a lake branches, merges, a table that was dropped and made again, and files that come and go."""
    for number in range(3):
        with lake.session() as s:
            s.delta("t/orders").append(rows([100 + number]))
            s.put(f"files/{number}", b"%d" % number)
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").delete("id < 3")
        s.create_delta("t/new", SCHEMA).append(rows([1]))
        s.delete(["files/0"])
    with lake.session("dev") as s:
        s.put("files/0", b"0")  # the same content, put later
    with lake.session() as s:
        s.put("files/9", b"9")
    lake.merge("dev")
    lake.create_tag("v1")
    with lake.session() as s:
        s.drop("t/new")
    with lake.session() as s:
        s.create_delta("t/new", SCHEMA).append(rows([2, 3]))
    lake.revert("main")
    lake.create_branch("empty", at="main")
    with lake.session("empty") as s:
        s.drop("t/orders")
        s.delete([meta.key for meta in s.list() if not meta.key.startswith("t/")])


class _Counting(MemoryStore):
    """A store that counts what is asked of its data files."""

    heads: Counter[str]

    def _head(self, key: str) -> ObjectMeta:
        if key.endswith(".parquet"):
            self.heads[key] += 1
        return super()._head(key)


def test_a_tree_built_on_its_parents_is_the_one_built_from_nothing(lake: Lake) -> None:
    _eventful(lake)
    repository, refs = lake.repository, lake.repository.refs()
    exported = lake.maintenance.export(MemoryStore())
    trees = ExportedTrees(repository)
    scratch = export_commits(
        refs.commits(),
        MemoryStore(),
        records=trees.records,
        read=trees.read,
        branches=refs.branches(),
        tags=refs.tags(),
    )
    assert exported.commits == scratch.commits


def test_a_data_file_is_asked_for_once(time: ManualClock) -> None:
    store = _Counting(clock=time)
    lake = Lake.create(store, clock=time)
    create_tables(lake, "t/orders")
    for number in range(3):
        with lake.session() as s:
            s.delta("t/orders").append(rows([number]))
    store.heads = Counter()
    lake.maintenance.export(MemoryStore())
    assert set(store.heads.values()) == {1}


def test_the_ids_of_an_export_do_not_depend_on_where_the_lake_lies(lake: Lake, store: MemoryStore) -> None:
    _eventful(lake)
    copy = MemoryStore(clock=ManualClock(START + dt.timedelta(days=5)))
    for meta in store.list():
        copy.put(meta.key, store.get(meta.key))
    first, second = MemoryStore(), MemoryStore()
    exported = lake.maintenance.export(first)
    assert Lake.open(copy).maintenance.export(second).commits == exported.commits
    assert Lake.open(copy).maintenance.export(first).copied == 0


def test_dropped_tables_leave_nothing_in_the_export(lake: Lake) -> None:
    _eventful(lake)
    target = MemoryStore()
    exported = lake.maintenance.export(target)
    assert [key for key in _keys(target, exported, lake.list_branches()["empty"]) if key.startswith("t/orders")] == []


def test_a_large_object_is_copied_in_parts(empty: Lake) -> None:
    body = bytes(range(256)) * (80 << 10)  # 20 MiB
    with empty.session() as s:
        s.put("large", body)
    target = MemoryStore()
    assert empty.maintenance.export(target).copied_bytes == len(body)
    (copied,) = (meta for meta in target.list("data/"))
    assert bytes(target.get(copied.key)) == body


def test_an_interrupted_export_is_continued(lake: Lake) -> None:
    _eventful(lake)
    whole = lake.maintenance.export(MemoryStore())
    target = MemoryStore()
    for operation in (5, 40, 60):
        with suppress(StoreDied):
            lake.maintenance.export(FaultStore(target, operation, "before"))
        assert not target.exists("_lakefs/refs_manifest.json")
    assert lake.maintenance.export(target).commits == whole.commits


def test_commits_that_the_lake_has_collected_stay_in_a_continued_export(
    lake: Lake, store: MemoryStore, time: ManualClock
) -> None:
    target = MemoryStore()
    first = lake.maintenance.export(target)
    time.pass_days(90)
    with lake.session() as s:
        s.put("later", b"1")
    time.pass_days(90)
    with lake.session() as s:
        s.put("latest", b"1")
    assert lake.maintenance.gc().commits
    second = lake.maintenance.export(target)
    dumped = {record.key.decode() for record in Graveler(target).scan(second.manifest["commits_meta_range_id"])}
    assert set(first.commits.values()) <= dumped


def test_names_that_lakefs_refuses_are_named_before_anything_is_written(lake: Lake) -> None:
    lake.create_branch("release-1.0")
    lake.create_tag("a..b")
    target = MemoryStore()
    with pytest.raises(InvalidRef, match=r"'a\.\.b', 'release-1\.0'.* a\.\.b=a-b, release-1\.0=release-1-0"):
        lake.maintenance.export(target)
    assert list(target.list()) == []
    exported = lake.maintenance.export(target, rename={"release-1.0": "release-1-0", "a..b": "a.b"})
    names = [record.key for record in Graveler(target).scan(exported.manifest["branches_meta_range_id"])]
    assert names == [b"main", b"release-1-0"]


@pytest.mark.parametrize(
    ("rename", "error"), [({"other": "x"}, RefNotFound), ({"dev": "main"}, InvalidRef), ({"dev": "a.b"}, InvalidRef)]
)
def test_a_rename_that_does_not_fit_is_refused(lake: Lake, rename: dict[str, str], error: type[Exception]) -> None:
    lake.create_branch("dev")
    target = MemoryStore()
    with pytest.raises(error):
        lake.maintenance.export(target, rename=rename)
    assert list(target.list()) == []


def test_without_history_branches_keep_their_merge_base(lake: Lake) -> None:
    base = lake.list_branches()["main"]
    lake.create_branch("dev")
    for branch in ("main", "dev", "main", "dev"):
        with lake.session(branch) as s:
            s.put(f"{branch}-{len(lake.log(branch))}", b"1")
    target = MemoryStore()
    exported = lake.maintenance.export(target, history=False)
    commits = {
        record.key.decode(): Commit.decode(record.value)
        for record in Graveler(target).scan(exported.manifest["commits_meta_range_id"])
    }
    branches = lake.list_branches()
    assert set(exported.commits) == {base, branches["main"], branches["dev"]}
    for branch in ("main", "dev"):
        assert commits[exported.commits[branches[branch]]].parents == (exported.commits[base],)
    assert commits[exported.commits[base]].parents == ()


def _keys(target: MemoryStore, exported: Exported, commit: str) -> list[str]:
    """List the keys of a commit in an export."""
    trees = Graveler(target)
    dump = trees.scan(exported.manifest["commits_meta_range_id"])
    commits = {record.key.decode(): Commit.decode(record.value) for record in dump}
    return [record.key.decode() for record in trees.scan(commits[exported.commits[commit]].metarange_id)]
