"""Deletion vectors: the deleted rows of a data file. Protocol sections: Deletion Vectors, Deletion Vector Format.

All storage kinds are read: inline, in a file with a random name in the table's folder, and at an absolute path under
the table's root or another root that the caller allows.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyroaring

from lake_core.dataset import AtLeast, Sizes, add_sizes
from lake_core.delta.errors import CorruptDeletionVector, DeletionVectorMissing, PathOutsideTable
from lake_core.delta.path import data_key, locate
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lake_core.store import ObjectStore

MAGIC = 1681511377
_UUID_LENGTH = 20
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_RFC1924, _TO_Z85 = str.maketrans(_Z85, _RFC1924), str.maketrans(_RFC1924, _Z85)


def deleted_rows(
    store: ObjectStore, descriptor: Mapping[str, Any], allowed_roots: Sequence[ObjectStore] = ()
) -> npt.NDArray[np.int64]:
    """Return the row numbers, ascending, that a descriptor (an add's `deletionVector`) marks as deleted.

    `store` is the table's; an absolute path may also lie under one of the `allowed_roots`.

    Raises PathOutsideTable; CorruptDeletionVector if it cannot be read or its number of rows is wrong.
    """
    where = f"deletion vector {descriptor.get('storageType')}{descriptor.get('pathOrInlineDv')!r}"
    try:
        body = _body((store, *allowed_roots), descriptor)
        (magic,) = struct.unpack_from("<i", body)
        if magic != MAGIC:
            raise ValueError(f"magic number {magic}")
        rows = np.array(pyroaring.BitMap64.deserialize(body[4:]).to_array(), dtype=np.uint64).astype(np.int64)
    except NotFound as error:
        raise DeletionVectorMissing(f"{where} is gone ({error}). Restore its file from a backup") from None
    except (ValueError, TypeError, LookupError, OverflowError, struct.error) as error:
        raise CorruptDeletionVector(f"{where} cannot be read ({error}). Restore its file from a backup") from None
    if len(rows) != descriptor.get("cardinality"):
        raise CorruptDeletionVector(f"{where} holds {len(rows)} rows instead of {descriptor.get('cardinality')}")
    return rows


def _body(roots: Sequence[ObjectStore], descriptor: Mapping[str, Any]) -> bytes:
    size = descriptor["sizeInBytes"]
    if not isinstance(size, int) or size < 4:
        raise ValueError(f"a size of {size!r} bytes")
    if descriptor["storageType"] == "i":
        decoded = from_z85(descriptor["pathOrInlineDv"])
        if not 0 <= len(decoded) - size < 4:
            raise ValueError(f"{len(decoded)} bytes instead of {size}")
        return decoded[:size]
    number, key = locate_vector(descriptor, roots)
    store = roots[number]
    offset = descriptor.get("offset") or 0
    stored = bytes(store.get(key, offset, offset + 4 + size + 4))
    (length,) = struct.unpack_from(">i", stored)
    body = stored[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", stored, 4 + size)
    if length != size or zlib.crc32(body) != checksum:
        raise ValueError("its length or checksum is wrong")
    return body


def locate_vector(descriptor: Mapping[str, Any], roots: Sequence[ObjectStore]) -> tuple[int, str]:
    """Return the root that the file of a deletion vector is under, and its key there; see `path.locate`."""
    kind, text = descriptor["storageType"], descriptor["pathOrInlineDv"]
    if kind == "u":
        return 0, _relative_key(text)
    if kind == "p":
        return locate(text, roots)
    raise ValueError(f"unknown storage type {kind!r}")


def vector_keys(files: pa.Table, store: ObjectStore) -> Sizes:
    """Return the keys, under the table's root, of the files that hold the deletion vectors of file actions.

    Each has the size up to the last vector that is named.

    Raises CorruptDeletionVector for a vector without a valid file name: its file must not be taken for an orphan.
    """
    if "deletionVector" not in files.column_names or files["deletionVector"].null_count == len(files):
        return {}
    keys: Sizes = {}
    for vector in files["deletionVector"].drop_null().to_pylist():
        kind, text = vector["storageType"], vector["pathOrInlineDv"]
        try:
            if kind == "u":
                key = _relative_key(text)
            elif kind == "p":
                key = data_key(text, store)
            else:
                continue
            add_sizes(keys, [(key, _end(vector))])
        except PathOutsideTable:
            continue  # another table's
        except (ValueError, TypeError) as error:
            raise CorruptDeletionVector(f"deletion vector {kind}{text!r} names no file: {error}") from None
    return keys


def _end(descriptor: Mapping[str, Any]) -> AtLeast | None:
    """Return where a vector ends in its file, after its length, its bytes and its checksum."""
    size = descriptor["sizeInBytes"]
    return None if size is None else AtLeast((descriptor["offset"] or 0) + 4 + size + 4)


def vector_file_problem(data: bytes) -> str | None:
    """Return what is wrong with a file of deletion vectors, of which each has a length and a checksum."""
    if data[:1] != b"\x01":
        return "it does not begin with the version of a file of deletion vectors"
    at = 1
    while at < len(data):
        if at + 8 > len(data):
            return f"it ends inside the deletion vector at byte {at}"
        (size,) = struct.unpack_from(">i", data, at)
        if size < 0 or at + 8 + size > len(data):
            return f"it ends inside the deletion vector at byte {at}"
        (checksum,) = struct.unpack_from(">I", data, at + 4 + size)
        if zlib.crc32(data[at + 4 : at + 4 + size]) != checksum:
            return f"the checksum of the deletion vector at byte {at} is wrong"
        at += 8 + size
    return None


def _relative_key(text: str) -> str:
    folder, name = text[:-_UUID_LENGTH], uuid.UUID(bytes=from_z85(text[-_UUID_LENGTH:]))
    return f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"


def to_z85(data: bytes) -> str:
    """Encode whole groups of four bytes as Z85."""
    return base64.b85encode(data).decode().translate(_TO_Z85)


def from_z85(text: str) -> bytes:
    """Decode Z85, which differs from Python's own base 85 only in the alphabet.

    A last group of fewer than four bytes has fewer letters, or, by some writers, `#` in front, with which no full group
    begins.
    """
    last = text[-5:]
    padding = len(last) - len(last.lstrip("#"))
    if not 0 < padding < 4 or len(text) % 5:
        return base64.b85decode(text.translate(_TO_RFC1924))
    value = 0
    for character in last[padding:]:
        value = value * 85 + _Z85.index(character)
    return base64.b85decode(text[:-5].translate(_TO_RFC1924)) + value.to_bytes(4 - padding, "big")
