"""What a publish, a revert and a cherry-pick would do is what they then do, and looking writes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from lake_core import Lake
from lake_core.lake.errors import (
    Conflict,
    LakeError,
    NothingToApply,
    ProtectedBranch,
    RefExists,
    SessionClosed,
    UnexpectedHead,
)
from lake_core.lake.publish.preview import ChangePreview
from lake_core.lake.publish.published import Published
from lake_core.lake.session.shared_session import SharedSession
from lake_core.lake.session.write_session import WriteSession
from lake_core.store import MemoryStore
from lake_core.store.read_only import ReadOnlyStore
from lake_core.testing.manual_clock import ManualClock
from tests.examples import some_of
from tests.lake.id_datasets import PATH, Pool, Table

Operation = Callable[[WriteSession], object]


@pytest.fixture(params=[Table, Pool], ids=["table", "pool"])
def dataset(request: pytest.FixtureRequest) -> Table | Pool:
    dataset: Table | Pool = request.param()
    return dataset


@pytest.fixture
def lake(empty: Lake, dataset: Table | Pool) -> Lake:
    """A lake whose dataset has the ids 1 to 4 in two files."""
    with empty.session() as s:
        dataset.create(s)
        dataset.add(s, 1, 2)
    with empty.session() as s:
        dataset.add(s, 3, 4)
    return empty


def do(lake: Lake, *operations: Operation, branch: str = "main") -> str:
    """Do operations in a session, and return the commit."""
    with lake.session(branch) as s:
        for operation in operations:
            operation(s)
    return lake.list_branches()[branch]


def shared(lake: Lake, operation: Operation) -> SharedSession:
    """Do an operation in a shared session that is not published."""
    session = lake.open_session()
    with session.join() as writer:
        operation(writer)
    return session


def keys(store: MemoryStore) -> object:
    return [(meta.key, meta.etag) for meta in store.list("")]


def check_same(lake: Lake, preview: ChangePreview, published: Published, before: str) -> None:
    """Check that what was done is what was said."""
    versions = {path: update.version for path, update in preview.datasets.items() if update.version is not None}
    assert published.versions == versions
    difference = {change.key for change in lake.diff(before, published.commit) if not change.key.startswith(PATH)}
    assert difference == set(preview.keys)


def changes(dataset: Table | Pool) -> dict[str, Operation]:
    """Return operations of all kinds: on the dataset, on files, on both, and on nothing."""
    return {
        "adds": lambda s: dataset.add(s, 8),
        "deletes": lambda s: dataset.delete(s, 1),
        "puts": lambda s: s.put("f", b"here"),
        "both": lambda s: (dataset.delete(s, 2), s.put("g", b"here")),
        "drops": lambda s: s.drop(PATH),
        "creates again": lambda s: (s.drop(PATH), dataset.create(s), dataset.add(s, 9)),
        "compacts": dataset.compact,
    }


NAMES = ("adds", "deletes", "puts", "both", "drops", "creates again", "compacts")


@pytest.mark.parametrize("theirs", NAMES)
@pytest.mark.parametrize("ours", NAMES)
@pytest.mark.sampled(8)
def test_a_publish_does_what_its_preview_said(
    lake: Lake, store: MemoryStore, dataset: Table | Pool, ours: str, theirs: str
) -> None:
    session = shared(lake, changes(dataset)[ours])
    before = do(lake, changes(dataset)[theirs])
    written = keys(store)
    try:
        preview = session.preview_publish()
    except LakeError as error:
        assert keys(store) == written
        assert session.record.state == "open", "a preview fails no session"
        with pytest.raises(type(error)):
            session.publish()
        return
    assert keys(store) == written
    assert preview.commit == before
    published = session.publish(expected_head=before)
    assert preview.undone == published.undone
    if not published.undone:
        check_same(lake, preview, published, before)


@pytest.mark.parametrize("later", [*NAMES, None])
@pytest.mark.parametrize("undone", NAMES)
@pytest.mark.sampled(8)
def test_a_revert_does_what_its_preview_said(
    lake: Lake, store: MemoryStore, dataset: Table | Pool, undone: str, later: str | None
) -> None:
    commit = do(lake, changes(dataset)[undone])
    if later is not None and not (undone == "drops" and later != "puts"):
        do(lake, changes(dataset)[later])
    before, written = lake.list_branches()["main"], keys(store)
    try:
        preview = lake.preview_revert(commit)
    except (Conflict, NothingToApply) as error:
        assert keys(store) == written
        with pytest.raises(type(error)):
            lake.revert(commit)
        return
    assert keys(store) == written
    assert (preview.commit, preview.base) == (before, commit)
    check_same(lake, preview, lake.revert(commit, expected_head=before), before)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    some_of(itertools.product(NAMES, repeat=2), set(itertools.combinations_with_replacement(NAMES, 2)).__contains__),
)
def test_a_cherry_pick_does_what_its_preview_said(
    lake: Lake, store: MemoryStore, dataset: Table | Pool, ours: str, theirs: str
) -> None:
    lake.create_branch("dev")
    commit = do(lake, changes(dataset)[ours], branch="dev")
    before = do(lake, changes(dataset)[theirs])
    written = keys(store)
    try:
        preview = lake.preview_cherry_pick(commit, onto="main")
    except (Conflict, NothingToApply) as error:
        assert keys(store) == written
        with pytest.raises(type(error)):
            lake.cherry_pick(commit, onto="main")
        return
    assert keys(store) == written
    assert (preview.commit, preview.incoming) == (before, commit)
    check_same(lake, preview, lake.cherry_pick(commit, onto="main", expected_head=before), before)


@pytest.mark.parametrize("theirs", NAMES)
def test_a_merge_of_what_was_picked_in_part_does_what_its_preview_said(
    lake: Lake, store: MemoryStore, time: ManualClock, dataset: Table | Pool, theirs: str
) -> None:
    """The preview needs a store that can only be read."""
    lake.create_branch("dev")
    do(lake, lambda s: (dataset.delete(s, 2), s.put("g", b"here")), branch="dev")
    picked = do(lake, lambda s: dataset.add(s, 7), branch="dev")
    lake.cherry_pick(picked, onto="main")
    before, written = do(lake, changes(dataset)[theirs]), keys(store)
    try:
        preview = Lake.open(ReadOnlyStore(store), clock=time).preview_merge("dev")
    except Conflict:
        assert keys(store) == written
        with pytest.raises(Conflict):
            lake.merge("dev")
        return
    assert keys(store) == written
    check_same(lake, preview, lake.merge("dev", expected_head=before), before)


def test_a_publish_that_undoes_a_compaction_expects_the_head_that_it_moves_itself(
    lake: Lake, dataset: Table | Pool
) -> None:
    session = shared(lake, lambda s: dataset.delete(s, 1))
    compaction = do(lake, dataset.compact)
    assert session.preview_publish().undone == (compaction,)
    published = session.publish(expected_head=compaction)
    assert published.undone == (compaction,)
    assert dataset.ids(lake) == [2, 3, 4]


@pytest.mark.parametrize("verb", ["publish", "revert", "cherry_pick"])
def test_nothing_is_done_on_another_head_than_the_expected_one(lake: Lake, dataset: Table | Pool, verb: str) -> None:
    lake.create_branch("dev")
    picked = do(lake, lambda s: s.put("picked", b""), branch="dev")
    session = shared(lake, lambda s: dataset.add(s, 8))
    seen = lake.list_branches()["main"]
    head = do(lake, lambda s: s.put("unseen", b""))
    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: session.publish(expected_head=seen),
        "revert": lambda: lake.revert(seen, expected_head=seen),
        "cherry_pick": lambda: lake.cherry_pick(picked, onto="main", expected_head=seen),
    }
    with pytest.raises(UnexpectedHead):
        calls[verb]()
    assert lake.list_branches()["main"] == head
    assert session.record.state == "open"


def test_a_protected_branch_refuses_all_but_merges_in_a_preview_too(lake: Lake, dataset: Table | Pool) -> None:
    commit = lake.list_branches()["main"]
    lake.create_branch("dev")
    picked = do(lake, lambda s: s.put("picked", b""), branch="dev")
    session = shared(lake, lambda s: dataset.add(s, 8))
    lake.settings.protect("main")
    with pytest.raises(ProtectedBranch):
        session.preview_publish()
    with pytest.raises(ProtectedBranch):
        lake.preview_revert(commit)
    with pytest.raises(ProtectedBranch):
        lake.preview_cherry_pick(picked, onto="main")
    assert lake.preview_merge("dev").keys == {"picked": "put"}


def test_a_session_that_has_expired_has_no_preview_and_no_new_entry(
    lake: Lake, store: MemoryStore, time: ManualClock, dataset: Table | Pool
) -> None:
    session = shared(lake, lambda s: dataset.add(s, 8))
    time.pass_days(2)
    written = keys(store)
    with pytest.raises(SessionClosed, match="has expired"):
        session.preview_publish()
    assert keys(store) == written


def test_a_fork_of_another_tree_than_the_expected_one_is_refused(lake: Lake, dataset: Table | Pool) -> None:
    session = shared(lake, lambda s: dataset.add(s, 8))
    seen = lake.get_session(session.id).record.tree
    forked = session.fork(expected_tree=seen)
    with session.join() as writer:
        writer.put("unseen", b"")
    with pytest.raises(UnexpectedHead):
        session.fork(expected_tree=seen)
    assert {each.id for each in lake.list_sessions()} == {session.id, forked.id}


def test_a_fork_of_an_id_that_exists_is_refused(lake: Lake, dataset: Table | Pool) -> None:
    session = shared(lake, lambda s: dataset.add(s, 8))
    forked = session.fork(id="again")
    assert forked.id == "again"
    with pytest.raises(RefExists):
        session.fork(id="again")
    assert lake.get_session("again").record.epoch == 1


def test_a_session_whose_time_is_over_is_not_forked(lake: Lake, time: ManualClock, dataset: Table | Pool) -> None:
    session = shared(lake, lambda s: dataset.add(s, 8))
    time.pass_days(2)
    with pytest.raises(SessionClosed, match="has expired"):
        session.fork()
