"""A store that is only read: every read is that of the store behind it, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core.errors import AccessDenied, NotFound
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.store.read_only import ReadOnlyStore


@pytest.fixture(params=["local", "memory"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    store: ObjectStore = LocalStore(str(tmp_path)) if request.param == "local" else MemoryStore()
    for key in ("a", "b/c", "b/d"):
        store.put(key, key.encode())
    return store


def test_reads_are_those_of_the_store(inner: ObjectStore) -> None:
    store = ReadOnlyStore(inner)
    assert bytes(store.get("b/c")) == b"b/c"
    assert bytes(store.get("b/c", 1, 2)) == b"/"
    assert [bytes(each) for each in store.get_many(["a", ("b/d", 0, 1)])] == [b"a", b"b"]
    assert [meta.key for meta in store.list("b/", start_after="b/c")] == ["b/d"]
    assert store.list_folders("") == ["b"]
    assert store.head("a") == inner.head("a")
    assert (store.url("a"), store.local_path("a")) == (inner.url("a"), inner.local_path("a"))
    with pytest.raises(NotFound):
        store.get("nope")


def test_writes_are_refused(inner: ObjectStore) -> None:
    store = ReadOnlyStore(inner)
    for write in (
        lambda: store.put("a", b"new"),
        lambda: store.put("new", b"new", if_absent=True),
        lambda: store.put("a", b"new", if_match=inner.head("a").etag),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(AccessDenied, match="read only"):
            write()
    assert {meta.key: bytes(inner.get(meta.key)) for meta in inner.list()} == {"a": b"a", "b/c": b"b/c", "b/d": b"b/d"}
