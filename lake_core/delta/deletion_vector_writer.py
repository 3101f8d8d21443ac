"""Writing deletion vectors: short ones into the log, the others of a commit into one file.

The statistics of a file that gets one say that its bounds may be those of deleted rows.

Protocol sections: Deletion Vectors, Deletion Vector Format.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from lake_core.delta.action_fields import ADD_FIELDS, DELETION_VECTOR
from lake_core.delta.deletion_vector import MAGIC, to_z85
from lake_core.delta.file_name import new_vector_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.store import ObjectStore

_VERSION = b"\x01"
_TIGHT = '"tightBounds"'
_INLINE_BYTES = 256
"""A vector of at most so many bytes is in the log itself, where it costs no request."""
_FILE_BYTES = 1 << 30
"""The bytes after which another file is begun, because offsets are numbers of 32 bits."""


def write_vectors(
    store: ObjectStore, vectors: Sequence[npt.NDArray[np.int64]], now: int
) -> list[dict[str, Any] | None]:
    """Write deletion vectors, and return their descriptors as in an add action (`deletionVector`).

    That of a vector without rows is None.

    Args:
        store: The store at the table's root.
        vectors: The numbers of the deleted rows of each file, ascending.
        now: Milliseconds since the epoch.

    Raises the store's errors.
    """
    descriptors: list[dict[str, Any] | None] = []
    file: list[tuple[dict[str, Any], bytes]] = []
    size = 0
    for rows in vectors:
        if not len(rows):
            descriptors.append(None)
            continue
        body = _body(rows)
        descriptor: dict[str, Any] = {"sizeInBytes": len(body), "cardinality": len(rows)}
        descriptors.append(descriptor)
        if len(body) <= _INLINE_BYTES:
            descriptor.update({"storageType": "i", "pathOrInlineDv": to_z85(body + bytes(-len(body) % 4))})
            continue
        if size > _FILE_BYTES:
            _put(store, file, now)
            file, size = [], 0
        file.append((descriptor, body))
        size += len(body)
    if file:
        _put(store, file, now)
    return descriptors


def with_vectors(actions: pa.Table, vectors: Sequence[dict[str, Any] | None], totals: Sequence[int]) -> pa.Table:
    """Return add actions with other deletion vectors, in the columns of `action_fields.ADD_FIELDS`.

    Args:
        actions: The actions, with their statistics.
        vectors: The descriptors.
        totals: The number of rows in each file, deleted ones included.
    """
    stats = [wide(text, total) for text, total in zip(actions["stats"].to_pylist(), totals, strict=True)]
    columns = {name: actions[name] for name in actions.column_names}
    columns["stats"] = pa.chunked_array([pa.array(stats, pa.string())])
    columns["deletionVector"] = pa.chunked_array([pa.array(vectors, DELETION_VECTOR)])
    return pa.table({name: columns.get(name, pa.nulls(len(actions), kind)) for name, kind in ADD_FIELDS})


def wide(stats: str | None, total: int) -> str:
    """Return the statistics of a file of which rows are deleted: its bounds may be those of deleted rows.

    `total`: the number of rows in the file, which its statistics must have from then on.
    """
    least = {"numRecords": total, "tightBounds": False}
    try:
        body = json.loads(stats or "{}")
    except ValueError:
        body = None
    if not isinstance(body, dict) or body.get("numRecords") != total or not stats:
        return json.dumps(least, separators=(",", ":"))
    if "tightBounds" not in body:
        return f'{stats.rstrip()[:-1]},"tightBounds":false}}'
    if body["tightBounds"] is False:
        return stats
    # Only this word changes: numbers keep all of their digits.
    head, _, tail = stats.rpartition(_TIGHT)
    text = f"{head}{_TIGHT}{tail.replace('true', 'false', 1)}"
    return text if json.loads(text) == body | {"tightBounds": False} else json.dumps(least, separators=(",", ":"))


def _body(rows: npt.NDArray[np.int64]) -> bytes:
    bitmap = pyroaring.BitMap64(rows.astype(np.uint64))
    bitmap.run_optimize()
    return struct.pack("<i", MAGIC) + bytes(bitmap.serialize())


def _put(store: ObjectStore, vectors: Sequence[tuple[dict[str, Any], bytes]], now: int) -> None:
    """Put vectors into one file, and complete their descriptors."""
    key, identity = new_vector_name(now)
    parts, offset = [_VERSION], len(_VERSION)
    for descriptor, body in vectors:
        descriptor.update({"storageType": "u", "pathOrInlineDv": to_z85(identity.bytes), "offset": offset})
        parts += [struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body))]
        offset += 4 + len(body) + 4
    store.put(key, b"".join(parts), unique=True)
