"""What a key may be."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.errors import InvalidKey
from lake_core.store.key import check_key, check_prefix, check_start_after, is_key
from lake_core.testing.object_store_listing import HOSTILE_KEYS, ODD_KEYS


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_are_keys(key: str) -> None:
    assert check_key(key) == unicodedata.normalize("NFC", key)
    assert is_key(key)


@pytest.mark.parametrize("key", HOSTILE_KEYS, ids=lambda key: ascii(key[:16]))
def test_hostile_keys_are_none(key: str) -> None:
    assert not is_key(key)
    with pytest.raises(InvalidKey) as caught:
        check_key(key)
    assert caught.value.key == key
    assert len(str(caught.value)) < 500
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("a/../b", "the component '..'"),
        ("a//b", "the component ''"),
        ("a\tb", "a control character"),
        ("\udcff", "half of a surrogate pair"),
        ("x" * 256, "a component longer than 255 bytes"),
        ("a/" * 600 + "a", "longer than 1024 bytes"),
        (".lake-tmp-1", "reserved"),
        (b"a", "a key must be a str, not bytes"),
        (None, "a key must be a str, not NoneType"),
    ],
)
def test_reason_is_named(key: str, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        check_key(key)


def test_the_normal_form_is_measured() -> None:
    """U+FB1D is 3 bytes, and 4 in its normal form."""
    assert check_key("e\u0301" * 100) == "é" * 100
    assert check_key("\ufb1d" * 63) == "\u05d9\u05b4" * 63
    with pytest.raises(InvalidKey, match="longer than 255"):
        check_key("\ufb1d" * 80)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a/.", "a/..", "..", ".", ".lake-tmp-", "x" * 256])
def test_prefixes_end_anywhere(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize(
    "prefix",
    [
        "/",
        "/a",
        "a//",
        "a//b",
        "../",
        "../a",
        "a/../",
        "./",
        "a\0",
        "a/\udcff",
        "\udcff",
        "y" * 1025,
        ".lake-tmp-/x",
        7,
    ],
)
def test_hostile_prefixes(prefix: str) -> None:
    with pytest.raises(InvalidKey):
        check_prefix(prefix)


def test_prefix_is_normalised() -> None:
    assert check_prefix("cafe\u0301/e\u0301") == "café/é"


def test_start_after_is_taken_as_it_is() -> None:
    assert check_start_after("../e\u0301//") == "../e\u0301//"
    for start_after in ("\udcff", "a\0"):
        with pytest.raises(InvalidKey):
            check_start_after(start_after)


@given(st.text())
def test_a_key_stays_as_it_is_and_all_its_prefixes_are_prefixes(text: str) -> None:
    try:
        key = check_key(text)
    except InvalidKey:
        return
    assert check_key(key) == key
    assert is_key(key)
    for end in range(len(key) + 1):
        assert key.startswith(check_prefix(key[:end]))
