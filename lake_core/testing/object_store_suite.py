"""The contract of an object store, as tests.

Subclass a suite in a test module, and override the fixture for a new, empty store:

    class TestMyStore(SharedObjectStoreSuite):
        @pytest.fixture
        def store(self) -> Iterator[ObjectStore]:
            yield MyStore(...)
"""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import pytest

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed
from lake_core.testing.object_store_listing import ObjectStoreListing, keys_of
from lake_core.testing.object_store_races import ObjectStoreRaces, ProcessRaces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.store.object_store import ObjectStore

_CLOCK = timedelta(seconds=5)
"""How much the times that `put` and `head` return may differ."""


class ObjectStoreSuite(ObjectStoreListing, ObjectStoreRaces):
    """Tests that every object store must pass. Override `store`."""

    large: ClassVar[int] = 120_000_000
    """The size in bytes of the large object: more than the store's client transfers in one piece."""

    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        """Yield a new, empty store."""
        raise NotImplementedError("override the fixture `store`")

    # One object

    def test_what_is_put_is_got(self, store: ObjectStore) -> None:
        """Compare the bytes, the key and the size."""
        store.put("a/b", b"hello")
        body = store.get("a/b")
        assert bytes(body) == b"hello"
        assert (body.key, body.size) == ("a/b", 5)

    def test_put_takes_any_flat_bytes(self, store: ObjectStore) -> None:
        """Put bytearrays and memoryviews, also strided ones; a text is a TypeError."""
        for data in (
            bytearray(b"hello"),
            memoryview(b"hello"),
            memoryview(b"xhxexlxlxox")[1::2],
            memoryview(b"hello").cast("b"),
        ):
            assert store.put("a", data).size == 5
            assert store.get("a") == b"hello"
        with pytest.raises(TypeError):
            store.put("a", "hello")  # type: ignore[arg-type]

    def test_metadata_is_the_same_wherever_it_is_told(self, store: ObjectStore) -> None:
        """Compare what `put`, `head`, `get` and `list` return; times are in UTC."""
        started = datetime.now(UTC)
        put = store.put("a/b", b"hello")
        head = store.head("a/b")
        assert (put.key, put.size, put.etag) == (head.key, head.size, head.etag) == ("a/b", 5, put.etag)
        assert put.etag
        assert store.get("a/b").meta == store.get("a/b", 1, 2).meta == store.get("a/b", 9).meta == head
        assert list(store.list()) == [head]
        assert head.last_modified.utcoffset() == timedelta(0)
        assert abs(put.last_modified - head.last_modified) < _CLOCK
        assert started - _CLOCK < head.last_modified < datetime.now(UTC) + _CLOCK

    def test_overwriting_replaces_all_of_it(self, store: ObjectStore) -> None:
        """Put a shorter body over a longer one; the etag changes."""
        first = store.put("a", b"a long first content")
        second = store.put("a", b"short")
        assert store.get("a") == b"short"
        assert first.etag != second.etag == store.head("a").etag

    def test_empty_object(self, store: ObjectStore) -> None:
        """Put, read and list an object without bytes; for `if_absent` it exists."""
        assert store.put("a", b"", if_absent=True).size == 0
        assert store.get("a") == b""
        for start, end in ((0, 10), (5, None), (-3, None), (None, 0), (0, 0)):
            body = store.get("a", start, end)
            assert (bytes(body), body.size) == (b"", 0)
        assert [meta.size for meta in store.list()] == [0]
        with pytest.raises(AlreadyExists):
            store.put("a", b"x", if_absent=True)

    def test_large_object(self, store: ObjectStore) -> None:
        """Replace and read an object of `large` bytes, whole and in part."""
        pattern = bytes(range(256)) * 4096
        data = (pattern * (self.large // len(pattern) + 1))[: self.large]
        begin = store.put("large", b"small")
        meta = store.put("large", data, if_match=begin.etag)
        assert meta.size == self.large
        with pytest.raises(PreconditionFailed):
            store.put("large", bytes(self.large), if_match=begin.etag)
        assert store.get("large") == data
        assert store.get("large", -3) == data[-3:]
        middle = self.large // 2 + 1
        assert store.get("large", middle, middle + 7) == data[middle : middle + 7]

    def test_ranges(self, store: ObjectStore) -> None:
        """Read ranges as slices of bytes; `size` and `etag` are those of the whole object."""
        meta = store.put("a", b"0123456789")
        ranges = [
            (None, None),
            (0, None),
            (0, 4),
            (2, 5),
            (3, None),
            (None, 3),
            (9, 10),
            (-3, None),
            (-1, None),
            (-10, None),
            (-100, None),
        ]
        ranges += [(8, 100), (10, 20), (10, None), (100, None), (100, 200), (4, 4), (0, 0), (None, 0), (50, 50)]
        for start, end in ranges:
            body = store.get("a", start, end)
            assert bytes(body) == b"0123456789"[start:end], (start, end)
            assert (body.key, body.size, body.etag) == ("a", 10, meta.etag), (start, end)

    def test_what_is_no_range_is_refused(self, store: ObjectStore) -> None:
        """Raise ValueError for an end before the start, or a negative start with an end."""
        store.put("a", b"0123456789")
        for start, end in ((5, 4), (-3, 5), (None, -1)):
            with pytest.raises(ValueError):
                store.get("a", start, end)
            with pytest.raises(ValueError):
                store.get_many([("a", start, end)])

    def test_get_many_keeps_the_order(self, store: ObjectStore) -> None:
        """Read keys and ranges together; NotFound names the absent key."""
        keys = [f"k/{i:02}" for i in range(40)]
        for key in keys:
            store.put(key, key.encode())
        assert [bytes(body) for body in store.get_many(reversed(keys))] == [key.encode() for key in reversed(keys)]
        assert store.get_many(["k/01", ("k/02", 1, 3), ("k/03", -2, None)]) == [b"k/01", b"/0", b"03"]
        assert store.get_many([]) == []
        with pytest.raises(NotFound) as caught:
            store.get_many(["k/01", "k/absent", "k/02"])
        assert caught.value.key == "k/absent"

    def test_gathered_calls_answer_in_their_order(self, store: ObjectStore) -> None:
        """Return what each call returns; raise the first failure in the order of the calls."""
        keys = [f"k/{i}" for i in range(5)]
        for key in keys:
            store.put(key, key.encode())
        assert store.gather(*(lambda key=key: bytes(store.get(key)) for key in keys)) == tuple(
            key.encode() for key in keys
        )
        assert store.gather(lambda: store.exists("k/1"), lambda: store.head("k/2").size) == (True, 3)
        assert store.gather() == ()
        with pytest.raises(NotFound) as caught:
            store.gather(lambda: store.get("k/1"), lambda: store.get("k/absent"), lambda: store.get("k/absent too"))
        assert caught.value.key == "k/absent"

    # What is not there

    def test_absent(self, store: ObjectStore) -> None:
        """Raise NotFound with the key, for folders and below objects too; listings are empty."""
        store.put("a/b", b"")
        for key in ("absent", "a", "a/c", "a/b/c", "a/absent/c"):
            for read in (
                lambda key: store.get(key),
                lambda key: store.get(key, 1, 2),
                lambda key: store.get(key, 0, 0),
                store.head,
            ):
                with pytest.raises(NotFound) as caught:
                    read(key)
                assert caught.value.key == key
                assert key in str(caught.value)
            assert not store.exists(key)
        assert store.exists("a/b")
        assert list(store.list("absent/")) == list(store.list("a/b/")) == []
        assert store.list_folders("absent/") == []

    def test_delete(self, store: ObjectStore) -> None:
        """Delete several keys, absent ones without an error; only these are deleted."""
        for key in ("a", "b/c", "b/d", "e"):
            store.put(key, b"")
        store.delete(["a", "b/c", "absent", "absent/too", "b/c/below"])
        assert keys_of(store.list()) == ["b/d", "e"]
        store.delete(["a", "b/d"])
        store.delete([])
        assert keys_of(store.list()) == ["e"]
        with pytest.raises(NotFound):
            store.get("a")
        store.put("a", b"again", if_absent=True)
        assert store.get("a") == b"again"
        with pytest.raises(TypeError):
            store.delete("a")

    # Conditions

    def test_if_absent(self, store: ObjectStore) -> None:
        """Raise AlreadyExists for a second put, and keep what the first wrote."""
        store.put("a/b", b"first", if_absent=True)
        with pytest.raises(AlreadyExists) as caught:
            store.put("a/b", b"second", if_absent=True)
        assert caught.value.key == "a/b"
        assert store.get("a/b") == b"first"
        store.put("a/c", b"unique", if_absent=True, unique=True)
        assert store.get("a/c") == b"unique"
        store.put("a/d", b"unique", unique=True)
        assert store.get("a/d") == b"unique"

    def test_if_match(self, store: ObjectStore) -> None:
        """Raise PreconditionFailed for an outdated etag, an unknown one, and an absent object."""
        first = store.put("a", b"first")
        second = store.put("a", b"second", if_match=first.etag)
        assert store.get("a") == b"second"
        assert store.head("a").etag == second.etag != first.etag
        for etag in (first.etag, "bogus", '"bogus"'):
            with pytest.raises(PreconditionFailed) as caught:
                store.put("a", b"third", if_match=etag)
            assert caught.value.key == "a"
        assert store.get("a") == b"second"
        assert store.put("a", b"third", if_match=second.etag).etag == store.head("a").etag
        store.delete(["a"])
        for key in ("a", "absent/too"):
            with pytest.raises(PreconditionFailed):
                store.put(key, b"fourth", if_match=second.etag)
        assert list(store.list()) == []
        for conditions in ({"if_absent": True}, {"unique": True}):
            with pytest.raises(ValueError):
                store.put("a", b"", if_match=first.etag, **conditions)

    # Around it

    def test_pickles(self, store: ObjectStore) -> None:
        """Use a copy of the store, as another process gets it, and copy what it returns."""
        store.put("a", b"hello")
        again = pickle.loads(pickle.dumps(store))
        assert again.get("a") == b"hello"
        assert (again.url(), again.storage_options) == (store.url(), store.storage_options)
        again.put("b", b"from the copy", if_absent=True)
        assert store.get("b") == b"from the copy"
        body = pickle.loads(pickle.dumps(store.get("a")))
        assert (body, body.meta) == (b"hello", store.head("a"))

    def test_urls(self, store: ObjectStore) -> None:
        """Return URLs that begin with a scheme and do not escape the key."""
        assert store.url("a/b c%41") == store.url() + "/a/b c%41"
        assert "://" in store.url()

    def test_shows_its_location_but_no_secret(self, store: ObjectStore) -> None:
        """Look for the values of the storage options in the store's repr."""
        shown = repr(store)
        for value in _strings(store.storage_options):
            assert value not in shown


class SharedObjectStoreSuite(ObjectStoreSuite, ProcessRaces):
    """Further tests for stores that processes share, which are all but those in memory."""


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "endpoint_url" and name != "region_name":
                yield from _strings(inner)
    elif isinstance(value, str):
        yield value
