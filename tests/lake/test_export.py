"""A lake as a lakeFS repository: whole trees, data files included, and dumps whose commit ids prove themselves."""

from __future__ import annotations

import json

from lake_core import Lake
from lake_core.graveler import Commit, Entry, Graveler
from lake_core.store import MemoryStore
from tests.lake.lakes import ids, plain, rows


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
