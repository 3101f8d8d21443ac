"""Identities and names: SHA-256 over a typed encoding (lakeFS's `ident`), and the data model's own `fileID`."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from lake_core.graveler.record import join_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

RANGES: Mapping[str, str] = {"type": "ranges"}
METARANGES: Mapping[str, str] = {"type": "metaranges"}
AFTER_HASHING = frozenset({"min_key", "max_key", "count", "estimated_size_bytes", "file_id"})
"""Properties of a file that are not part of its name."""

_BATCH = 4096


def range_id(records: Iterable[tuple[bytes, bytes, bytes]], *, properties: Mapping[str, str] = RANGES) -> str:
    """Return the name of a range, or with other `properties` of a metarange: hex SHA-256 of records and properties."""
    return table_id(((key, join_value(identity, value)) for key, identity, value in records), properties)


def table_id(pairs: Iterable[tuple[bytes, bytes]], properties: Mapping[str, str]) -> str:
    """Return the same as `range_id`, for keys with their joined values."""
    digest, batch = sha256(), []
    for key, value in pairs:
        batch.append(b"%d%b|%d%b|" % (len(key), key, len(value), value))
        if len(batch) >= _BATCH:
            digest.update(b"".join(batch))
            batch.clear()
    digest.update(b"".join(batch))
    digest.update(_string_map(properties))
    return digest.hexdigest()


def file_id(records: Iterable[tuple[bytes, bytes, bytes]]) -> str:
    """Return the data model's fileID, in hex: h over the records' ids, each h(h(key) || h(identity))."""
    return file_id_of((record[0], record[1]) for record in records)


def file_id_of(identities: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the same as `file_id`, for (key, identity)."""
    return sha256(b"".join([_record_id(key, identity) for key, identity in identities])).hexdigest()


@lru_cache(maxsize=16384)
def _record_id(key: bytes, identity: bytes) -> bytes:
    """Return h(h(key) || h(identity)). A range that is written again has nearly all of its records once more."""
    return sha256(sha256(key).digest() + sha256(identity).digest()).digest()


def entry_identity(size: int, etag: str, metadata: Mapping[str, str], content_type: str) -> bytes:
    """Return the 32 bytes that are equal for equal entries. They do not depend on path, address and time."""
    kind = _string(content_type) if content_type else b""
    return sha256(_int64(size) + _string(etag) + _string_map(metadata) + kind).digest()


def commit_id(
    committer: str,
    message: str,
    metarange_id: str,
    creation_date: datetime | int,
    metadata: Mapping[str, str],
    parents: Sequence[str],
) -> str:
    """Return a commit's id in hex. `creation_date` is a time with a zone, or whole seconds since the epoch.

    Raises ValueError for a time without a zone.
    """
    ancestry = sha256(b"\x03" + _int64(len(parents)) + b"".join(map(_string, parents))).digest()
    return sha256(
        _string("commit:v1")
        + _string(committer)
        + _string(message)
        + _string(metarange_id)
        + _int64(epoch_seconds(creation_date))
        + _string_map(metadata)
        + b"\x05\x00"
        + _int64(len(ancestry))
        + ancestry
    ).hexdigest()


def epoch_seconds(moment: datetime | int) -> int:
    """Return whole seconds since the epoch, rounded down. Raises ValueError for a time without a zone."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise ValueError("a commit's creation date needs a time zone")
    return int(moment.timestamp() // 1)


def _int64(number: int) -> bytes:
    return b"\x02\x08" + (number & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return b"\x01" + _int64(len(encoded)) + encoded


def _string_map(pairs: Mapping[str, str]) -> bytes:
    ordered = sorted(pairs.items(), key=lambda pair: pair[0].encode())
    return b"\x04" + _int64(len(ordered)) + b"".join(_string(key) + _string(value) for key, value in ordered)
