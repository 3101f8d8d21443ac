"""Files that a run of maintenance leaves for the next one: the SHA-256 of the content, a line break, the content."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

from lake_core.errors import NotFound, StoreError

if TYPE_CHECKING:
    from lake_core.store import ObjectStore


def read_checked(root: ObjectStore, key: str) -> bytes | None:
    """Return the content of a file, or None if it is missing or damaged. It is then computed again."""
    try:
        checksum, _, content = root.get(key).partition(b"\n")
    except NotFound:
        return None
    return content if hashlib.sha256(content).hexdigest().encode() == checksum else None


def write_checked(root: ObjectStore, key: str, content: bytes) -> None:
    """Replace a file. Has no effect without write access to the lake: the next run computes the content again."""
    with suppress(StoreError):
        root.put(key, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
