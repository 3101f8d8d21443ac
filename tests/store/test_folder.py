"""A folder of a store as a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lake_core.errors import AlreadyExists, InvalidKey, NotFound, PreconditionFailed, StoreError, StoreUnavailable
from lake_core.store import FolderStore, LocalStore, MemoryStore, ObjectStore
from lake_core.testing import FaultStore, ObjectStoreSuite, SharedObjectStoreSuite


class TestFolderInMemory(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        return _among_others(MemoryStore())


class TestFolderOfFiles(SharedObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ObjectStore]:
        return _among_others(LocalStore(tmp_path))


class TestFolderInFolder(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        return FolderStore(_among_others(MemoryStore()), "é x")


def _among_others(store: ObjectStore) -> ObjectStore:
    """A folder with neighbours on both sides, of which nothing may show."""
    for key in (
        "a/folde",
        "a/folder-",
        "a/folder-x/a",
        "a/folder.x",
        "a/folder0",
        "a/folder1/a",
        "a/foldes",
        "b",
        "race/0",
        "count",
    ):
        store.put(key, b"a neighbour's")
    return FolderStore(store, "a/folder")


def test_it_is_the_stores_own_folder() -> None:
    moment = datetime(2031, 5, 6, tzinfo=UTC)
    store = MemoryStore(clock=lambda: moment)
    folder = FolderStore(store, "t/orders")
    put = folder.put("part-0", b"hello", if_absent=True, unique=True)
    assert store.get("t/orders/part-0") == b"hello"
    assert put == folder.head("part-0")
    assert put.last_modified == moment
    assert (folder.url(), folder.url("x y")) == (store.url("t/orders"), store.url("t/orders/x y"))
    store.put("t/orders/a/b", b"")
    assert folder.list_folders() == ["a"]
    folder.delete(["part-0", "a/b"])
    assert list(store.list()) == []


def test_neighbours_are_out_of_reach() -> None:
    store = MemoryStore()
    store.put("t/secret", b"")
    folder = FolderStore(store, "t/orders")
    for key in ("../secret", "a/../../secret", "/t/secret"):
        for use in (
            folder.get,
            folder.head,
            lambda key: folder.put(key, b""),
            lambda key: folder.delete([key]),
            folder.list_folders,
        ):
            with pytest.raises((InvalidKey, ValueError)):
                use(key)  # type: ignore[operator]
    assert list(folder.list("..")) == []
    assert store.exists("t/secret")


@pytest.mark.parametrize("name", ["", "/", "..", "a/../b", "a//b", "a/", "a\n"])
def test_what_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidKey):
        FolderStore(MemoryStore(), name)


def test_errors_name_the_key_that_was_asked_for_and_where_it_lies() -> None:
    store = MemoryStore()
    folder = FolderStore(store, "t/orders")
    etag = folder.put("there", b"").etag
    store.put("t/orders/other", b"")
    failing = [
        (NotFound, "absent", lambda: folder.get("absent")),
        (NotFound, "absent", lambda: folder.get_many(["there", "absent"])),
        (NotFound, "absent", lambda: folder.head("absent")),
        (AlreadyExists, "there", lambda: folder.put("there", b"", if_absent=True)),
        (PreconditionFailed, "other", lambda: folder.put("other", b"", if_match=etag)),
        (InvalidKey, "a/" * 510 + "b", lambda: folder.put("a/" * 510 + "b", b"")),
    ]
    for kind, key, fail in failing:
        with pytest.raises(kind) as caught:
            fail()
        assert caught.value.key == key
        assert f"t/orders/{key}"[:40] in str(caught.value)


def test_errors_of_the_store_behind_pass() -> None:
    class Unreachable(MemoryStore):
        def _list(self, prefix: str, start_after: str) -> Iterator[object]:  # type: ignore[override]
            yield from ()
            raise StoreUnavailable("gone", key=prefix)

    with pytest.raises(StoreUnavailable) as caught:
        list(FolderStore(Unreachable(), "t/orders").list("x"))
    assert caught.value.key == "x"
    for key in (None, "elsewhere"):
        folder = FolderStore(FaultStore(MemoryStore(), 1, error=StoreError("failed", key=key)), "t/orders")
        with pytest.raises(StoreError) as failed:
            folder.get("x")
        assert failed.value.key == key
