"""What a lakeFS server keeps, and what lies in a folder already, is never the lake's to use or delete."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.graveler import Graveler, Record, read_properties, read_sstable
from lake_core.graveler.identity import AFTER_HASHING, table_id
from lake_core.lake.errors import FolderInUse
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import rows
from tests.skip_rule import CASES, NO_CASES

_MANIFEST = "_lakefs/refs_manifest.json"


def _range_of_lakefs(name: str) -> tuple[str, bytes]:
    """A range or metarange that a lakeFS server wrote, as it keeps it: the key and the bytes."""
    if not CASES.is_dir():
        pytest.skip(NO_CASES)
    body = (CASES / "graveler" / f"{name}.sst").read_bytes()
    table = read_sstable(body)
    return (
        f"_lakefs/{table_id(table.pairs, {k: str(v) for k, v in table.properties.items() if k not in AFTER_HASHING})}",
        body,
    )


def test_no_lake_is_made_in_a_lakefs_repository(store: MemoryStore) -> None:
    repository = MemoryStore()
    repository.put(_MANIFEST, b"{}")
    with pytest.raises(FolderInUse, match="storage namespace of a lakeFS repository"):
        Lake.create(repository)
    assert [meta.key for meta in repository.list()] == [_MANIFEST]


def test_no_lake_is_made_where_a_lakefs_server_has_only_looked(store: MemoryStore) -> None:
    repository = MemoryStore()
    repository.put("_lakefs/dummy", b"this is dummy data - created by lakeFS to check accessibility")
    with pytest.raises(FolderInUse):
        Lake.create(repository, exist_ok=True)


def test_no_lake_is_made_in_an_export(lake: Lake) -> None:
    target = MemoryStore()
    lake.maintenance.export(target)
    with pytest.raises(FolderInUse):
        Lake.create(target)


def test_collection_leaves_what_a_lakefs_server_wrote_into_the_same_folder(
    lake: Lake, store: MemoryStore, time: ManualClock
) -> None:
    theirs = dict(map(_range_of_lakefs, ("range", "metarange", "ok1"))) | {
        _MANIFEST: b"{}",
        "_lakefs/retention/rules.json": b"{}",
    }
    for key, body in theirs.items():
        store.put(key, body)
    with lake.session() as session:
        session.put("gone", b"1")
    with lake.session() as session:
        session.delete(["gone"])
    time.pass_days(60)
    collected = lake.maintenance.gc(history=dt.timedelta(days=7))
    assert any(key.startswith("_lakefs/") for key in collected.keys)
    assert not set(collected.keys) & set(theirs)
    assert {key: bytes(store.get(key)) for key in theirs} == theirs


def test_a_range_of_our_own_is_told_from_its_end_alone() -> None:
    store = MemoryStore()
    graveler = Graveler(store)
    records = [
        Record(b"%08d" % number, b"%032d" % (number * 7919), b"%0200d" % (number * 104_729)) for number in range(3000)
    ]
    graveler.build("", ((record.key, record) for record in records))
    largest = max(store.list("_lakefs/"), key=lambda meta: meta.size)
    assert "file_id" in read_properties(store, largest.key, largest.size)


def test_a_lake_is_not_exported_into_itself(lake: Lake, store: MemoryStore) -> None:
    with pytest.raises(FolderInUse, match="is a lake"):
        lake.maintenance.export(store)


def test_a_lake_is_not_exported_into_another(lake: Lake) -> None:
    other = MemoryStore()
    Lake.create(other)
    with pytest.raises(FolderInUse, match="is a lake"):
        lake.maintenance.export(other)


@pytest.mark.parametrize("key", ["notes.txt", "data/x", "_lakefs/dummy"])
def test_a_lake_is_not_exported_into_a_folder_in_use(lake: Lake, key: str) -> None:
    target = MemoryStore()
    target.put(key, b"mine")
    with pytest.raises(FolderInUse, match=key):
        lake.maintenance.export(target)
    assert [meta.key for meta in target.list()] == [key]


def test_an_export_goes_on_with_an_earlier_one(lake: Lake) -> None:
    target = MemoryStore()
    lake.maintenance.export(target)
    with lake.session() as session:
        session.delta("t/orders").append(rows([50]))
    assert lake.maintenance.export(target).copied == 2  # a log entry and a data file


def test_an_export_does_not_go_on_where_somebody_wrote_meanwhile(lake: Lake) -> None:
    target = MemoryStore()
    lake.maintenance.export(target)
    target.put("data/mine", b"1")
    with pytest.raises(FolderInUse, match="data/mine"):
        lake.maintenance.export(target)


def test_another_lakes_export_is_not_written_over(lake: Lake, tmp_path: Path) -> None:
    target = MemoryStore()
    Lake.create(tmp_path / "other").maintenance.export(target)
    with pytest.raises(FolderInUse):
        lake.maintenance.export(target)


def test_an_export_with_a_damaged_marker_is_not_continued(lake: Lake) -> None:
    target = MemoryStore()
    lake.maintenance.export(target)
    target.put("_lakefs/lake-orch-export.json", b"{")
    with pytest.raises(FolderInUse, match="damaged"):
        lake.maintenance.export(target)
