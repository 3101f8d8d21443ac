"""Sessions are object stores: the contract of one, held against them.

Not of that contract, and tested here instead: what a process has changed and not published lives in that process, so
sessions refuse to be pickled, and processes share one by joining it. Data files of a dataset are not listed and outlive
their deletion, so a dataset's folder keeps its own rules.
"""

from __future__ import annotations

import itertools
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from lake_core import Lake
from lake_core.errors import AlreadyExists, InvalidKey, NotFound, PreconditionFailed
from lake_core.lake.errors import ReadOnly
from lake_core.lake.session.session_writer import SessionWriter
from lake_core.store import FolderStore, LocalStore, MemoryStore, ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.object_store import Bytes
from lake_core.testing import ObjectStoreSuite
from tests.lake.lakes import SCHEMA, create_tables, ids, rows


class SessionSuite(ObjectStoreSuite):
    """The contract of a store, as far as sessions have it: all but pickling."""

    def test_pickles(self, store: ObjectStore) -> None:
        """What is in no store yet is not taken along in silence."""
        store.put("a", b"hello")
        with pytest.raises(TypeError, match=r"lake\.get_session"):
            pickle.dumps(store)
        got = pickle.loads(pickle.dumps(store.get("a")))
        assert (got, got.meta) == (b"hello", store.head("a"))


class TestSession(SessionSuite):
    """A private session, on an empty lake."""

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        return Lake.create(MemoryStore()).session()


class TestPart(SessionSuite):
    """A process's part of a shared session."""

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        lake = Lake.create(MemoryStore())
        return lake.get_session(lake.open_session().id).join()


@pytest.mark.exhaustive
class TestSerializableSession(SessionSuite):
    """A session that notes what it reads."""

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        return Lake.create(MemoryStore()).session(isolation="serializable")


class _Flushed(ObjectStore):
    """A part of a shared session that flushes each change: all that is read comes from the session's tree."""

    def __init__(self, part: SessionWriter) -> None:
        self.part = part
        self._turn = threading.Lock()

    def url(self, key: str = "") -> str:
        return self.part.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        return self.part.storage_options

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self.part.get(key, start, end)

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        return self.part.get_many(requests)

    def _head(self, key: str) -> ObjectMeta:
        return self.part.head(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        return self.part.list(prefix, start_after)

    def _list_folders(self, prefix: str) -> list[str]:
        return self.part.list_folders(prefix)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        with self._turn:
            put = self.part.put(key, data, if_absent=if_absent, if_match=if_match, unique=unique)
            self.part.flush()
            assert not self.part.view.overlay
        return put

    def _delete(self, keys: Sequence[str]) -> None:
        with self._turn:
            self.part.delete(keys)
            self.part.flush()

    def __repr__(self) -> str:
        return repr(self.part)


class TestFlushedPart(SessionSuite):
    many, large = 140, 3_000_000

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        lake = Lake.create(MemoryStore())
        return _Flushed(lake.get_session(lake.open_session().id).join())

    def test_pickles(self, store: ObjectStore) -> None:
        assert isinstance(store, _Flushed)
        super().test_pickles(store.part)


class TestFolderBesideDatasets(SessionSuite):
    """A folder of a session, with datasets and files around it: in the tree, and on top of it."""

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        lake = Lake.create(MemoryStore())
        _fill(lake, "1")
        session = lake.session()
        _fill(session, "2")
        return FolderStore(session, "t/here")


def _fill(lake: Any, name: str) -> None:
    session = lake.session() if isinstance(lake, Lake) else lake
    for path in (f"t/a{name}", f"t/her{name}", f"t/here{name}", f"t/z{name}", f"t/dropped{name}"):
        session.create_delta(path, SCHEMA).append(rows([1]))
    session.drop(f"t/dropped{name}")
    for key in (f"t/here-{name}", f"t/hera/{name}", f"t/here.{name}/x", f"t/hers/{name}", name):
        session.put(key, b"a neighbour's")
    if session is not lake:
        session.publish()


def test_listing_ends_whatever_keys_are_called() -> None:
    last = "\U0010ffff"
    session = Lake.create(MemoryStore()).session()
    keys = [f"a/{last}", f"a/{last}{last}/x", f"a/{last * 60}", "b", "b/c", "b0/c"]
    for key in keys:
        session.put(key, b"")
    assert [meta.key for meta in session.list()] == keys
    assert session.list_folders() == ["a", "b", "b0"]
    assert session.list_folders("a/") == [last * 2]


def test_states_that_are_only_read_can_be_pickled() -> None:
    lake = Lake.create(MemoryStore())
    create_tables(lake, "t/orders")
    session = lake.open_session("main", message="work")
    with lake.get_session(session.id).join() as part:
        part.put("more", b"1")
    for store in (lake.at("main"), lake.at(session.id)):
        again = pickle.loads(pickle.dumps(store))
        assert repr(again) == repr(store)
        assert list(again.list()) == list(store.list())
        assert ids(again.delta("t/orders")) == list(range(10))
        view = pickle.loads(pickle.dumps(store.dataset("t/orders")))
        assert list(view.list()) == list(store.dataset("t/orders").list())
        with pytest.raises(ReadOnly):
            again.put("x", b"")
    handle = pickle.loads(pickle.dumps(lake.at(session.id)))
    assert (handle.id, handle.epoch, handle.branch) == (session.id, session.epoch, "main")


# A dataset's folder


def _log(version: int) -> str:
    return f"_delta_log/{version:020}.json"


@pytest.fixture
def table(lake: Lake) -> ObjectStore:
    """Return the folder of a table in a session: version 0 is in the lake's tree, 1 and 2 are in the session."""
    session = lake.session()
    for id in (50, 60):
        session.delta("t/orders").append(rows([id]))
    return session.dataset("t/orders")


def test_log_of_a_dataset_lists_as_any_store(table: ObjectStore) -> None:
    keys = [_log(version) for version in range(3)]
    for prefix in ("", "_", "_delta_log", "_delta_log/", "_delta_log/0000", keys[1], "part", "x/"):
        for start in ("", "_delta_log", "_delta_log/", *keys, "~"):
            expected = [key for key in keys if key.startswith(prefix) and key > start]
            assert [meta.key for meta in table.list(prefix, start)] == expected, (prefix, start)
    assert list(table.list("_delta_log/")) == [table.head(key) for key in keys]
    assert table.list_folders() == ["_delta_log"]
    assert table.list_folders("_delta_log/") == []


def test_log_and_data_of_a_dataset_are_read_as_from_any_store(table: ObjectStore) -> None:
    data = table.put("part-new.parquet", b"0123456789", unique=True)
    assert data == table.head("part-new.parquet")
    whole = bytes(table.get(_log(1)))
    for key, stands in ((_log(1), whole), ("part-new.parquet", b"0123456789")):
        for start, end in ((None, None), (0, 4), (2, 5), (-3, None), (8, 10**6), (10**6, None), (0, 0)):
            got = table.get(key, start, end)
            assert (bytes(got), got.meta) == (stands[start:end], table.head(key)), (key, start, end)
    requests = [(_log(2), 0, 1), ("part-new.parquet", 1, 3), (_log(1), None, None), ("part-new.parquet", -2, None)]
    assert [bytes(got) for got in table.get_many(requests)] == [b"{", b"12", whole, b"89"]


def test_errors_name_the_key_that_the_caller_gave(lake: Lake, table: ObjectStore) -> None:
    state = lake.at("main")
    session = lake.session()
    session.delta("t/orders").append(rows([70]))
    failing: list[tuple[type[Exception], str, Callable[[ObjectStore, str], object]]] = [
        (NotFound, _log(99), lambda store, key: store.get(key)),
        (NotFound, _log(99), lambda store, key: store.get_many([key])),
        (NotFound, _log(99), lambda store, key: store.head(key)),
        (NotFound, "absent.parquet", lambda store, key: store.get(key)),
        (NotFound, "absent.parquet", lambda store, key: store.head(key)),
        (NotFound, f"_delta_log/{0:020}.checkpoint.parquet", lambda store, key: store.get(key)),
        (InvalidKey, "_delta_log/other", lambda store, key: store.get(key)),
    ]
    writes: list[tuple[type[Exception], str, Callable[[ObjectStore, str], object]]] = [
        (AlreadyExists, _log(1), lambda store, key: store.put(key, b"", if_absent=True)),
        (PreconditionFailed, _log(1), lambda store, key: store.put(key, b"", if_match="x")),
        (AlreadyExists, "part.parquet", lambda store, key: store.put(key, b"", if_absent=True)),
    ]
    session.put("t/orders/part.parquet", b"")
    for outer in (state, session):
        for kind, key, fail in failing + (writes if outer is session else []):
            with pytest.raises(kind) as inside:
                fail(outer.dataset("t/orders"), key)
            assert inside.value.key == key, (kind, key)
            with pytest.raises(kind) as outside:
                fail(outer, f"t/orders/{key}")
            assert outside.value.key == f"t/orders/{key}", (kind, key)


def test_one_of_many_threads_commits_a_version(table: ObjectStore) -> None:
    barrier, won = threading.Barrier(8), []

    def commit(number: int) -> None:
        barrier.wait(30)
        try:
            table.put(_log(3), b'{"commitInfo":{"n":%d}}' % number, if_absent=True)
        except AlreadyExists:
            return
        won.append(number)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert table.get(_log(3)) == b'{"commitInfo":{"n":%d}}' % won[0]


# Any mixture of what lies in the tree and on top of it


@pytest.mark.parametrize("seed", range(6))
def test_sessions_and_commits_read_as_a_plain_store(seed: int) -> None:
    rng = random.Random(seed)
    clock = itertools.count()
    model = MemoryStore()
    lake = Lake.create(MemoryStore(), clock=lambda: datetime.fromtimestamp(1_767_225_600 + next(clock), UTC))
    names = ["a", "a-b", "a/b", "a/b/c", "a/b0", "a0", "b/x/y", "b/x/z", "b/xx", "é", "z/😀"]
    for _ in range(6):
        session = lake.session()
        for _ in range(8):
            key = rng.choice(names)
            if rng.random() < 0.35:
                model.delete([key])
                session.delete([key])
            else:
                data = rng.randbytes(5)
                model.put(key, data)
                session.put(key, data)
            _assert_same(model, session, names)
        session.publish()
        _assert_same(model, lake.at("main"), names)


def _assert_same(model: ObjectStore, store: ObjectStore, names: list[str]) -> None:
    starts = ["", *names, "a/", "a/b/", "b", "~"]
    for prefix in ("", "a", "a/", "a/b", "b/x/", "é"):
        for start in starts:
            assert [meta.key for meta in store.list(prefix, start)] == [
                meta.key for meta in model.list(prefix, start)
            ], (prefix, start)
    for prefix in ("", "a/", "a/b/", "b/", "absent/"):
        assert store.list_folders(prefix) == model.list_folders(prefix)
    for name in names:
        assert store.exists(name) == model.exists(name)
    keys = [meta.key for meta in model.list()]
    assert [bytes(data) for data in store.get_many(keys)] == [bytes(data) for data in model.get_many(keys)]
    assert list(store.list()) == [data.meta for data in store.get_many(keys)]


def test_a_session_over_files_is_the_same(tmp_path: Any) -> None:
    """One look at another store behind: objects are read back from disk."""
    lake = Lake.create(LocalStore(tmp_path / "lake"))
    with lake.session() as session:
        meta = session.put("a/b", b"hello", if_absent=True)
        assert session.get("a/b").meta == meta
        with pytest.raises(AlreadyExists):
            session.put("a/b", b"again", if_absent=True)
    assert lake.at("main").get("a/b").meta == meta
