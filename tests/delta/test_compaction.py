"""Log compaction files: read instead of the commits that they name, and never believed where they do not add up."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.errors import CorruptCommit, LogGap
from lake_core.delta.log_segment import commit_key, compaction_key, list_log
from lake_core.delta.snapshot import DamagedCheckpointWarning
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows


def _compact(store: MemoryStore, first: int, last: int) -> None:
    """What the protocol asks for: the last action of each file, marker and kind."""
    kept: dict[Any, str] = {}
    for version in range(first, last + 1):
        for line in store.get(commit_key(version)).decode().splitlines():
            ((name, body),) = json.loads(line).items()
            if name != "commitInfo":
                file = name in ("add", "remove")
                kept[("file", body["path"]) if file else (name, body.get("appId") if name == "txn" else None)] = line
    store.put(compaction_key(first, last), "\n".join(kept.values()).encode())


@pytest.fixture
def store() -> MemoryStore:
    """Versions 0 to 9; 6 replaces all rows before it; compactions 0-3, 2-7 and 4-7."""
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA, properties={"delta.checkpointInterval": "100"})
    for number in range(1, 10):
        (table.overwrite if number == 6 else table.append)(rows(number, number + 1), txn=("app", number))
    for first, last in ((0, 3), (2, 7), (4, 7)):
        _compact(store, first, last)
    return store


def _state(store: MemoryStore, version: int | None = None) -> Any:
    table = DeltaTable.open(store, version=version)
    return (
        ids(table.to_arrow()),
        table.txn_version("app"),
        sorted(table.snapshot.tombstones()["path"].to_pylist()),
        table.metadata.id,
    )


def test_the_fewest_files_are_read(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {version: next(iter(list_log(store, end=version).segments(version))) for version in (2, 3, 6, 9)}
    assert {version: segment.entries for version, segment in paths.items()} == {  # type: ignore[union-attr]
        2: ((0, 0), (1, 1), (2, 2)),
        3: ((0, 3),),
        6: ((0, 3), (4, 4), (5, 5), (6, 6)),
        9: ((0, 3), (4, 7), (8, 8), (9, 9)),
    }
    asked: list[str] = []
    get = MemoryStore._get
    monkeypatch.setattr(MemoryStore, "_get", lambda self, key, *range_: asked.append(key) or get(self, key, *range_))
    DeltaTable.open(store)
    assert commit_key(5) not in asked
    assert compaction_key(4, 7) in asked


def test_every_version_is_the_same_with_and_without(store: MemoryStore) -> None:
    bare = MemoryStore()
    for meta in store.list():
        if not meta.key.endswith(".compacted.json"):
            bare.put(meta.key, bytes(store.get(meta.key)))
    for version in range(10):
        assert _state(store, version) == _state(bare, version)
    DeltaTable.open(store).append(rows(20, 21))
    assert _state(store)[0] == [6, 7, 8, 9, 20]


def test_commits_that_were_cleaned_up_are_not_missed(store: MemoryStore) -> None:
    whole = _state(store)
    store.delete([commit_key(version) for version in (0, 1, 4, 5, 6)])
    assert _state(store) == whole
    with pytest.raises(LogGap, match="commit 0 is missing"):
        DeltaTable.open(store, version=2)
    store.delete([commit_key(8)])
    with pytest.raises(LogGap, match="commit"):
        DeltaTable.open(store)


def _unreconciled(data: bytes) -> bytes:
    add = next(json.loads(line) for line in data.splitlines() if b'"add"' in line)
    return b"%s\n%s" % (data, json.dumps({"remove": {"path": add["add"]["path"], "dataChange": True}}).encode())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b" \n",
        lambda data: data[:-9],
        lambda data: b"nonsense",
        lambda data: data + b'\n{"add":{"size":1}}',
        lambda data: data + b'\n{"protocol":{"minReaderVersion":1}}',
        lambda data: data + b'\n{"metaData":{}}\n{"metaData":{}}',
        lambda data: data + b'\n{"txn":{"appId":"app","version":1}}',
        _unreconciled,
    ],
)
def test_a_damaged_one_gives_way_to_the_commits(store: MemoryStore, damage: Any) -> None:
    good = _state(store)
    store.put(compaction_key(4, 7), damage(bytes(store.get(compaction_key(4, 7)))))
    with pytest.warns(DamagedCheckpointWarning, match=r"00004\.00000000000000000007\.compacted\.json"):
        assert DeltaTable.open(store).version == 9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _state(store) == good
    store.delete([commit_key(5)])
    with pytest.raises(CorruptCommit, match=r"compacted\.json"):
        DeltaTable.open(store)


def test_names_that_are_none(store: MemoryStore) -> None:
    good = _state(store)
    for first, last in ((7, 7), (9, 3), (8, 12), (5, 5)):
        store.put(compaction_key(first, last), b"{}")
    store.put("_delta_log/1.9.compacted.json", b"{}")
    assert _state(store) == good


def test_one_that_some_writer_left_unreconciled(cases: Path) -> None:
    """It holds every action of its commits, the newest first: taken at its word it gives 14 files instead of two."""
    with pytest.warns(DamagedCheckpointWarning, match="contradictory"):
        table = DeltaTable.open(str(cases / "delta" / "krs-compacted-log-files-table"))
    assert table.files(["path"]).num_rows == 2


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_written_one_stands_for_its_commits(checkpointed: bool) -> None:
    store = MemoryStore()
    properties = {"delta.checkpointInterval": "100", "delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"], properties=properties)
    table.append(rows(0, 9), txn=("app", 1))
    if checkpointed:
        table.checkpoint()
    first = table.version + 1 if checkpointed else 0
    table.append(rows(9, 20), txn=("app", 2))
    table.delete("id = 10")
    table.set_properties({"delta.feature.domainMetadata": "supported"})
    table.overwrite(rows(0, 3), where="p = 'p0' or id < 3", txn=("b", 7))
    table.set_properties({"mine": "2"})
    key = table.compact_log()
    assert key == compaction_key(first, table.version)
    written = store.get(key)
    assert b"commitInfo" not in written
    store.delete([key])
    before = _whole(store)
    store.put(key, written)
    assert next(iter(list_log(store, end=table.version).segments(table.version))).entries == ((first, table.version),)  # type: ignore[union-attr]
    assert _whole(store) == before


def _whole(store: MemoryStore) -> Any:
    snapshot = DeltaTable.open(store).snapshot
    adds, removes = snapshot.files([name for name, _ in ADD_FIELDS]), snapshot.tombstones()
    ordered = sorted(map(str, adds.to_pylist())), sorted(map(str, removes.to_pylist()))
    markers = sorted(map(str, snapshot.transactions().to_pylist()))
    return ordered, markers, snapshot.metadata, snapshot.protocol, snapshot.domains


def test_nothing_is_compacted_where_partitions_change_or_there_is_one_commit() -> None:
    store = MemoryStore()
    table = DeltaTable.create(store, SCHEMA)
    assert table.compact_log() is None
    table.append(rows(0, 3))
    table.overwrite(rows(0, 3), schema_mode="overwrite", partition_by=["p"])
    assert table.compact_log() is None
    table.checkpoint()
    assert table.compact_log() is None
