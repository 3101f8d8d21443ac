"""Deletion vectors of every storage kind, and damaged ones: a deleted row never comes back, no other is lost."""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from typing import Any

import pyroaring
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.deletion_vector import _RFC1924, _Z85
from lake_core.delta.errors import CorruptDeletionVector, DeltaError, PathOutsideTable
from lake_core.delta.log_segment import commit_key
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows

PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}


def _z85(data: bytes) -> str:
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).decode().translate(str.maketrans(_RFC1924, _Z85))


def _bitmap(deleted: list[int]) -> bytes:
    return struct.pack("<i", 1681511377) + pyroaring.BitMap64(deleted).serialize()


def _file(store: MemoryStore, key: str, body: bytes, offset: int = 1) -> None:
    store.put(key, b"\x01" * offset + struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body)))


def _table(descriptor: dict[str, Any], store: MemoryStore) -> DeltaTable:
    """Ten rows, ids 0 to 9, of which a deletion vector takes some."""
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 10))
    for version, change in ((0, {"protocol": PROTOCOL}), (1, {"add": {"deletionVector": descriptor}})):
        lines = [json.loads(line) for line in store.get(commit_key(version)).splitlines()]
        for line in lines:
            for action, fields in change.items():
                if action in line:
                    line[action] |= fields
        store.put(commit_key(version), "\n".join(map(json.dumps, lines)).encode())
    return DeltaTable.open(store)


def _descriptor(kind: str, text: str, body: bytes, cardinality: int, **more: Any) -> dict[str, Any]:
    return {"storageType": kind, "pathOrInlineDv": text, "sizeInBytes": len(body), "cardinality": cardinality, **more}


def test_inline() -> None:
    body = _bitmap([0, 3, 9])
    table = _table(_descriptor("i", _z85(body), body, 3), MemoryStore())
    assert ids(table.to_arrow()) == [1, 2, 4, 5, 6, 7, 8]
    assert ids(table.to_arrow(where="id > 3")) == [4, 5, 6, 7, 8]
    assert table.to_arrow(columns=[]).num_rows == 7
    assert table.to_arrow(columns=["p"], where="id = 3").num_rows == 0


def test_inline_with_a_short_last_group() -> None:
    body = _bitmap([3])
    assert len(body) % 4 == 2
    whole = body[: len(body) // 4 * 4]
    value = int.from_bytes(body[len(whole) :], "big")
    tail = "".join(_Z85[value // 85**power % 85] for power in (2, 1, 0))
    assert ids(_table(_descriptor("i", f"{_z85(whole)}##{tail}", body, 1), MemoryStore()).to_arrow()) == [
        0,
        1,
        2,
        4,
        5,
        6,
        7,
        8,
        9,
    ]


@pytest.mark.parametrize("prefix", ["", "ab"])
def test_beside_the_table(prefix: str) -> None:
    store, body, name = MemoryStore(), _bitmap(list(range(1, 10))), uuid.uuid4()
    table = _table(_descriptor("u", prefix + _z85(name.bytes), body, 9, offset=7), store)
    _file(store, f"{prefix}{'/' if prefix else ''}deletion_vector_{name}.bin", body, offset=7)
    assert ids(table.to_arrow()) == [0]


def test_at_an_absolute_path() -> None:
    store, body = MemoryStore(), _bitmap([5])
    table = _table(_descriptor("p", store.url("x.bin"), body, 1, offset=1), store)
    _file(store, "x.bin", body)
    assert ids(table.to_arrow()) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    with pytest.raises(PathOutsideTable):
        _table(_descriptor("p", "/etc/passwd", body, 1, offset=1), MemoryStore()).to_arrow()


def test_survives_a_checkpoint_and_names_the_file_twice() -> None:
    """A file identity is its path with its vector: the same file with another vector is another entry."""
    store = MemoryStore()
    first, second = _bitmap([1]), _bitmap([1, 2])
    old, new = (_descriptor("i", _z85(body), body, count) for body, count in ((first, 1), (second, 2)))
    table = _table(old, store)
    add = next(json.loads(line)["add"] for line in store.get(commit_key(1)).splitlines() if b'"add"' in line)
    remove = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True, "deletionVector": old}
    lines = [{"remove": remove}, {"add": {**add, "deletionVector": new}}]
    store.put(commit_key(2), "\n".join(map(json.dumps, lines)).encode())
    assert ids(table.refresh().to_arrow()) == [0, 3, 4, 5, 6, 7, 8, 9]
    from lake_core.delta.checkpoint_writer import write_checkpoint

    write_checkpoint(table.snapshot, 0)
    store.delete([commit_key(version) for version in range(3)])
    assert ids(DeltaTable.open(store).to_arrow()) == [0, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    "damage",
    [
        {"cardinality": 2},
        {"sizeInBytes": 3},
        {"sizeInBytes": 10**9},
        {"sizeInBytes": None},
        {"pathOrInlineDv": "short"},
        {"pathOrInlineDv": "~~~~~"},
        {"pathOrInlineDv": None},
        {"storageType": "z"},
        {"storageType": "u"},
    ],
)
def test_damaged_ones_are_errors(damage: dict[str, Any]) -> None:
    body = _bitmap([5])
    with pytest.raises(DeltaError):
        _table({**_descriptor("i", _z85(body), body, 1), **damage}, MemoryStore()).to_arrow()


def test_rows_beyond_the_file_and_flipped_bits_are_errors() -> None:
    body = _bitmap([10])
    with pytest.raises(CorruptDeletionVector, match="row 10 of 10"):
        _table(_descriptor("i", _z85(body), body, 1), MemoryStore()).to_arrow()
    store, body, name = MemoryStore(), _bitmap([5]), uuid.uuid4()
    key = f"deletion_vector_{name}.bin"
    table = _table(_descriptor("u", _z85(name.bytes), body, 1, offset=1), store)
    _file(store, key, body)
    good = bytes(store.get(key))
    for at in range(1, len(good)):
        store.put(key, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(CorruptDeletionVector):
            table.to_arrow()
    store.delete([key])
    with pytest.raises(CorruptDeletionVector, match="gone"):
        table.to_arrow()
