"""Writing deletion vectors: short ones into the log, the others of a commit into one file.

Protocol sections: Deletion Vectors, Deletion Vector Format.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyroaring

from lake_core.delta.deletion_vector import MAGIC, to_z85
from lake_core.delta.file_name import new_vector_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.store import ObjectStore

_VERSION = b"\x01"
_INLINE_BYTES = 256
"""A vector of at most so many bytes is in the log itself, where it costs no request."""
_FILE_BYTES = 1 << 30
"""The bytes after which another file is begun, because offsets are numbers of 32 bits."""


def write_vectors(store: ObjectStore, vectors: Sequence[npt.NDArray[np.int64]], now: int) -> list[dict[str, Any]]:
    """Write deletion vectors, and return their descriptors as in an add action (`deletionVector`).

    Args:
        store: The store at the table's root.
        vectors: The numbers of the deleted rows of each file, ascending.
        now: Milliseconds since the epoch.

    Raises the store's errors.
    """
    descriptors: list[dict[str, Any]] = []
    file: list[tuple[int, bytes]] = []
    size = 0
    for number, rows in enumerate(vectors):
        body = _body(rows)
        descriptors.append({"sizeInBytes": len(body), "cardinality": len(rows)})
        if len(body) <= _INLINE_BYTES:
            padded = body + bytes(-len(body) % 4)
            descriptors[number].update({"storageType": "i", "pathOrInlineDv": to_z85(padded)})
            continue
        if size > _FILE_BYTES:
            _put(store, file, descriptors, now)
            file, size = [], 0
        file.append((number, body))
        size += len(body)
    if file:
        _put(store, file, descriptors, now)
    return descriptors


def _body(rows: npt.NDArray[np.int64]) -> bytes:
    bitmap = pyroaring.BitMap64(rows.astype(np.uint64))
    bitmap.run_optimize()
    return struct.pack("<i", MAGIC) + bytes(bitmap.serialize())


def _put(
    store: ObjectStore, file: Sequence[tuple[int, bytes]], descriptors: Sequence[dict[str, Any]], now: int
) -> None:
    """Put vectors into one file, and complete their descriptors."""
    key, identity = new_vector_name(now)
    parts, offset = [_VERSION], len(_VERSION)
    for number, body in file:
        descriptors[number].update({"storageType": "u", "pathOrInlineDv": to_z85(identity.bytes), "offset": offset})
        parts += [struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body))]
        offset += 4 + len(body) + 4
    store.put(key, b"".join(parts), unique=True)
