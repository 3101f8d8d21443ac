"""An export read back as lakeFS would restore it: every name is computed again from what stands behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lake_core.errors import NotFound
from lake_core.graveler import AddressType, Commit, Entry, Graveler, Record, Table, range_id
from lake_core.graveler.export import EarlierExport, Exported, export_commits
from lake_core.graveler.identity import AFTER_HASHING
from lake_core.graveler.wire import read_message, text
from lake_core.store import MemoryStore
from tests.graveler.records import TINY

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Repository:
    """Four commits, a merge among them, over a store of objects."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.trees = Graveler(self.store, profile=TINY)
        self.reads: list[str] = []
        keys = [b"t/%03d" % at for at in range(120)]
        first = self.tree("", {key: key.decode() for key in keys})
        left = self.tree(first, {b"t/007": "left", b"t/new": "left"})
        right = self.tree(first, {b"t/100": "right"})
        both = self.trees.merge(first, left, right).tree
        self.root = Commit.create("ann", "first", START, first, metadata={"k": "v", "a": ""})
        self.left = Commit.create("ann", "left", START + timedelta(days=1), left, parents=[self.root])
        self.right = Commit.create("bob", "right", START + timedelta(days=2), right, parents=[self.root])
        self.merge = Commit.create("bob", "both", START + timedelta(days=3), both, parents=[self.left, self.right])
        self.empty = Commit.create("bob", "nothing", START, "")

    def tree(self, base: str, contents: dict[bytes, str]) -> str:
        for content in contents.values():
            self.store.put(f"objects/{content}", content.encode())
        entries = {key: Entry(f"objects/{content}", len(content), etag=content) for key, content in contents.items()}
        return self.trees.build(base, [(key, entry.record(key)) for key, entry in sorted(entries.items())]).tree

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        self.reads.append(entry.address)
        return bytes(self.store.get(entry.address, start, end))

    def export(
        self, target: MemoryStore, *commits: Commit, branches: dict[str, str], tags: dict[str, str] | None = None
    ) -> Exported:
        return export_commits(
            commits,
            target,
            records=lambda commit: self.trees.scan(commit.metarange_id),
            read=self.read,
            branches=branches,
            tags=tags,
        )


def dumped(target: MemoryStore, name: str, entity: str) -> list[Record]:
    """Return the records of a dump, after checking every name."""
    return list(checked(target, name, entity))


def checked(target: MemoryStore, name: str, entity: str = "") -> list[Record]:
    """Return a tree's records, after checking that its metarange and ranges are named by their contents."""
    if not name:
        return []
    records = []
    metarange = named_right(target, name, entity)
    assert metarange.properties["type"] == "metaranges"
    for key, identity, _ in metarange.records:
        table = named_right(target, identity.decode(), entity)
        assert table.properties["type"] == "ranges"
        assert table.properties["max_key"] == key.decode()
        records += table.records
    assert [record.key for record in records] == sorted(record.key for record in records)
    return records


def named_right(target: MemoryStore, name: str, entity: str) -> Table:
    table = Table(bytes(target.get(f"_lakefs/{name}")))
    assert table.properties.get("entity", "") == entity
    hashed = {key: str(value) for key, value in table.properties.items() if key not in AFTER_HASHING}
    assert range_id(table.records, properties=hashed) == name
    return table


def test_an_export_is_what_lakefs_restores() -> None:
    repository, target = Repository(), MemoryStore()
    main, side = repository.merge, repository.right
    # Children first: a dump has no order either.
    exported = repository.export(
        target,
        main,
        side,
        repository.left,
        repository.root,
        branches={"main": main.id, "side": side.id},
        tags={"v1": repository.root.id},
    )
    manifest = json.loads(target.get("_lakefs/refs_manifest.json"))
    assert set(manifest) == {"commits_meta_range_id", "branches_meta_range_id", "tags_meta_range_id"}
    assert manifest == exported.manifest

    commits = {}
    for key, identity, value in dumped(target, manifest["commits_meta_range_id"], "commit"):
        commit = Commit.decode(value)
        assert commit.is_named_right
        assert commit.id.encode() == key == identity
        assert commit.generation >= 1
        assert commit.encode() == value
        commits[commit.id] = commit
    assert set(commits) == set(exported.commits.values())
    for original in (repository.root, repository.left, repository.right, repository.merge):
        commit = commits[exported.commits[original.id]]
        assert commit.id != original.id, "its tree has another name"
        assert (commit.message, commit.committer, commit.creation_date) == (
            original.message,
            original.committer,
            original.creation_date,
        )
        assert commit.metadata == original.metadata
        assert commit.generation == original.generation
        assert list(commit.parents) == [exported.commits[parent] for parent in original.parents]
        entries = {key: Entry.decode(value) for key, _, value in checked(target, commit.metarange_id)}
        expected = {key: Entry.decode(value) for key, _, value in repository.trees.scan(original.metarange_id)}
        assert entries.keys() == expected.keys()
        for key, entry in entries.items():
            assert entry.address_type is AddressType.RELATIVE
            assert entry.address.startswith("data/")
            assert bytes(target.get(entry.address)) == repository.store.get(expected[key].address)
            assert (entry.size, entry.etag) == (expected[key].size, expected[key].etag)

    branches = [read_message(value) for _, _, value in dumped(target, manifest["branches_meta_range_id"], "branch")]
    assert [(text(branch, 1), text(branch, 2)) for branch in branches] == [
        ("main", exported.commits[main.id]),
        ("side", exported.commits[side.id]),
    ]
    ((key, identity, value),) = dumped(target, manifest["tags_meta_range_id"], "tag")
    assert (key, identity) == (b"v1", exported.commits[repository.root.id].encode())
    assert text(read_message(value), 2) == exported.commits[repository.root.id]
    assert len(repository.reads) == exported.copied == 122
    assert len(set(repository.reads)) == 122


def test_the_dumps_say_what_they_are() -> None:
    repository, target = Repository(), MemoryStore()
    manifest = repository.export(target, repository.root, branches={"main": repository.root.id}).manifest
    properties = Table(bytes(target.get(f"_lakefs/{manifest['commits_meta_range_id']}"))).properties
    assert properties["schema_name"] == "io.treeverse.lakefs.graveler.CommitData"
    described = json.loads(properties["schema_definition"])
    assert described["field"][3] == {
        "name": "creation_date",
        "number": 4,
        "label": "LABEL_OPTIONAL",
        "type": "TYPE_MESSAGE",
        "typeName": ".google.protobuf.Timestamp",
        "jsonName": "creationDate",
    }
    # Without tags the metarange is empty.
    assert dumped(target, manifest["tags_meta_range_id"], "tag") == []


def test_an_export_that_is_repeated_copies_nothing() -> None:
    repository, target = Repository(), MemoryStore()
    first = repository.export(target, repository.root, branches={"main": repository.root.id})
    assert (first.copied, first.copied_bytes) == (120, 120 * 5)
    again = repository.export(target, repository.root, repository.left, branches={"main": repository.left.id})
    assert (again.copied, again.copied_bytes) == (1, 4)
    assert again.commits[repository.root.id] == first.commits[repository.root.id]


def test_what_an_earlier_export_wrote_is_not_read_again() -> None:
    repository, target, earlier = Repository(), MemoryStore(), EarlierExport()
    commits = [repository.root, repository.left, repository.right, repository.merge]

    def export(*commits: Commit) -> Exported:
        return export_commits(
            commits,
            target,
            records=lambda commit: asked.append(commit.message) or repository.trees.scan(commit.metarange_id),  # type: ignore[func-returns-value]
            differences=lambda before, after: (
                asked.append(f"{before.message} {after.message}")  # type: ignore[func-returns-value]
                or (
                    (each.key, each.after)
                    for each in repository.trees.diff(before.metarange_id, after.metarange_id, exact=True)
                )
            ),
            read=repository.read,
            branches={"main": commits[-1].id},
            earlier=earlier,
        )

    asked: list[str] = []
    export(*commits[:3])
    assert asked == ["first", "first left", "first right"]
    asked.clear()
    whole = export(*commits)
    assert asked == ["left both"]
    asked.clear()
    assert export(*commits) == replace(whole, copied=0, copied_bytes=0)
    assert asked == []
    scratch = repository.export(MemoryStore(), *commits, branches={"main": commits[-1].id})
    assert scratch.commits == whole.commits


def test_history_may_begin_anywhere_and_with_nothing() -> None:
    repository, target = Repository(), MemoryStore()
    exported = repository.export(target, repository.merge, repository.empty, branches={"main": repository.merge.id})
    commits = {
        key.decode(): Commit.decode(value)
        for key, _, value in dumped(target, exported.manifest["commits_meta_range_id"], "commit")
    }
    assert [(commit.parents, commit.generation) for commit in commits.values()] == [((), 1)] * 2
    assert commits[exported.commits[repository.empty.id]].metarange_id == ""


def test_contents_that_only_their_identity_tells_apart() -> None:
    """Entries without etags, of equal size: an identity of the caller's own becomes the etag."""
    trees, target = Graveler(MemoryStore()), MemoryStore()
    records = [Record(key, key * 32, Entry(f"objects/{key!r}", 1).encode()) for key in (b"a", b"b")]
    tree = trees.build("", [(record.key, record) for record in records]).tree
    commit = Commit.create("ann", "m", START, tree)
    exported = export_commits(
        [commit],
        target,
        records=lambda commit: trees.scan(commit.metarange_id),
        read=lambda entry, start, end: b"x",
        branches={"main": commit.id},
    )
    ((_, _, value),) = dumped(target, exported.manifest["commits_meta_range_id"], "commit")
    exported_records = checked(target, Commit.decode(value).metarange_id)
    assert [Entry.decode(record.value).etag for record in exported_records] == [
        record.identity.hex() for record in records
    ]
    assert all(Entry.decode(record.value).identity == record.identity for record in exported_records)


def test_what_cannot_be_exported_is_refused_before_anything_is_written() -> None:
    repository, target = Repository(), MemoryStore()
    with pytest.raises(ValueError, match="'side' names the commit"):
        repository.export(target, repository.root, branches={"side": repository.left.id})
    first = Commit("a" * 64, "c", "m", START, "", parents=("b" * 64,))
    other = Commit("b" * 64, "c", "m", START, "", parents=("a" * 64,))
    with pytest.raises(ValueError, match="own ancestor"):
        repository.export(target, first, other, branches={})
    assert list(target.list()) == []


def test_an_export_that_is_cut_short_has_no_manifest() -> None:
    repository, target = Repository(), MemoryStore()
    repository.store.delete(["objects/left"])
    with pytest.raises(NotFound):
        repository.export(target, repository.root, repository.left, branches={"main": repository.left.id})
    assert not target.exists("_lakefs/refs_manifest.json")


def test_long_histories() -> None:
    commits = [Commit.create("ann", "0", START, "")]
    for number in range(3000):
        commits.append(Commit.create("ann", str(number), START, "", parents=[commits[-1]]))
    target = MemoryStore()
    exported = export_commits(
        reversed(commits),
        target,
        records=lambda commit: (),
        read=lambda entry, start, end: b"",
        branches={"main": commits[-1].id},
    )
    records = dumped(target, exported.manifest["commits_meta_range_id"], "commit")
    assert max(Commit.decode(record.value).generation for record in records) == 3001
