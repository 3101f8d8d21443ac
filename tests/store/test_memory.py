"""The store in memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lake_core.store import MemoryStore, ObjectStore, open_store
from lake_core.testing import ObjectStoreSuite


class TestMemoryStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        return MemoryStore()


def test_unnamed_stores_are_private() -> None:
    MemoryStore().put("a", b"")
    assert list(MemoryStore().list()) == []


def test_stores_of_one_name_hold_the_same() -> None:
    open_store("memory://shared").put("a/b/c", b"hello")
    assert open_store("memory://shared").get("a/b/c") == b"hello"
    inner = open_store("memory://shared/a/")
    assert [meta.key for meta in inner.list()] == ["b/c"]
    assert inner.list_folders() == ["b"]
    assert inner.get("b/c").meta.key == inner.head("b/c").key == "b/c"
    assert inner.url("b/c") == "memory://shared/a/b/c"
    inner.delete(["b/c"])
    assert not open_store("memory://shared").exists("a/b/c")
    assert list(open_store("memory://other").list()) == []


def test_prefix_of_one_store_does_not_leak_into_its_neighbour() -> None:
    open_store("memory://neighbours/ab").put("x", b"")
    open_store("memory://neighbours/a").put("y", b"")
    assert [meta.key for meta in open_store("memory://neighbours/a").list()] == ["y"]


def test_clock_is_the_callers() -> None:
    moment = datetime(2031, 5, 6, tzinfo=UTC)
    store = MemoryStore(clock=lambda: moment)
    assert store.put("a", b"").last_modified == store.head("a").last_modified == moment


def test_etag_never_comes_twice() -> None:
    store = MemoryStore()
    etags = []
    for _ in range(3):
        etags.append(store.put("a", b"same").etag)
        store.delete(["a"])
        etags.append(store.put("a", b"same", if_absent=True).etag)
    assert len(set(etags)) == len(etags)


def test_another_process_is_told_that_it_can_not_have_it() -> None:
    for store in (MemoryStore(), MemoryStore("named")):
        program = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
        run = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(store), capture_output=True)
        assert run.returncode != 0
        assert b"exists in another process only" in run.stderr


def test_listing_goes_on_while_objects_come_and_go() -> None:
    store = MemoryStore()
    for i in range(2500):
        store.put(f"k/{i:05}", b"")
    keys = []
    for meta in store.list("k/"):
        keys.append(meta.key)
        store.delete([meta.key])
        store.put("a" + meta.key, b"")
    assert keys == [f"k/{i:05}" for i in range(2500)]
