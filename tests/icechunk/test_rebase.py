"""Rebases over several commits, races of processes, and deaths during a commit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from lake_core.icechunk import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictError,
    ConflictType,
    RebaseFailedError,
    Repository,
)
from lake_core.icechunk.errors import NotInAncestry
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT
from lake_core.icechunk.manifest import InlineChunk
from lake_core.icechunk.snapshot_file import decode_snapshot, encode_snapshot
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.testing import FaultStore, StoreDied
from lake_core.testing.fault_store import FaultMode
from tests.processes import CONTEXT

LENGTH = 8


def create(location: Any, length: int = LENGTH) -> Repository:
    repository = Repository.create(location)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(length,), chunks=(1,), dtype="i4", compressors=None)
    session.commit("first")
    return repository


def write(repository: Repository, index: int, value: int) -> str:
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[index] = value
    return session.commit(f"{index} = {value}")


def values(repository: Repository) -> list[int]:
    return list(zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")[...].tolist())  # type: ignore[union-attr]


def test_a_commit_is_rebased_and_counts_once() -> None:
    repository = create(MemoryStore())
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    write(repository, 1, 2)
    write(repository, 2, 3)
    session.commit("late", rebase_with=ConflictDetector())
    assert values(repository) == [1, 2, 3, 0, 0, 0, 0, 0]
    assert [info.message for info in repository.ancestry(branch="main")][:3] == ["late", "2 = 3", "1 = 2"]


def test_a_rebase_stops_before_the_first_commit_that_conflicts() -> None:
    repository = create(MemoryStore())
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    fine, bad = write(repository, 1, 2), write(repository, 0, 3)
    write(repository, 2, 4)
    with pytest.raises(RebaseFailedError) as caught:
        session.rebase(ConflictDetector())
    assert caught.value.snapshot == bad
    assert session.snapshot_id == fine
    (conflict,) = caught.value.conflicts
    assert (conflict.conflict_type, conflict.path, conflict.conflicted_chunks) == (
        ConflictType.ChunkDoubleUpdate,
        "/a",
        [[0]],
    )
    assert zarr.open_array(session.store, path="a")[:3].tolist() == [1, 2, 0]  # type: ignore[union-attr]
    zarr.open_array(session.store, path="a")[3] = 5
    session.commit("late", rebase_with=BasicConflictSolver())
    assert values(repository)[:4] == [1, 2, 4, 5]


def test_the_error_of_a_failed_rebase_can_be_pickled() -> None:
    repository = create(MemoryStore())
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    write(repository, 0, 2)
    with pytest.raises(RebaseFailedError) as caught:
        session.rebase(ConflictDetector())
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.snapshot, copy.conflicts, str(copy)) == (
        caught.value.snapshot,
        caught.value.conflicts,
        str(caught.value),
    )


def test_no_tries_are_a_conflict() -> None:
    repository = create(MemoryStore())
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    write(repository, 1, 2)
    with pytest.raises(ConflictError):
        session.commit("late", rebase_with=ConflictDetector(), rebase_tries=0)
    session.commit("late", rebase_with=ConflictDetector(), rebase_tries=1)


def test_a_node_that_both_deleted_and_theirs_made_anew_is_a_conflict() -> None:
    repository = create(MemoryStore())
    session, other = repository.writable_session("main"), repository.writable_session("main")
    del zarr.open_group(session.store)["a"]
    del zarr.open_group(other.store)["a"]
    other.commit("deleted")
    other = repository.writable_session("main")
    zarr.create_array(other.store, name="a", shape=(2,), chunks=(1,), dtype="i4")
    other.commit("made anew")
    with pytest.raises(RebaseFailedError) as caught:
        session.rebase(ConflictDetector())
    assert [(conflict.conflict_type.name, conflict.path) for conflict in caught.value.conflicts] == [
        ("DeleteOfUpdatedArray", "/a")
    ]
    session.commit("deleted as well", rebase_with=BasicConflictSolver())
    assert repository.readonly_session("main").node("/a") is None


def test_a_fork_is_not_rebased() -> None:
    session = create(MemoryStore()).writable_session("main")
    with pytest.raises(TypeError, match="merge it"):
        session.fork().rebase(ConflictDetector())


@pytest.mark.parametrize("way", ["reset", "expired"])
def test_a_branch_that_lost_the_base_is_an_error_of_its_own(way: str) -> None:
    store = MemoryStore()
    repository = create(store)
    first = repository.lookup_branch("main")
    write(repository, 0, 1)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[5] = 1
    newest = write(repository, 1, 2)
    if way == "reset":
        repository.reset_branch("main", first)
        write(repository, 2, 3)
    else:
        _expire_before(store, newest)
    with pytest.raises(NotInAncestry, match="new session"):
        session.commit("late", rebase_with=ConflictDetector())
    assert session.has_uncommitted_changes


def _expire_before(store: ObjectStore, snapshot_id: str) -> None:
    """Give a snapshot the initial one as its parent, in place."""
    key = f"snapshots/{snapshot_id}"
    snapshot = decode_snapshot(store.get(key), key)
    store.put(key, encode_snapshot(replace(snapshot, parent_id=INITIAL_SNAPSHOT), 3))


def test_chunks_that_ours_cut_off_do_not_vanish_unsaid() -> None:
    repository = create(MemoryStore())
    session = repository.writable_session("main")
    array: Any = zarr.open_array(session.store, path="a")
    array.resize((2,))
    array.resize((LENGTH,))
    write(repository, 5, 7)
    with pytest.raises(RebaseFailedError) as caught:
        session.rebase(ConflictDetector())
    assert [conflict.conflicted_chunks for conflict in caught.value.conflicts] == [[[5]]]


def test_erasing_a_chunk_that_was_never_written_conflicts_with_writing_it() -> None:
    repository = create(MemoryStore())
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 0  # the fill value: Zarr erases the chunk
    write(repository, 0, 7)
    with pytest.raises(RebaseFailedError):
        session.rebase(ConflictDetector())


def test_many_chunks_are_compared_at_once() -> None:
    repository = create(MemoryStore(), 20_000)
    session, other = repository.writable_session("main"), repository.writable_session("main")
    for writer, first, end in [(session, 9_000, 15_000), (other, 0, 10_000)]:
        for index in range(first, end):
            writer.set_reference("/a", (index,), InlineChunk(b"1234"))
    other.commit("theirs")
    with pytest.raises(RebaseFailedError) as caught:
        session.rebase(ConflictDetector())
    (conflict,) = caught.value.conflicts
    assert conflict.coordinates is not None
    assert np.array_equal(conflict.coordinates[:, 0], np.arange(9_000, 10_000))


def _commit_several(folder: Path, writer: int, commits: int) -> int:
    repository = Repository.open(folder)
    acknowledged = 0
    for number in range(commits):
        session = repository.writable_session("main")
        zarr.open_array(session.store, path="a")[writer * commits + number] = 1
        session.commit(f"{writer}: {number}", rebase_with=ConflictDetector())
        acknowledged += 1
    return acknowledged


@pytest.mark.parametrize(
    "commits", [pytest.param(4, id="few"), pytest.param(50, id="many", marks=pytest.mark.exhaustive)]
)
def test_no_acknowledged_commit_of_eight_processes_is_lost(tmp_path: Path, commits: int) -> None:
    writers = 8
    repository = create(tmp_path, writers * commits)
    with CONTEXT.Pool(writers) as pool:
        acknowledged = pool.starmap(_commit_several, [(tmp_path, writer, commits) for writer in range(writers)])
    assert acknowledged == [commits] * writers
    assert values(repository) == [1] * writers * commits
    messages = [info.message for info in repository.ancestry(branch="main")]
    assert sorted(messages[:-2]) == sorted(
        f"{writer}: {number}" for writer in range(writers) for number in range(commits)
    )


def _contested(store: ObjectStore) -> tuple[Repository, Any]:
    """Return a repository, and a session whose commit must be rebased."""
    repository = Repository.open(store)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 1
    return repository, session


def _copy(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    for meta in store.list():
        copy.put(meta.key, bytes(store.get(meta.key)))
    return copy


@pytest.mark.parametrize("mode", ["before", "after"])
def test_dying_during_a_rebased_commit_leaves_the_old_or_the_new_state(mode: FaultMode) -> None:
    inner = MemoryStore()
    create(inner)
    counting = FaultStore(_copy(inner), 0)
    _, session = _contested(counting)
    write(Repository.open(counting.inner), 1, 2)
    before = counting.operations
    session.commit("late", rebase_with=ConflictDetector())
    operations = counting.operations - before
    assert operations >= 8
    states = set()
    for at in range(1, operations + 1):
        store = _copy(inner)
        dying = FaultStore(store, before + at, mode)
        _, session = _contested(dying)
        write(Repository.open(store), 1, 2)
        with pytest.raises(StoreDied):
            session.commit("late", rebase_with=ConflictDetector())
        repository = Repository.open(store)
        state = values(repository)
        assert state in ([0, 2, 0, 0, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0, 0, 0])
        states.add(state[0])
        write(repository, 2, 3)
        assert values(repository) == [*state[:2], 3, *state[3:]]
    # Only the last write publishes: a crash before it leaves the old state.
    assert states == ({0, 1} if mode == "after" else {0})


@pytest.mark.parametrize(
    "at", [10, *(pytest.param(at, marks=pytest.mark.exhaustive) for at in range(1, 20) if at != 10)]
)
def test_a_killed_process_leaves_a_local_repository_usable(tmp_path: Path, at: int) -> None:
    create(tmp_path)
    process = CONTEXT.Process(target=_die, args=(tmp_path, at))
    process.start()
    process.join(60)
    repository = Repository.open(tmp_path)
    assert values(repository)[0] == (0 if process.exitcode else 1)
    write(repository, 1, 5)
    assert values(repository)[1] == 5


def _die(folder: Path, at: int) -> None:
    _, session = _contested(FaultStore(LocalStore(folder), at, "exit"))
    write(Repository.open(folder), 7, 1)
    session.commit("late", rebase_with=ConflictDetector())
