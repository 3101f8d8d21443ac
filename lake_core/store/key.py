"""The rules for keys, which are checked here once, before a backend gets a key.

A key is relative, separated by `/` and in Unicode NFC. Refused are empty, `.` and `..` components, components over 255
bytes, keys over 1,024 bytes (S3's limit), control characters, lone surrogates, and this package's temporary names.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from lake_core.errors import InvalidKey

TEMPORARY_PREFIX = ".lake-tmp-"
"""Components that start with this are half-written files of a backend: never listed, never a key."""

_CONTROL = re.compile("[\x00-\x1f\x7f]")
"""What the listings of object stores, which are XML, cannot hold. Spark names files with all others, raw."""
_PLAIN = re.compile(r"(?:[A-Za-z0-9_=%-][A-Za-z0-9_=%.-]{0,254}/)*[A-Za-z0-9_=%-][A-Za-z0-9_=%.-]{0,254}")
"""A pattern that most keys match, which need no further checks."""
_MAX_COMPONENT = 255
_MAX_KEY = 1024


def check_key(key: str) -> str:
    """Return a key in its normal form (NFC). Raises InvalidKey with the reason."""
    return _normal_key(key) if isinstance(key, str) else _check_text(key, "key")


@lru_cache(maxsize=1 << 14)
def _normal_key(key: str) -> str:
    normal = _check_text(key, "key")
    _check_components(normal, key, "key")
    return normal


def check_prefix(prefix: str) -> str:
    """Return a prefix of keys in its normal form: as a key, but it may be empty or end within or after a component."""
    normal = _check_text(prefix, "prefix")
    folder, slash, _ = normal.rpartition("/")
    if slash:
        _check_components(folder, prefix, "prefix")
    return normal


def check_start_after(start_after: str) -> str:
    """Check where a listing continues: any text, not only a key.

    The text is used unchanged, because a listed key may be in another normal form.
    """
    _check_text(start_after, "start_after")
    return start_after


def is_key(name: str) -> bool:
    """Return whether a name in a store can be a key.

    Others (folder markers, temporary files, names of foreign tools) are not listed.
    """
    if len(name) <= _MAX_KEY and _PLAIN.fullmatch(name):
        return True
    try:
        check_key(name)
    except InvalidKey:
        return False
    return len(name.encode()) <= _MAX_KEY


def _check_text(text: str, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidKey(f"a {what} must be a str, not {type(text).__name__}", key=None)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidKey(
            f"{what} {text[:80]!r} holds half of a surrogate pair, which is not Unicode text", key=text
        ) from None
    if _CONTROL.search(text):
        raise InvalidKey(f"{what} {text[:80]!r} holds a control character", key=text)
    # The normal form is checked, because it is stored and can be longer than the given text.
    normal = unicodedata.normalize("NFC", text)
    if len(normal.encode()) > _MAX_KEY:
        raise InvalidKey(f"{what} {text[:80]!r}… is longer than {_MAX_KEY} bytes", key=text)
    return normal


def _check_components(normal: str, raw: str, what: str) -> None:
    for component in normal.split("/"):
        if component in ("", ".", ".."):
            raise InvalidKey(
                f"{what} {raw[:80]!r} has the component {component!r}, but keys must be relative, "
                "without empty parts, '.' and '..'",
                key=raw,
            )
        if len(component.encode()) > _MAX_COMPONENT:
            raise InvalidKey(f"{what} {raw[:80]!r}… has a component longer than {_MAX_COMPONENT} bytes", key=raw)
        if component.startswith(TEMPORARY_PREFIX):
            raise InvalidKey(
                f"{what} {raw[:80]!r} has a component that starts with {TEMPORARY_PREFIX!r}, which is reserved", key=raw
            )
