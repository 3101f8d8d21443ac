"""The contract of an object store, in executable form.

Subclass it in a test module and say how to make a fresh, empty store:

    class TestMyStore(SharedObjectStoreSuite):
        @pytest.fixture
        def store(self) -> Iterator[ObjectStore]:
            yield MyStore(...)
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest

from lake_core.errors import AlreadyExists, InvalidKey, NotFound, PreconditionFailed, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake_core.store.object_store import ObjectMeta, ObjectStore

_T = TypeVar("_T")
_CLOCK = timedelta(seconds=5)
"""How far the time that `put` tells may be off the time that `head` tells."""

ODD_KEYS = (
    "a b",
    " a",
    "a ",
    "%",
    "%41",
    "a%2Fb",
    "%2e%2e/x",
    "+",
    "a+b=c&d?e#f",
    "'single' \"double\" `back`",
    "<xml>&amp;</xml>",
    "back\\slash",
    "colon:semi;comma,",
    "*[glob]{}?",
    "~",
    "$HOME",
    "@",
    "..a",
    "a..",
    "...",
    ".hidden/.file",
    "-",
    "ключ/鍵/مفتاح",
    "😀/🏳️‍🌈.parquet",
    "col=2024-01-01 00%3A00/part",
    "x" * 255,
    "/".join(["y" * 200] * 4),
)

HOSTILE_KEYS = (
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    "a/./b",
    "/etc/passwd",
    "/",
    "a//b",
    "a/",
    "a\nb",
    "a\0b",
    "a\x7fb",
    "a\u0085b",
    "a\u2028b",
    "\ud800",
    "x" * 256,
    "é" * 128,
    "a/" * 512 + "b",
    ".lake-tmp-x",
    "a/.lake-tmp-x/b",
)


class ObjectStoreSuite:
    """Tests of what every object store must do. Override `store`."""

    many: ClassVar[int] = 1003
    """How many objects the long listing has: more than one page of the store."""
    large: ClassVar[int] = 120_000_000
    """The size in bytes of the large object: more than the store's client sends or receives in one piece."""
    threads: ClassVar[int] = 16
    """How many threads race."""
    odd_keys: ClassVar[tuple[str, ...]] = ODD_KEYS
    """Unusual keys that the store must take. Leave out those that the service itself cannot hold."""

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
        """Put bytearrays and memoryviews, strided ones too; a text is a TypeError."""
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
        assert _keys(store.list()) == ["b/d", "e"]
        store.delete(["a", "b/d"])
        store.delete([])
        assert _keys(store.list()) == ["e"]
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

    # Listing

    def test_lists_in_the_order_of_bytes(self, store: ObjectStore) -> None:
        """List by prefixes and after keys, in the order of the keys' UTF-8 bytes."""
        keys = [
            "Z",
            "a",
            "b-c",
            "b/a-",
            "b/a/x",
            "b/a0/x",
            "b/aa",
            "b0",
            "b1/x",
            "c d/e",
            "c/d",
            "cd",
            "z/y/x/w",
            "é",
            "ｆ",
            "😀",
        ]
        assert keys == sorted(keys, key=str.encode)
        for key in reversed(keys):
            store.put(key, b"")
        assert _keys(store.list()) == keys
        prefixes = [
            "",
            "a",
            "b",
            "b/",
            "b/a",
            "b/a/",
            "b/a-",
            "b0",
            "c",
            "c d",
            "c/",
            "z/y/",
            "z/y/x/w",
            "zz",
            "é",
            "..",
            "b/..",
        ]
        prefixes += keys
        starts = [
            "",
            "a",
            "b",
            "b-",
            "b/",
            "b/a",
            "b/a/",
            "b/a/x",
            "b/a/y",
            "b/a0",
            "b1/x",
            "c/d",
            "~",
            "é",
            "\U0010ffff",
            *keys,
        ]
        for prefix in prefixes:
            expected = [key for key in keys if key.startswith(prefix)]
            assert _keys(store.list(prefix)) == expected, prefix
            for start in starts if prefix in ("", "b", "b/a") else ():
                assert _keys(store.list(prefix, start_after=start)) == [key for key in expected if key > start], (
                    prefix,
                    start,
                )

    def test_lists_from_places_that_are_no_keys(self, store: ObjectStore) -> None:
        """List prefixes and start behind texts whose neighbors have empty, "." or ".." parts."""
        keys = [" ", ". ", ".. ", "0", "00", "1/. ", "1/0", "1/00", "2"]
        for key in keys:
            store.put(key, b"")
        for prefix in ("0", ". ", ".. ", "1/0", "1/. "):
            assert _keys(store.list(prefix)) == [key for key in keys if key.startswith(prefix)], prefix
        for start in ("/", "/0", "//", ".", "./", "..", "../0", "0//", "0//x", "1/.", "1/./x", "1/..", "1/../x"):
            assert _keys(store.list(start_after=start)) == [key for key in keys if key > start], start

    def test_lists_folders(self, store: ObjectStore) -> None:
        """List the names in a folder in the order of their keys; an empty folder does not exist."""
        for key in ("a/b/c", "a/b/d", "a/c", "a-b/x", "b", "é/x", "a/😀 x/y/z"):
            store.put(key, b"")
        # As their keys: "a-b/x" < "a/b/c".
        assert store.list_folders() == ["a-b", "a", "é"]
        assert store.list_folders("a/") == ["b", "😀 x"]
        assert store.list_folders("a/b/") == store.list_folders("b/") == []
        store.delete(["a/b/c", "a/b/d"])
        assert store.list_folders("a/") == ["😀 x"]
        with pytest.raises(ValueError):
            store.list_folders("a")

    def test_lists_more_than_a_page(self, store: ObjectStore) -> None:
        """List, continue and delete `many` objects, more than one request of the store covers."""
        keys = [f"many/{i % 7}/{i:05}" for i in range(self.many)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b""), keys))
        keys.sort()
        assert _keys(store.list()) == keys
        assert _keys(store.list("many/3/")) == [key for key in keys if key.startswith("many/3/")]
        assert _keys(store.list("many/", start_after=keys[-3])) == keys[-2:]
        assert _keys(islice(store.list(), 3)) == keys[:3]
        assert store.list_folders("many/") == [str(i) for i in range(7)]
        store.delete(keys[1:])
        assert _keys(store.list()) == keys[:1]

    # Keys

    def test_odd_keys(self, store: ObjectStore) -> None:
        """Use `odd_keys` in each operation."""
        keys = sorted(self.odd_keys)
        for key in keys:
            store.put(key, key.encode(), if_absent=True)
        assert _keys(store.list()) == keys
        for key in keys:
            assert store.get(key) == key.encode()
            assert _keys(store.list(key)) == [other for other in keys if other.startswith(key)]
            etag = store.head(key).etag
            store.put(key, b"2" + key.encode(), if_match=etag)
            with pytest.raises(AlreadyExists):
                store.put(key, b"3", if_absent=True)
        assert [bytes(body) for body in store.get_many(keys)] == [b"2" + key.encode() for key in keys]
        store.delete(keys)
        assert list(store.list()) == []

    def test_hostile_keys_are_refused(self, store: ObjectStore) -> None:
        """Raise InvalidKey for `HOSTILE_KEYS` in each operation."""
        uses: list[Callable[[str], object]] = [
            lambda key: store.get(key),
            lambda key: store.get_many([key]),
            lambda key: store.put(key, b""),
            lambda key: store.put(key, b"", if_absent=True),
            lambda key: store.put(key, b"", if_match="x"),
            lambda key: store.head(key),
            lambda key: store.exists(key),
            lambda key: store.delete([key]),
            lambda key: list(store.list(key + "/")),
            lambda key: store.list_folders(key + "/"),
        ]
        for key in HOSTILE_KEYS:
            for number, use in enumerate(uses):
                try:
                    use(key)
                except InvalidKey:
                    continue
                pytest.fail(f"use {number} of the key {key!a} was not refused")
        assert list(store.list()) == []

    def test_normal_forms_of_unicode_are_one_key(self, store: ObjectStore) -> None:
        """Put under one form, and read, list and delete under both."""
        composed = "café/Å"
        decomposed = unicodedata.normalize("NFD", composed)
        assert composed != decomposed
        store.put(decomposed, b"first", if_absent=True)
        with pytest.raises(AlreadyExists):
            store.put(composed, b"second", if_absent=True)
        assert _keys(store.list()) == [composed]
        for key in (composed, decomposed):
            assert store.get(key) == b"first"
            assert store.head(key).key == composed
            assert store.get_many([key, key]) == [b"first", b"first"]
            folder = key.partition("/")[0] + "/"
            assert _keys(store.list(folder)) == [composed]
            assert store.list_folders() == ["café"]
        store.delete([decomposed])
        assert not store.exists(composed)

    # Concurrency

    def test_one_of_many_threads_creates(self, store: ObjectStore) -> None:
        """Put with `if_absent` from many threads at once."""
        for turn in range(3):
            self._assert_one_wins(store, f"race/{turn}", None)

    def test_one_of_many_threads_replaces(self, store: ObjectStore) -> None:
        """Put with `if_match` and the same etag from many threads at once."""
        for _ in range(3):
            self._assert_one_wins(store, "race", store.put("race", b"begin").etag)

    def _assert_one_wins(self, store: ObjectStore, key: str, etag: str | None) -> None:
        won = _race(
            self.threads, lambda i: _won(lambda: store.put(key, b"%d" % i, if_absent=etag is None, if_match=etag))
        )
        assert sum(won) == 1
        assert store.get(key) == b"%d" % won.index(True)

    def test_counting_by_if_match_loses_nothing(self, store: ObjectStore) -> None:
        """Count in eight threads, each of which reads again after a lost race."""
        store.put("count", b"0")
        _race(8, lambda _: _count(store, 5))
        assert store.get("count") == b"40"

    def test_readers_see_objects_whole(self, store: ObjectStore) -> None:
        """Read and list an object while it is replaced by others of other sizes."""
        sizes = [300_000, 1, 120_000, 70_000]
        store.put("a", b"x" * sizes[0])
        finished = threading.Event()
        letters: set[bytes] = set()

        def read() -> None:
            while not finished.is_set():
                body = store.get("a")
                assert body.size == len(body)
                assert len(set(body)) == 1
                letters.add(body[:1])
                assert next(iter(store.list("a"))).size in sizes

        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(read) for _ in range(2)]
            try:
                for i in range(40):
                    store.put("a", bytes([65 + i % 26]) * sizes[i % len(sizes)])
            finally:
                finished.set()
            for future in reading:
                future.result()
        assert letters

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

    def test_shows_its_place_but_no_secret(self, store: ObjectStore) -> None:
        """Look for the values of the storage options in the store's repr."""
        shown = repr(store)
        for value in _strings(store.storage_options):
            assert value not in shown


class SharedObjectStoreSuite(ObjectStoreSuite):
    """Further tests of stores that processes share: all but those in memory."""

    def test_one_of_many_processes_wins(self, store: ObjectStore) -> None:
        """Create, replace and count, in processes that were spawned."""
        store.put("race/match", b"begin")
        store.put("count", b"0")
        context = multiprocessing.get_context("spawn")
        barrier, results = context.Barrier(4), context.Queue()
        processes = [context.Process(target=_run_process, args=(store, i, barrier, results)) for i in range(4)]
        for process in processes:
            process.start()
        outcomes = [results.get(timeout=120) for _ in processes]
        for process in processes:
            process.join(timeout=60)
        assert [outcome for outcome in outcomes if isinstance(outcome, str)] == []
        for turn, key in enumerate(("race/absent", "race/match")):
            winners = [index for index, *won in outcomes if won[turn]]
            assert len(winners) == 1
            assert store.get(key) == b"%d" % winners[0]
        assert store.get("count") == b"20"


def _keys(metas: Iterator[ObjectMeta]) -> list[str]:
    return [meta.key for meta in metas]


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "endpoint_url" and name != "region_name":
                yield from _strings(inner)
    elif isinstance(value, str):
        yield value


def _won(put: Callable[[], object]) -> bool:
    try:
        put()
    except (AlreadyExists, PreconditionFailed):
        return False
    return True


def _race(threads: int, run: Callable[[int], _T]) -> list[_T]:
    """Return the results of `run(0)` … `run(threads - 1)`, started at the same moment."""
    barrier = threading.Barrier(threads)

    def begin(i: int) -> _T:
        barrier.wait(30)
        return run(i)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def _count(store: ObjectStore, times: int) -> None:
    for _ in range(times):
        while not _counted(store):
            pass


def _counted(store: ObjectStore) -> bool:
    now = store.get("count")
    return _won(lambda: store.put("count", b"%d" % (int(now) + 1), if_match=now.etag))


def _run_process(store: ObjectStore, index: int, barrier: Any, results: Any) -> None:
    try:
        begin = store.head("race/match").etag
        barrier.wait(60)
        absent = _won(lambda: store.put("race/absent", b"%d" % index, if_absent=True))
        barrier.wait(60)
        match = _won(lambda: store.put("race/match", b"%d" % index, if_match=begin))
        barrier.wait(60)
        _count(store, 5)
    except (StoreError, threading.BrokenBarrierError) as error:
        results.put(f"{type(error).__name__}: {error}")
    else:
        results.put((index, absent, match))
