"""Version checksums: held against the log, never believed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import UnsupportedReaderFeature
from lake_core.delta.version_checksum import checksum_key, disagreements, read_checksum
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows

LYING = "krs-crc-full"
"""A checksum made up to hold every field: its log has none of them."""


def test_every_writer_agrees_with_our_replay(cases: Path) -> None:
    """Each version of the reference tables that has a checksum replays to what the checksum says.

    That is: the same files, bytes, protocol, metadata and markers.
    """
    held = 0
    for path in sorted((cases / "delta").glob("*/_delta_log/*.crc")):
        root = path.parent.parent
        if not path.stem.isdigit():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                snapshot = DeltaTable.open(root, version=int(path.stem)).snapshot
            except UnsupportedReaderFeature:
                continue
        held += read_checksum(snapshot.store, snapshot.version) is not None
        assert bool(disagreements(snapshot)) == (root.name == LYING), path
    assert held >= 75


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    DeltaTable.create(store, SCHEMA).append(rows(0, 5), txn=("app", 3))
    return store


def _true(store: MemoryStore) -> dict[str, Any]:
    table = DeltaTable.open(store)
    size = sum(table.files(["size"])["size"].to_pylist())
    return {
        "tableSizeBytes": size,
        "numFiles": table.files(["path"]).num_rows,
        "protocol": table.protocol.to_json(),
        "metadata": table.metadata.to_json(),
        "setTransactions": [{"appId": "app", "version": 3}],
        "domainMetadata": [{"domain": "gone", "configuration": "", "removed": True}],
    }


def test_each_field_is_held_against_the_log(store: MemoryStore) -> None:
    body = _true(store)
    changes = {
        "tableSizeBytes": 1,
        "numFiles": 0,
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 1},
        "metadata": body["metadata"] | {"id": "x"},
        "setTransactions": [{"appId": "app", "version": 4}],
        "domainMetadata": [{"domain": "d", "configuration": "", "removed": False}],
    }
    for change in ({}, *({name: value} for name, value in changes.items())):
        store.put(checksum_key(1), json.dumps(body | change).encode())
        table = DeltaTable.open(store)
        assert len(disagreements(table.snapshot)) == len(change)
        assert ids(table.to_arrow()) == list(range(5))
        assert table.txn_version("app") == 3


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"protocol":{}}',
        b'{"metadata":{"id":"x"}}',
        b'{"setTransactions":[5]}',
        b'{"setTransactions":[{}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_checksum_says_nothing(store: MemoryStore, text: bytes) -> None:
    store.put(checksum_key(1), text)
    table = DeltaTable.open(store)
    assert read_checksum(store, 1) is None
    assert disagreements(table.snapshot) == []
    assert ids(table.to_arrow()) == list(range(5))


def test_none_is_needed(store: MemoryStore) -> None:
    assert read_checksum(store, 1) is None
    store.put(checksum_key(1), b'{"numFiles":true,"tableSizeBytes":-1,"setTransactions":7}')
    assert disagreements(DeltaTable.open(store).snapshot) == []
