"""Commits: answers that are lost, and hierarchies that no snapshot may have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import icechunk
import pytest
import zarr
from zarr.core.buffer import cpu

from lake_core.errors import StoreUnavailable
from lake_core.icechunk import ConflictError, IcechunkStore, Repository, Session
from lake_core.icechunk.change_set import ChangeSet
from lake_core.icechunk.conflict_detector import RebaseStep
from lake_core.icechunk.errors import IcechunkError, InvalidHierarchy, ReadOnlySession, UnconfirmedCommit
from lake_core.store import MemoryStore, ObjectStore
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta
from lake_core.testing.fault_store import FaultMode, FaultStore

GROUP = {"zarr_format": 3, "node_type": "group"}
ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [2],
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
}


class UnansweredStore(FaultStore):
    """A store that moves a branch without answering, and then calls `meanwhile`.

    It answers no read for some requests after that.
    """

    def __init__(self, inner: ObjectStore, meanwhile: Callable[[], object] = list, silent: int = 1) -> None:
        super().__init__(inner, 0)
        self.meanwhile = meanwhile
        self.silent = silent
        self._left = 0
        self._armed = True

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        meta = super()._put(key, data, if_absent, if_match, unique)
        if self._armed and if_match is not None:
            self._armed = False
            self._left = self.silent
            self.meanwhile()
            raise StoreUnavailable("the answer was lost")
        return meta

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        if self._left:
            self._left -= 1
            raise StoreUnavailable("no answer")
        return super()._get(key, start, end)


class CarelessSolver:
    """A solver that lets every change stand on what came first."""

    def solve(self, step: RebaseStep) -> ChangeSet:
        return step.changes


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    session = Repository.create(store).writable_session("main")
    zarr.create_group(session.store)
    session.commit("first")
    return store


def add_group(store: ObjectStore, name: str) -> str:
    session = Repository.open(store).writable_session("main")
    zarr.create_group(session.store, path=name)
    return session.commit(name)


def messages(store: ObjectStore) -> list[str]:
    return [info.message for info in Repository.open(store).ancestry(branch="main")]


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("rebases", [False, True])
def test_a_commit_whose_answer_was_lost_finds_itself_among_later_commits(
    store: MemoryStore, others: int, rebases: bool
) -> None:
    faulty = UnansweredStore(store, lambda: [add_group(store, f"other{number}") for number in range(others)], silent=0)
    session = Repository.open(faulty).writable_session("main")
    zarr.create_group(session.store, path="mine")
    snapshot_id = session.commit("mine", rebase_with=CarelessSolver() if rebases else None)
    assert messages(store) == [
        *(f"other{number}" for number in reversed(range(others))),
        "mine",
        "first",
        "Repository initialized",
    ]
    assert Repository.open(store).lookup_snapshot(snapshot_id).message == "mine"
    assert session.snapshot_id == snapshot_id


@pytest.mark.parametrize("others", [0, 2])
def test_a_commit_that_is_repeated_after_a_lost_answer_is_made_once(store: MemoryStore, others: int) -> None:
    faulty = UnansweredStore(store, lambda: [add_group(store, f"other{number}") for number in range(others)])
    session = Repository.open(faulty).writable_session("main")
    zarr.create_group(session.store, path="mine")
    with pytest.raises(StoreUnavailable):
        session.commit("mine")
    with pytest.raises(UnconfirmedCommit):
        zarr.create_group(session.store, path="more")
    snapshot_id = session.commit("mine again")
    assert Repository.open(store).lookup_snapshot(snapshot_id).message == "mine"
    assert messages(store).count("mine") == 1
    assert len(messages(store)) == 3 + others


def test_changes_after_a_lost_answer_go_on_once_they_are_discarded(store: MemoryStore) -> None:
    session = Repository.open(UnansweredStore(store)).writable_session("main")
    zarr.create_group(session.store, path="mine")
    with pytest.raises(StoreUnavailable):
        session.commit("mine")
    session.discard_changes()
    zarr.create_group(session.store, path="more")
    with pytest.raises(ConflictError):
        session.commit("more")


def test_a_commit_that_another_came_before_is_a_conflict_and_the_session_stays_writable(store: MemoryStore) -> None:
    session = Repository.open(store).writable_session("main")
    zarr.create_group(session.store, path="mine")
    add_group(store, "other")
    with pytest.raises(ConflictError):
        session.commit("mine")
    zarr.create_group(session.store, path="more")
    assert messages(store)[0] == "other"


def written_session(store: ObjectStore) -> Session:
    session = Repository.open(store).writable_session("main")
    zarr.create_group(session.store)
    return session


@pytest.mark.parametrize("mode", ["before", "after"])
def test_an_error_at_any_request_leaves_a_commit_that_can_be_repeated(mode: FaultMode) -> None:
    sound = FaultStore(Repository.create(MemoryStore()).storage, 0)
    session = written_session(sound)
    begin = sound.operations
    session.commit("mine")
    assert sound.operations - begin >= 4
    for at in range(begin + 1, sound.operations + 1):
        store = Repository.create(MemoryStore()).storage
        session = written_session(FaultStore(store, at, mode, error=StoreUnavailable("no answer")))
        try:
            session.commit("mine")
        except StoreUnavailable:
            session.commit("mine")
        assert messages(store) == ["mine", "Repository initialized"]


# Hierarchies


def put(store: IcechunkStore, key: str, document: dict[str, object]) -> None:
    asyncio.run(store.set(key, cpu.Buffer.from_bytes(json.dumps(document).encode())))


def keys(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ({"q/w/zarr.json": GROUP}, "no group /q"),
        ({"q/w/zarr.json": ARRAY}, "no group /q"),
        ({"a/zarr.json": ARRAY, "a/b/zarr.json": GROUP}, "inside the array /a"),
        ({"g/zarr.json": ARRAY}, "inside the array /g"),
    ],
)
def test_a_node_without_a_group_above_it_is_not_committed(
    tmp_path: Path, documents: dict[str, dict[str, object]], message: str
) -> None:
    repository = Repository.create(tmp_path)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="g/below")
    session.commit("first")
    session = repository.writable_session("main")
    node = session.node("/g/below")
    assert node is not None
    for key, document in documents.items():
        put(session.store, key, document)
    if "g/zarr.json" in documents:
        # As if it had come with another commit: a session deletes what lies below a group itself.
        session.change_set.deleted.pop(node.node_id)
    before = keys(tmp_path)
    with pytest.raises(InvalidHierarchy, match=message):
        session.commit("broken")
    assert keys(tmp_path) == before
    session.discard_changes()
    zarr.create_group(session.store, path="fine")
    session.commit("fine")


@pytest.mark.parametrize("order", [["ours", "theirs"], ["theirs", "ours"]])
def test_a_deleted_group_and_a_node_that_another_created_in_it_are_not_committed_together(
    store: MemoryStore, order: list[str]
) -> None:
    add_group(store, "g")
    repository = Repository.open(store)
    sessions = {"ours": repository.writable_session("main"), "theirs": repository.writable_session("main")}
    del zarr.open_group(sessions["ours"].store)["g"]
    zarr.create_group(sessions["theirs"].store, path="g/new")
    sessions[order[0]].commit("one")
    with pytest.raises(InvalidHierarchy, match="no group /g"):
        sessions[order[1]].commit("other", rebase_with=CarelessSolver())


def test_two_nodes_at_one_path_are_not_committed(store: MemoryStore) -> None:
    session = Repository.open(store).writable_session("main")
    zarr.create_group(session.store, path="g")
    add_group(store, "g")
    with pytest.raises(InvalidHierarchy, match="two nodes"):
        session.commit("again", rebase_with=CarelessSolver())


@pytest.mark.parametrize(
    "value",
    [b"x", {"a": b""}, [bytearray(b"x")], {1: 2}, {"a": {None: 1}}, float("nan"), [float("inf")], {1, 2}, 1 << 64],
)
def test_metadata_that_other_clients_cannot_read_is_refused(tmp_path: Path, value: object) -> None:
    repository = Repository.create(tmp_path)
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    with pytest.raises(IcechunkError, match="cannot be written as JSON"):
        session.commit("group", metadata={"k": value})
    session.commit("group", metadata={"k": [{"a": (1, 2.5, None, True, "ü")}, {}]})
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    newest = next(iter(theirs.ancestry(branch="main")))
    assert newest.metadata["k"] == [{"a": [1, 2.5, None, True, "ü"]}, {}]


def test_a_store_that_only_reads_says_where_to_write() -> None:
    repository = Repository.create(MemoryStore())
    store = repository.readonly_session("main").store
    with pytest.raises(ReadOnlySession, match="write in a session, to session"):
        asyncio.run(store.set("zarr.json", cpu.Buffer.from_bytes(b"{}")))
    with pytest.raises(ReadOnlySession, match="write in a session"):
        store.set_virtual_ref("a/c/0", "s3://bucket/key", offset=0, length=1)
