"""The objects whose content `verify` has compared with their names. The next run reads only other objects."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from functools import partial
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
        # Digests one after the other, because a set of them takes seven times the memory.
        self._earlier = b""
        """Those of the last run, in order."""
        self._added = bytearray()

    @classmethod
    def read(cls, root: ObjectStore) -> VerifiedObjects:
        """Read the record of the last run. Empty if it is missing or damaged."""
        verified = cls()
        verified._earlier = read_checked(root, RECORD) or b""
        return verified

    def write(self, root: ObjectStore) -> None:
        """Replace the record by the objects that were added. Has no effect for a caller who may only read the lake."""
        digests = {_part(self._added, index) for index in range(len(self._added) // _DIGEST)}
        write_checked(root, RECORD, b"".join(sorted(digests)))

    def add(self, meta: ObjectMeta) -> None:
        """Add an object as it is now, for the next run."""
        self._added += _digest(meta)

    def __contains__(self, meta: ObjectMeta) -> bool:
        """Return whether the record of the last run has an object as it is now."""
        digest = _digest(meta)
        count = len(self._earlier) // _DIGEST
        index = bisect_left(range(count), digest, key=partial(_part, self._earlier))
        return index < count and _part(self._earlier, index) == digest


def _part(digests: bytes | bytearray, index: int) -> bytes:
    return bytes(digests[index * _DIGEST : (index + 1) * _DIGEST])


def _digest(meta: ObjectMeta) -> bytes:
    return hashlib.blake2b(f"{meta.key}\n{meta.etag}\n{meta.size}".encode(), digest_size=_DIGEST).digest()
