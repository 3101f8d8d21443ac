"""Tests of listings and unusual keys: a part of `ObjectStoreSuite`."""

from __future__ import annotations

import unicodedata
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import pytest

from lake_core.errors import AlreadyExists, InvalidKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake_core.store.object_store import ObjectMeta, ObjectStore

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
    "next\u0085line",
    "line\u2028separator",
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
    "\ud800",
    "x" * 256,
    "é" * 128,
    "a/" * 512 + "b",
    ".lake-tmp-x",
    "a/.lake-tmp-x/b",
)


class ObjectStoreListing:
    """Tests of listings and keys."""

    many: ClassVar[int] = 1003
    """The number of objects of the long listing: more than one page of the store."""
    odd_keys: ClassVar[tuple[str, ...]] = ODD_KEYS
    """Unusual keys that the store must take. Leave out those that the service itself cannot hold."""
    dots_before_a_space: ClassVar[bool] = True
    """Whether the service can hold keys with a part such as ". ", which some take for the folder itself."""

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
        assert keys_of(store.list()) == keys
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
            assert keys_of(store.list(prefix)) == expected, prefix
            for start in starts if prefix in ("", "b", "b/a") else ():
                assert keys_of(store.list(prefix, start_after=start)) == [key for key in expected if key > start], (
                    prefix,
                    start,
                )

    def test_lists_from_positions_that_are_no_keys(self, store: ObjectStore) -> None:
        """List prefixes and start after texts whose neighbors have empty, "." or ".." parts."""
        dotted = [". ", ".. ", "1/. "] if self.dots_before_a_space else []
        keys = sorted([" ", "0", "00", "1/0", "1/00", "2", *dotted])
        for key in keys:
            store.put(key, b"")
        for prefix in ("0", ". ", ".. ", "1/0", "1/. "):
            assert keys_of(store.list(prefix)) == [key for key in keys if key.startswith(prefix)], prefix
        for start in ("/", "/0", "//", ".", "./", "..", "../0", "0//", "0//x", "1/.", "1/./x", "1/..", "1/../x"):
            assert keys_of(store.list(start_after=start)) == [key for key in keys if key > start], start

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
        assert keys_of(store.list()) == keys
        assert keys_of(store.list("many/3/")) == [key for key in keys if key.startswith("many/3/")]
        assert keys_of(store.list("many/", start_after=keys[-3])) == keys[-2:]
        assert keys_of(islice(store.list(), 3)) == keys[:3]
        assert store.list_folders("many/") == [str(i) for i in range(7)]
        store.delete(keys[1:])
        assert keys_of(store.list()) == keys[:1]

    # Keys

    def test_odd_keys(self, store: ObjectStore) -> None:
        """Use `odd_keys` in each operation."""
        keys = sorted(self.odd_keys)
        for key in keys:
            store.put(key, key.encode(), if_absent=True)
        assert keys_of(store.list()) == keys
        for key in keys:
            assert store.get(key) == key.encode()
            assert keys_of(store.list(key)) == [other for other in keys if other.startswith(key)]
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
        assert keys_of(store.list()) == [composed]
        for key in (composed, decomposed):
            assert store.get(key) == b"first"
            assert store.head(key).key == composed
            assert store.get_many([key, key]) == [b"first", b"first"]
            folder = key.partition("/")[0] + "/"
            assert keys_of(store.list(folder)) == [composed]
            assert store.list_folders() == ["café"]
        store.delete([decomposed])
        assert not store.exists(composed)


def keys_of(metas: Iterator[ObjectMeta]) -> list[str]:
    """Return the keys of a listing."""
    return [meta.key for meta in metas]
