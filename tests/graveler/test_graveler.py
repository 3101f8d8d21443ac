"""Promises of trees that no random history is sure to meet."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lake_core.errors import NotFound, StoreUnavailable
from lake_core.graveler import (
    SMALL_RANGES,
    Entry,
    Graveler,
    MergeConflict,
    Profile,
    RangeCache,
    Record,
    Table,
)
from lake_core.graveler.key_columns import fnv64a
from lake_core.store import LocalStore, MemoryStore, ObjectBytes, ObjectMeta
from tests.graveler.records import TINY, graveler, record, tree_of


def build(trees: Graveler, **contents: object) -> str:
    return tree_of(trees, {key.encode(): record(key.encode(), content) for key, content in contents.items()})


def contents(trees: Graveler, tree: str) -> dict[str, str]:
    return {key.decode(): Entry.decode(value).etag for key, _, value in trees.scan(tree)}


def test_a_rename_of_an_equal_file_survives_the_deletion_of_another() -> None:
    """Ours deletes z, theirs renames z to y: y has the content of base's z, but it is another file."""
    trees = graveler()
    base, theirs, ours = build(trees, a=1, z="X"), build(trees, a=1, y="X"), build(trees, a=1)
    assert contents(trees, trees.merge(base, ours, theirs).tree) == {"a": "1", "y": "X"}
    assert contents(trees, trees.merge(base, theirs, ours).tree) == {"a": "1", "y": "X"}


def test_both_add_a_key_differently_while_the_next_key_holds_the_same_content() -> None:
    trees = graveler()
    base, ours, theirs = build(trees, z="X"), build(trees, m="X", z="X"), build(trees, m="Y", z="X")
    for first, second in ((ours, theirs), (theirs, ours)):
        with pytest.raises(MergeConflict) as raised:
            trees.merge(base, first, second)
        assert raised.value.keys == (b"m",)
    assert contents(trees, trees.merge(base, ours, theirs, strategy="theirs").tree) == {"m": "Y", "z": "X"}


def test_a_conflict_names_its_keys_and_writes_nothing() -> None:
    trees = graveler()
    base = build(trees, **{f"k{at}": 0 for at in range(9)})
    ours, theirs = (
        build(trees, **{f"k{at}": 1 for at in range(9)}),
        build(trees, **{f"k{at}": 2 for at in range(9)}, new=1),
    )
    before = {meta.key for meta in trees.store.list()}
    with pytest.raises(
        MergeConflict, match=r"'k0', 'k1', 'k2', 'k3', 'k4' and 4 more: choose strategy='ours' or 'theirs'"
    ) as raised:
        trees.merge(base, ours, theirs)
    assert {meta.key for meta in trees.store.list()} == before
    assert pickle.loads(pickle.dumps(raised.value)).keys == raised.value.keys


def test_conflicts_are_settled_by_a_function() -> None:
    trees = graveler()
    base, ours, theirs = build(trees, a=0, b=0, c=0), build(trees, a=1, b=1, c=0), build(trees, a=2, c=2)
    conflicts = []

    def resolve(key: bytes, base: Record | None, ours: Record | None, theirs: Record | None) -> Record | None:
        conflicts.append((key, base is None, ours is None, theirs is None))
        return record(key, "both") if theirs else None

    merged = trees.merge(base, ours, theirs, resolve=resolve)
    assert contents(trees, merged.tree) == {"a": "both", "c": "2"}
    assert merged.conflicts == (b"a", b"b")
    assert conflicts == [(b"a", False, False, False), (b"b", False, False, True)]


def test_what_theirs_changed_with_what_stands_in_the_target() -> None:
    trees = graveler()
    base, theirs, target = build(trees, a=0, b=0, c=0), build(trees, a=1, c=0, d=1), build(trees, a=2, b=0)
    changes = trees.changes(base, theirs, target)
    actual = [
        (change.key, *(record and Entry.decode(record.value).etag for record in change[1:])) for change in changes
    ]
    assert actual == [(b"a", "0", "1", "2"), (b"b", "0", None, "0"), (b"d", None, "1", None)]


def test_merges_without_work() -> None:
    trees = graveler()
    base, other = build(trees, a=0), build(trees, a=1)
    assert trees.merge(base, base, other).tree == other
    assert trees.merge(base, other, base).tree == other
    assert trees.merge(base, other, other).tree == other
    assert trees.merge("", "", other).tree == other
    assert trees.merge(base, "", base).tree == ""


def test_deleting_what_ends_a_range_joins_it_with_the_next() -> None:
    profile = Profile(0, 1 << 30, 10)
    trees = graveler(profile)
    keys = [b"%04d" % at for at in range(300)]
    breakers = [key for key, hashed in zip(keys, fnv64a(keys).tolist(), strict=True) if hashed % 10 == 0]
    model = {key: record(key, 1) for key in keys}
    tree = tree_of(trees, model)
    ends = [info.max_key for info in trees.ranges(tree)]
    assert ends == sorted({*breakers, keys[-1]})
    built = trees.build(tree, [(breakers[3], None)])
    assert [info.max_key for info in trees.ranges(built.tree)] == [end for end in ends if end != breakers[3]]
    assert len(built.written) == 2
    assert built.reused == len(ends) - 2


def test_a_range_that_is_full_ends_and_ranges_meet_again() -> None:
    """Ends by size move when something is put in before them, up to the next key that ends a range by itself."""
    trees = graveler(Profile(0, 900, 40))
    keys = [b"%04d" % at for at in range(400)]
    model = {key: record(key, 1) for key in keys}
    tree = tree_of(trees, model)
    key = b"0001x"
    built = trees.build(tree, [(key, record(key, 1))])
    assert 2 < len(built.written) < len(trees.ranges(tree)) / 2
    assert built.tree == tree_of(trees, {**model, key: record(key, 1)})


@dataclass
class Counting(MemoryStore):
    """A store that remembers which keys were read."""

    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        self.read.append(key.removeprefix("_lakefs/"))
        return super()._get(key, start, end)


def many(count: int) -> dict[bytes, Record]:
    keys = [b"t%d/day=%03d/%05d" % (at % 3, at // 30, at) for at in range(count)]
    return {key: record(key, 1) for key in sorted(keys)}


def cold(store: Counting, profile: Profile = TINY) -> Graveler:
    store.read.clear()
    return Graveler(store, profile=profile)


def test_only_ranges_that_can_matter_are_read() -> None:
    store = Counting()
    model = many(2000)
    tree = tree_of(Graveler(store, profile=TINY), model)
    infos = list(cold(store).ranges(tree))
    assert len(infos) > 100
    assert store.read == [tree]

    def reading(prefix: bytes) -> set[str]:
        return {
            info.id
            for info in infos
            if info.max_key >= prefix and info.min_key < prefix[:-1] + bytes((prefix[-1] + 1,))
        }

    trees = cold(store)
    assert len(list(trees.scan(tree, b"t1/day=01"))) == 100
    assert set(store.read) <= {tree} | reading(b"t1/day=01")
    trees = cold(store)
    assert list(trees.list(tree, delimiter=b"/")) == [b"t0/", b"t1/", b"t2/"]
    assert len(store.read) <= 5, "a listing skips whole prefixes"
    trees = cold(store)
    assert trees.get(tree, b"t1/day=010/00300x") is None
    assert trees.get(tree, b"t9") is None
    assert len(store.read) == 2
    trees = cold(store)
    key = b"t1/day=010/00301"
    built = trees.build(tree, [(key, record(key, 2))])
    assert built.changed == 1
    assert len(store.read) <= 4
    assert len(built.written) <= 4
    trees = cold(store)
    assert len(list(trees.diff(tree, built.tree))) == 1
    assert len(store.read) <= 2 + 2 * 4
    trees = cold(store)
    list(trees.diff(tree, built.tree, prefix=b"t2/"))
    assert store.read == [tree, built.tree]
    trees = cold(store)
    assert trees.build(tree, [(key, model[key]), (b"t1/nothing", None), (b"z", None)]).tree == tree
    assert trees.build(tree, []).written == ()


def test_a_change_to_what_stands_there_already_is_none() -> None:
    """Another address of the same content: the record that stands there is kept."""
    trees = graveler()
    tree = build(trees, a=1, b=2)
    built = trees.build(tree, [(b"a", record(b"a", 1, address="elsewhere"))])
    assert (built.tree, built.written, built.changed) == (tree, (), 0)
    built = trees.build(tree, [(b"a", record(b"a", 1, address="elsewhere")), (b"b", None)])
    assert Entry.decode(trees.get(built.tree, b"a").value).address == "data/1"


@pytest.mark.parametrize(
    "changes",
    [
        [(b"b", None), (b"a", None)],
        [(b"a", None), (b"a", None)],
        [(b"a", record(b"a", 1)), (b"a", None)],
        [(b"a", record(b"b", 1))],
    ],
)
def test_changes_out_of_order_are_refused(changes: Iterable[tuple[bytes, Record | None]]) -> None:
    trees = graveler()
    with pytest.raises(ValueError, match=r"sorted by key|is given as the change of"):
        trees.build(build(trees, a=1), changes)


def test_names_that_are_to_be_avoided() -> None:
    """Somebody is deleting a range that nothing names; a build that would write it again gives it another name."""
    trees = graveler(Profile(0, 1 << 20, 20))
    keys = [b"%04d" % at for at in range(200)]
    model = {key: record(key, 1) for key in keys}
    tree = tree_of(trees, model)
    pending = trees.names(tree)
    built = trees.build("", sorted(model.items()), avoid=pending.__contains__)
    assert not trees.names(built.tree) & pending
    assert list(trees.scan(built.tree)) == list(trees.scan(tree))
    assert list(trees.diff(tree, built.tree)) == []
    again = trees.build("", sorted(model.items()), avoid=(pending | trees.names(built.tree)).__contains__)
    assert not trees.names(again.tree) & (pending | trees.names(built.tree))
    # Ranges that are taken over keep their names.
    changed = trees.build(tree, [(keys[5], record(keys[5], 2))], avoid=lambda name: name in pending)
    assert len(trees.names(changed.tree) & pending) == len(trees.ranges(tree)) - 1
    properties = Table(trees.reader.data(again.written[0])).properties
    assert properties["generation"] == "2"


class Far(MemoryStore):
    """A store that seems to be far away, and dies when it is told to."""

    fails = False

    def url(self, key: str = "") -> str:
        return super().url(key).replace("memory://", "s3://")

    def _put(self, key: str, *arguments: Any) -> ObjectMeta:
        if self.fails and len(list(self.list())) >= 5:
            raise StoreUnavailable("gone", key=key)
        return super()._put(key, *arguments)


def test_ranges_are_put_side_by_side_and_the_metarange_last(tmp_path: Path) -> None:
    model = many(1000)
    expected = tree_of(graveler(), model)
    store = Far()
    trees = Graveler(store, profile=TINY, cache=RangeCache(tmp_path))
    assert trees.build("", sorted(model.items())).tree == expected
    assert trees.names(expected) == {meta.key.removeprefix("_lakefs/") for meta in store.list()}
    store = Far()
    store.fails = True
    with pytest.raises(StoreUnavailable):
        Graveler(store, profile=TINY, cache=RangeCache(tmp_path)).build("", sorted(model.items()))
    assert not store.exists(f"_lakefs/{expected}")


def test_only_stores_far_away_get_a_cache_by_themselves() -> None:
    assert Graveler(Far()).reader.cache is not None
    assert Graveler(MemoryStore()).reader.cache is None


def test_a_tree_that_is_gone() -> None:
    trees = graveler()
    tree = build(trees, a=1)
    trees.store.delete([f"_lakefs/{info.id}" for info in trees.ranges(tree)])
    fresh = Graveler(trees.store)
    with pytest.raises(NotFound):
        fresh.get(tree, b"a")
    with pytest.raises(NotFound):
        fresh.ranges("0" * 64)


def test_the_empty_tree() -> None:
    trees = graveler()
    assert trees.build("", []).tree == ""
    assert trees.get("", b"a") is None
    assert trees.get_many("", [b"a"]) == [None]
    assert list(trees.scan("")) == list(trees.list("", delimiter=b"/")) == list(trees.diff("", "")) == []
    assert len(trees.ranges("")) == 0
    assert trees.names("") == set()
    tree = build(trees, a=1)
    assert trees.build(tree, [(b"a", None)]).tree == ""


def test_local_stores_need_no_cache_and_handles_travel(tmp_path: Path) -> None:
    trees = Graveler(LocalStore(str(tmp_path / "lake")), folder="meta")
    tree = build(trees, a=1)
    assert trees.reader.cache is None
    assert trees.store.exists(f"meta/{tree}")
    copy = pickle.loads(pickle.dumps(trees))
    assert contents(copy, tree) == {"a": "1"}
    assert copy.profile == SMALL_RANGES
    cached = Graveler(trees.store, cache=RangeCache(tmp_path / "cache", max_bytes=1000), folder="meta")
    copy = pickle.loads(pickle.dumps(cached))
    assert copy.reader.cache.folder == tmp_path / "cache"
    assert copy.reader.cache.max_bytes == 1000


def test_profiles_that_make_no_ranges_are_refused() -> None:
    for wrong in ((-1, 10, 1), (0, 0, 1), (0, 10, 0)):
        with pytest.raises(ValueError, match="is not valid"):
            Profile(*wrong)


class _Metered(MemoryStore):
    """A store that counts the bytes that are read from it."""

    read_bytes = 0

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        data = super()._get(key, start, end)
        self.read_bytes += len(data)
        return data


def _wide_tree(store: MemoryStore) -> tuple[Profile, str, list[bytes]]:
    """Build a tree of 40 ranges or so, each larger than the memory of `_narrow`."""
    profile = Profile(0, 64 << 10, 1000)
    names = [b"%06d" % number for number in range(10_000)]
    records = [Record(name, sha256(name).digest(), sha256(name).digest() * 4) for name in names]
    built = Graveler(store, profile=profile).build("", [(record.key, record) for record in records])
    assert len(built.written) > 20
    return profile, built.tree, names


def test_look_ups_in_trees_that_do_not_fit_the_memory_read_single_blocks() -> None:
    store = _Metered()
    profile, tree, names = _wide_tree(store)
    trees = Graveler(store, profile=profile, memory_bytes=256 << 10)
    for name in names[::100]:
        assert trees.get(tree, name) is not None
    store.read_bytes = 0
    random = Random(5)
    for _ in range(300):
        name = random.choice(names)
        record = trees.get(tree, name)
        assert record is not None
        assert record.identity == sha256(name).digest()
        assert trees.get(tree, name + b"x") is None
    assert store.read_bytes < 600 * 6000
    store.read_bytes = 0
    assert None not in trees.get_many(tree, random.sample(names, 200))
    assert store.read_bytes < 200 * 6000


def test_a_damaged_block_of_a_cached_file_is_fetched_again(tmp_path: Path) -> None:
    store = MemoryStore()
    profile, tree, names = _wide_tree(store)
    cache = RangeCache(tmp_path)
    trees = Graveler(store, profile=profile, cache=cache, memory_bytes=256 << 10)
    for name in names[::100]:
        assert trees.get(tree, name) is not None
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.write_bytes(bytes(100) + file.read_bytes()[100:])
    for name in names[::100]:
        assert trees.get(tree, name) is not None
