"""Moved nodes and amended commits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import zarr

from lake_core.icechunk import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictType,
    RebaseFailedError,
    Repository,
    SessionMode,
    UpdateType,
)
from lake_core.icechunk.errors import (
    ConflictError,
    InvalidAmend,
    InvalidMove,
    NoChangesToCommit,
    SnapshotNotFound,
    WrongSessionMode,
)
from lake_core.store import MemoryStore
from tests.icechunk.operations import state
from tests.icechunk.version_2 import ROOT, new_repository, with_arrays, write


def test_an_amended_commit_has_both_changes_and_the_parent_of_the_replaced_one() -> None:
    repository = new_repository()
    base = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 7
    replaced = session.commit("first try", {"try": 1})
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="b")[1] = 8
    amended = session.amend("second try", metadata={"try": 2})
    assert [(info.id, info.message, info.metadata) for info in repository.ancestry(branch="main")][:2] == [
        (amended, "second try", {"try": 2}),
        (base, "base", {}),
    ]
    assert repository.diff(from_snapshot_id=base, to_snapshot_id=amended).updated_chunks == {"/a": [[0]], "/b": [[1]]}
    assert repository.lookup_snapshot(replaced).message == "first try"
    kind = next(repository.ops_log()).kind
    assert kind == UpdateType.CommitAmended("main", replaced, amended)  # type: ignore[attr-defined]
    repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(SnapshotNotFound):
        repository.lookup_snapshot(replaced)
    values = state(repository.readonly_session("main"))
    assert (values["/a"]["values"][0], values["/b"]["values"][1]) == (7, 8)


def test_what_cannot_be_amended() -> None:
    repository = new_repository()
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    with pytest.raises(InvalidAmend):
        session.amend("x")
    with_arrays(repository)
    session = repository.writable_session("main")
    with pytest.raises(NoChangesToCommit):
        session.amend("x")
    zarr.create_group(session.store, path="n")
    write(repository, 1)
    with pytest.raises(ConflictError):
        session.amend("x")
    moving = repository.rearrange_session("main")
    moving.move("/a", "/m")
    moving.commit("moved")
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    with pytest.raises(WrongSessionMode):
        session.amend("x")


def test_an_empty_commit_is_allowed_where_it_is_asked_for() -> None:
    repository = new_repository()
    session = repository.writable_session("main")
    with pytest.raises(NoChangesToCommit):
        session.commit("nothing")
    session.commit("nothing", allow_empty=True)
    assert repository.diff(from_snapshot_id=ROOT, to_branch="main").is_empty()


def test_a_flushed_snapshot_is_listed_until_it_is_collected() -> None:
    repository = new_repository()
    base = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 7
    flushed = session.flush("detached", {"k": 1})
    assert repository.lookup_snapshot(flushed).parent_id == base
    repository.garbage_collect(datetime.now(UTC) - timedelta(hours=1))
    repository.create_branch("kept", flushed)
    assert state(repository.readonly_session("kept"))["/a"]["values"][0] == 7
    repository.delete_branch("kept")
    summary = repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert (summary.snapshots_deleted, summary.transaction_logs_deleted) == (1, 1)
    with pytest.raises(SnapshotNotFound):
        repository.lookup_snapshot(flushed)


def test_rewritten_manifests_may_take_the_place_of_the_newest_commit() -> None:
    repository = Repository.open_or_create(MemoryStore(), create_version=2)
    base = with_arrays(repository)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 7
    session.commit("write")
    tip = repository.rewrite_manifests("rewritten", branch="main", commit_method="amend")
    assert [info.id for info in repository.ancestry(branch="main")] == [tip, base, ROOT]
    assert repository.diff(from_snapshot_id=base, to_snapshot_id=tip).updated_chunks == {"/a": [[0]]}
    assert state(repository.readonly_session("main"))["/a"]["values"] == [7, 1, 2, 3]


def moved(repository: Repository, *moves: tuple[str, str]) -> str:
    session = repository.rearrange_session("main")
    for old, new in moves:
        session.move(old, new)
    return session.commit("moved")


def test_moves_keep_ids_and_values() -> None:
    repository = new_repository()
    base = with_arrays(repository)
    before = repository.readonly_session("main")
    tip = moved(repository, ("/g", "/h"), ("/a", "/h/a"), ("/b", "/t"), ("/h/x", "/b"), ("/t", "/h/x"))
    after = repository.readonly_session("main")
    assert {path: after.get_node_id(path) for path in after.node_paths()} == {
        new: before.get_node_id(old)
        for old, new in {
            **{"/": "/", "/g": "/h", "/g/sub": "/h/sub"},
            **{"/a": "/h/a", "/b": "/h/x", "/g/x": "/b"},
        }.items()
    }
    assert state(after)["/h/x"]["values"] == [0, 1]
    assert state(after)["/b"]["values"] == [0, 1, 2, 3]
    difference = repository.diff(from_snapshot_id=base, to_snapshot_id=tip)
    assert difference.moved_nodes == [
        ("/g/x", "/b"),
        ("/g", "/h"),
        ("/a", "/h/a"),
        ("/g/sub", "/h/sub"),
        ("/b", "/h/x"),
    ]
    assert replace(difference, moved_nodes=[]).is_empty()
    manifests = {
        path: node.manifests
        for path, node in repository.assets.snapshot(after._base_id).nodes.items()
        if hasattr(node, "manifests")
    }
    assert manifests["/h/a"] == before.array("/a").manifests


def test_a_session_reads_what_it_has_moved() -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.rearrange_session("main")
    assert session.mode is SessionMode.rearrange
    session.move("/g", "/h")
    assert session.node("/g") is None
    assert state(session)["/h/x"]["values"] == [0, 1, 2, 3]
    assert session.status().moved_nodes == [("/g", "/h"), ("/g/sub", "/h/sub"), ("/g/x", "/h/x")]
    with pytest.raises(WrongSessionMode):
        zarr.create_group(session.store, path="new")
    session.move("/h", "/g")
    assert session.status().is_empty()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("/missing", "/m"), ("/g", "/g"), ("/g", "/g/sub/g"), ("/a", "/b"), ("/a", "/missing/a"), ("/", "/r")),
        ("/b", "/a/b"),
    ],
)
def test_moves_that_are_refused(old: str, new: str) -> None:
    repository = new_repository()
    with_arrays(repository)
    with pytest.raises(InvalidMove):
        repository.rearrange_session("main").move(old, new)


def test_writable_sessions_do_not_move() -> None:
    repository = new_repository()
    with_arrays(repository)
    with pytest.raises(WrongSessionMode):
        repository.writable_session("main").move("/a", "/m")


def test_nothing_is_rebased_over_moves() -> None:
    repository = new_repository()
    with_arrays(repository)
    session, other = repository.writable_session("main"), repository.rearrange_session("main")
    zarr.open_array(session.store, path="b")[0] = 1
    other.move("/b", "/c")
    moved(repository, ("/a", "/m"))
    for late in (session, other):
        with pytest.raises(RebaseFailedError) as raised:
            late.commit("late", rebase_with=BasicConflictSolver())
        (conflict,) = raised.value.conflicts
        assert (conflict.conflict_type, conflict.path) == (ConflictType.MoveOperationCannotBeRebased, "")


def test_moves_are_rebased_over_writes() -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.rearrange_session("main")
    session.move("/g", "/h")
    other = repository.writable_session("main")
    zarr.open_array(other.store, path="g/x")[0] = 55
    zarr.create_group(other.store, path="g/new")
    other.commit("theirs")
    session.commit("moved", rebase_with=ConflictDetector())
    after = state(repository.readonly_session("main"))
    assert after["/h/x"]["values"][0] == 55
    assert "/h/new" in after
    assert "/g" not in after


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("create /m", ConflictType.NewNodeConflictsWithExistingNode),
        ("delete /a", ConflictType.ZarrMetadataUpdateOfDeletedArray),
    ],
)
def test_moves_for_which_there_is_no_place_are_refused(change: str, kind: ConflictType) -> None:
    repository = new_repository()
    with_arrays(repository)
    session = repository.rearrange_session("main")
    session.move("/a", "/m")
    other = repository.writable_session("main")
    if change == "create /m":
        zarr.create_group(other.store, path="m")
    else:
        del zarr.open_group(other.store)["a"]
    other.commit("theirs")
    with pytest.raises(RebaseFailedError) as raised:
        session.commit("moved", rebase_with=ConflictDetector())
    assert [conflict.conflict_type for conflict in raised.value.conflicts] == [kind]
