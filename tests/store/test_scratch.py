"""A store whose new objects stay in memory: the store behind it never changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core.errors import AccessDenied, AlreadyExists
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.store.scratch import ScratchStore


@pytest.fixture(params=["local", "memory"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    store: ObjectStore = LocalStore(str(tmp_path)) if request.param == "local" else MemoryStore()
    for key in ("a", "b/c", "b/e"):
        store.put(key, key.encode())
    return store


def test_new_objects_are_read_beside_those_of_the_store_and_are_not_in_it(inner: ObjectStore) -> None:
    store = ScratchStore(inner)
    before = list(inner.list(""))
    store.put("b/d", b"new", if_absent=True, unique=True)
    store.put("c/f", b"newer")
    assert bytes(store.get("b/d", 1)) == b"ew"
    assert [bytes(each) for each in store.get_many(["a", ("b/d", 0, 1)])] == [b"a", b"n"]
    assert [meta.key for meta in store.list("b/", start_after="b/c")] == ["b/d", "b/e"]
    assert [meta.key for meta in store.list("")] == ["a", "b/c", "b/d", "b/e", "c/f"]
    assert store.list_folders("") == ["b", "c"]
    assert (store.head("c/f").size, store.local_path("c/f")) == (5, None)
    assert store.local_path("a") == inner.local_path("a")
    assert list(inner.list("")) == before


def test_objects_of_the_store_are_neither_replaced_nor_deleted(inner: ObjectStore) -> None:
    store = ScratchStore(inner)
    with pytest.raises(AccessDenied):
        store.put("a", b"other")
    with pytest.raises(AccessDenied):
        store.put("a", b"other", if_match=inner.head("a").etag)
    with pytest.raises(AccessDenied):
        store.delete(["a"])
    with pytest.raises(AlreadyExists):
        store.put("a", b"other", if_absent=True)
    store.put("new", b"1", if_absent=True)
    with pytest.raises(AlreadyExists):
        store.put("new", b"2", if_absent=True)
    assert bytes(inner.get("a")) == b"a"
