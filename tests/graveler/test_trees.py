"""Trees against plain dicts, and the promise that a tree's name depends on its content alone."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake_core.graveler import SMALL_RANGES, Graveler, MergeConflict, Profile, Record
from tests.examples import examples
from tests.graveler.records import TINY, Model, applied, differing, graveler, record, tree_of

CASES = examples(200)
MANY = 10_000

ODD_KEYS = st.sampled_from([b"", b"a/", b"a/b", b"a/b/c", b"\xff", b"\xff\xff", b"k", b"k\0"])
KEYS = st.integers(0, 80).map(lambda number: b"k%02d" % number) | ODD_KEYS
CHANGES = st.dictionaries(KEYS, st.none() | st.integers(0, 3), max_size=40)
"""Keys to contents; None removes. Few contents, so that equal ones meet."""

HISTORIES = st.lists(CHANGES, min_size=1, max_size=5)
PROFILES = st.sampled_from([TINY, Profile(0, 1 << 20, 4), Profile(0, 500, 1 << 40), Profile(300, 600, 2), SMALL_RANGES])


def changes_of(plain: Mapping[bytes, int | None], address: str = "") -> dict[bytes, Record | None]:
    return {key: None if content is None else record(key, content, address) for key, content in plain.items()}


def check_history(history: list[dict[bytes, int | None]], profile: Profile) -> None:
    """Check that a tree built by any history equals the one built at once: nothing is lost or counted wrong."""
    trees = graveler(profile)
    tree, model = "", Model()
    for step in history:
        changes = changes_of(step)
        after = applied(model, changes)
        built = trees.build(tree, sorted(changes.items()))
        assert list(trees.scan(built.tree)) == [after[key] for key in sorted(after)]
        assert built.tree == tree_of(graveler(profile), after)
        differences = differing(model, after)
        assert [tuple(difference) for difference in trees.diff(tree, built.tree)] == differences
        assert [tuple(difference) for difference in trees.diff(built.tree, tree)] == [
            (key, new, old) for key, old, new in differences
        ]
        kinds = [(old is None, new is None) for _, old, new in differences]
        assert built.added == kinds.count((True, False))
        assert built.removed == kinds.count((False, True))
        assert built.changed == kinds.count((False, False))
        assert (built.tree == tree) == (not differences)
        keys = [*after, b"absent", b"k00", b"zzz"]
        assert (
            trees.get_many(built.tree, keys)
            == [after.get(key) for key in keys]
            == [trees.get(built.tree, key) for key in keys]
        )
        infos = trees.ranges(built.tree)
        assert sum(info.count for info in infos) == len(after)
        assert trees.names(built.tree) == ({built.tree, *(info.id for info in infos)} if after else set())
        tree, model = built.tree, after


def check_merge(
    base: dict[bytes, int | None], ours: dict[bytes, int | None], theirs: dict[bytes, int | None], profile: Profile
) -> None:
    """As key by key: one side's change is taken, two different ones are a conflict."""
    trees = graveler(profile)
    at_base = applied({}, changes_of(base))
    at_ours, at_theirs = applied(at_base, changes_of(ours, "ours")), applied(at_base, changes_of(theirs, "theirs"))
    names = [tree_of(trees, model) for model in (at_base, at_ours, at_theirs)]

    def identity(model: Model, key: bytes) -> bytes | None:
        return model[key].identity if key in model else None

    merged, conflicts = dict(at_ours), []
    for key, _, theirs_record in differing(at_base, at_theirs):
        if identity(at_ours, key) == identity(at_theirs, key):
            continue
        if identity(at_ours, key) != identity(at_base, key):
            conflicts.append(key)
        elif theirs_record is None:
            merged.pop(key)
        else:
            merged[key] = theirs_record
    if conflicts:
        with pytest.raises(MergeConflict) as raised:
            trees.merge(*names)
        assert raised.value.keys == tuple(conflicts)
        ours_win = trees.merge(*names, strategy="ours")
        assert ours_win.conflicts == tuple(conflicts)
        assert same_content(trees, ours_win.tree, merged)
        for key in conflicts:
            merged.pop(key, None)
            if key in at_theirs:
                merged[key] = at_theirs[key]
        assert same_content(trees, trees.merge(*names, strategy="theirs").tree, merged)
        resolved = trees.merge(*names, resolve=lambda key, base, ours, theirs: theirs)
        assert same_content(trees, resolved.tree, merged)
    else:
        result = trees.merge(*names)
        assert result.conflicts == ()
        assert same_content(trees, result.tree, merged)


def same_content(trees: Graveler, tree: str, model: Model) -> bool:
    return [(key, identity) for key, identity, _ in trees.scan(tree)] == [
        (key, model[key].identity) for key in sorted(model)
    ]


@settings(max_examples=CASES)
@given(HISTORIES, PROFILES)
def test_any_history(history: list[dict[bytes, int | None]], profile: Profile) -> None:
    check_history(history, profile)


@pytest.mark.histories
@pytest.mark.timeout(1800)
@settings(max_examples=MANY)
@given(HISTORIES, PROFILES)
def test_any_history_at_length(history: list[dict[bytes, int | None]], profile: Profile) -> None:
    check_history(history, profile)


@settings(max_examples=CASES)
@given(CHANGES, CHANGES, CHANGES, PROFILES)
def test_any_merge(
    base: dict[bytes, int | None], ours: dict[bytes, int | None], theirs: dict[bytes, int | None], profile: Profile
) -> None:
    check_merge(base, ours, theirs, profile)


@pytest.mark.histories
@pytest.mark.timeout(1800)
@settings(max_examples=MANY)
@given(CHANGES, CHANGES, CHANGES, PROFILES)
def test_any_merge_at_length(
    base: dict[bytes, int | None], ours: dict[bytes, int | None], theirs: dict[bytes, int | None], profile: Profile
) -> None:
    check_merge(base, ours, theirs, profile)


def rolled_up(model: Model, prefix: bytes, start_after: bytes, delimiter: bytes) -> list[Record | bytes]:
    """Return what a listing gives by definition."""
    out: list[Record | bytes] = []
    for key in sorted(model):
        if not key.startswith(prefix):
            continue
        position = key.find(delimiter, len(prefix)) if delimiter else -1
        shown = model[key] if position < 0 else key[: position + len(delimiter)]
        if (not start_after or (key if position < 0 else shown) > start_after) and (not out or out[-1] != shown):
            out.append(shown)
    return out


DELIMITERS = st.sampled_from([b"", b"/", b"//", b"\xff", b"a/"])
PATHS = st.lists(st.sampled_from([b"a", b"b", b"/", b"//", b"\xff", b"c"]), max_size=6).map(b"".join)


@settings(max_examples=CASES)
@given(st.sets(PATHS, max_size=60), PATHS, PATHS, DELIMITERS, st.sampled_from([TINY, Profile(0, 200, 1)]))
def test_any_listing(keys: set[bytes], prefix: bytes, start_after: bytes, delimiter: bytes, profile: Profile) -> None:
    trees = graveler(profile)
    model = {key: record(key, 1) for key in keys}
    tree = tree_of(trees, model)
    assert list(trees.list(tree, prefix, start_after, delimiter)) == rolled_up(model, prefix, start_after, delimiter)
    assert list(trees.scan(tree, prefix, start_after)) == rolled_up(model, prefix, start_after, b"")
    other = tree_of(trees, {key: record(key, len(key)) for key in keys if len(key) != 2})
    actual = [tuple(difference) for difference in trees.diff(tree, other, prefix)]
    assert actual == [tuple(difference) for difference in trees.diff(tree, other) if difference.key.startswith(prefix)]


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(4))
def test_long_histories_of_larger_trees(seed: int) -> None:
    """Hundreds of ranges, changed in runs and in scattered places, appended to, cut, and emptied."""
    rng = random.Random(seed)
    profile = Profile(1_000, 12_000, 30)
    trees = graveler(profile)
    tree, model = "", Model()
    for step in range(12):
        changes: dict[bytes, Record | None] = {}
        if step % 4 == 3:
            begin = rng.randrange(5000)
            changes = {key: None for key in model if b"%05d" % begin <= key < b"%05d" % (begin + 1500)}
        else:
            numbers = [rng.randrange(9000) for _ in range(rng.choice((1, 20, 1500)))]
            changes = {b"%05d" % number: record(b"%05d" % number, rng.random()) for number in numbers}
        built = trees.build(tree, sorted(changes.items()))
        after = applied(model, changes)
        assert built.tree == tree_of(graveler(profile), after)
        assert [tuple(difference) for difference in trees.diff(tree, built.tree)] == differing(model, after)
        tree, model = built.tree, after
    assert trees.build(tree, [(key, None) for key in sorted(model)]).tree == ""


def test_the_default_profile_makes_ranges_of_about_five_thousand_records() -> None:
    trees = graveler(SMALL_RANGES)
    keys = [b"tables/t/day=%03d/part-%09d.parquet" % (at // 500, at) for at in range(60_000)]
    model = {key: record(key, at, address="x" * 90) for at, key in enumerate(keys)}
    tree = tree_of(trees, model)
    counts = [info.count for info in trees.ranges(tree)]
    assert sum(counts) == 60_000
    assert 3_000 < sum(counts) / len(counts) < 8_000
    before = trees.names(tree)
    key = keys[30_000]
    built = trees.build(tree, [(key, record(key, "new"))])
    assert len(trees.names(built.tree) - before) <= 4
    assert len(built.written) == len(trees.names(built.tree) - before)
    assert built.reused == len(counts) - (len(built.written) - 1)
