"""The objects whose content `verify` has compared with their names. The next run reads only other objects."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lake_core.lake.gc.checked_file import read_checked, write_checked

if TYPE_CHECKING:
    from lake_core.store import ObjectMeta, ObjectStore

RECORD = "_lake/gc/verified"
_DIGEST = 16
"""The number of bytes per object in the record."""


class VerifiedObjects:
    """Objects by key, etag and size. An object that was written again is another object."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    @classmethod
    def read(cls, root: ObjectStore) -> VerifiedObjects:
        """Read the record of the last run. Empty if it is missing or damaged."""
        verified = cls()
        content = read_checked(root, RECORD) or b""
        verified._digests = {content[at : at + _DIGEST] for at in range(0, len(content), _DIGEST)}
        return verified

    def write(self, root: ObjectStore) -> None:
        """Replace the record. Without effect for a caller who may only read the lake."""
        write_checked(root, RECORD, b"".join(sorted(self._digests)))

    def add(self, meta: ObjectMeta) -> None:
        """Add an object as it is now."""
        self._digests.add(_digest(meta))

    def __contains__(self, meta: ObjectMeta) -> bool:
        return _digest(meta) in self._digests


def _digest(meta: ObjectMeta) -> bytes:
    return hashlib.blake2b(f"{meta.key}\n{meta.etag}\n{meta.size}".encode(), digest_size=_DIGEST).digest()
