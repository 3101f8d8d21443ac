"""Version checksums: held against the log, never believed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from lake_core.delta import DeltaTable, checksum_writer
from lake_core.delta.commit_file import read_commit_info
from lake_core.delta.errors import UnsupportedReaderFeature
from lake_core.delta.features import supported_features
from lake_core.delta.log_segment import commit_key
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
    store.delete([checksum_key(1)])
    assert read_checksum(store, 1) is None
    store.put(checksum_key(1), b'{"numFiles":true,"tableSizeBytes":-1,"setTransactions":7}')
    assert disagreements(DeltaTable.open(store).snapshot) == []


KINDS = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "tracked": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    "timed": {"delta.enableInCommitTimestamps": "true"},
}


def _live(table: DeltaTable) -> None:
    """Commit one operation of each kind."""
    table.append(rows(0, 30), txn=("app", 1))
    table.append(rows(30, 60), txn=("app", 2))
    table.delete("id = 3")
    table.delete("id = 33", txn=("other", 1))
    table.update({"v": "-1.0"}, "id < 6")
    merge = table.merge(rows(55, 65), "t.id = s.id")
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    table.set_properties({"delta.checkpointInterval": "100"})
    table.optimize()
    table.restore(3)
    table.overwrite(rows(7, 8), where="p = 'p1'")
    table.overwrite(rows(0, 4))


@pytest.mark.parametrize("few_actions", [0, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_each_version_gets_a_true_one(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, kind: str, few_actions: int
) -> None:
    """Whether the totals follow from those before, or are counted anew."""
    monkeypatch.setattr(checksum_writer, "FEW_ACTIONS", few_actions)
    written = MemoryStore()
    table = DeltaTable.create(written, SCHEMA, partition_by=["p"], properties=KINDS[kind])
    _live(table)
    for version in range(table.version + 1):
        snapshot = DeltaTable.open(written, version=version).snapshot
        checksum = read_checksum(written, version)
        assert checksum is not None, version
        assert disagreements(snapshot) == []
        info = read_commit_info(version, written.get(commit_key(version)))
        body = json.loads(written.get(checksum_key(version)))
        assert body.get("inCommitTimestampOpt") == info.get("inCommitTimestamp")
        assert body["txnId"] == info["txnId"]
        assert ("numDeletedRecordsOpt" in body) == ("deletionVectors" in supported_features(table.protocol))


def test_the_chain_goes_on_where_another_writer_left_none(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum_writer, "FEW_ACTIONS", 0)
    written = MemoryStore()
    table = DeltaTable.create(written, SCHEMA, properties={"delta.checkpointInterval": "5"})
    table.append(rows(0, 3))
    written.delete([checksum_key(1)])
    other = DeltaTable.open(written)
    for start in range(3, 9):
        other.append(rows(start, start + 1))
    exist = [read_checksum(written, version) is not None for version in range(8)]
    assert exist == [True, False, False, False, False, True, True, True]
    assert disagreements(DeltaTable.open(written).snapshot) == []


def test_a_commit_that_adds_files_again_is_not_counted_from_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row ids are given to files that are there: none is new."""
    monkeypatch.setattr(checksum_writer, "FEW_ACTIONS", 0)
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    table.append(rows(0, 3))
    table.set_properties({"delta.enableRowTracking": "true"})
    assert read_checksum(store, table.version) is None
    monkeypatch.undo()
    table.append(rows(3, 4))
    assert disagreements(DeltaTable.open(store).snapshot) == []
    assert read_checksum(store, table.version) is not None
