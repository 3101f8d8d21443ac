"""The page that specifies a lake's files, held by a reader that was written from it alone."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.journal import Journal
from lake_core.store import open_store
from lake_core.testing.manual_clock import ManualClock
from tests.docs.lake_reader import LakeReader

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, SCHEMA)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with two branches, a tag, a table that differs between them, and enough files for several ranges."""
    lake = Lake.create(tmp_path_factory.mktemp("lake"))
    with lake.session(message="first") as s:
        s.create_delta("sales/orders", SCHEMA).append(rows(1, 2))
        s.create_delta("sales/dropped", SCHEMA)
        s.put("notes/ö.txt", b"hello")
        for number in range(3000):
            s.put(f"many/{number:05}", b"%d" % number)
    lake.create_tag("v1")
    lake.create_tag("gone")
    lake.delete_tag("gone")
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("sales/orders").append(rows(3))
    with lake.session(message="second") as s:
        s.delta("sales/orders").delete("id = 1")
        s.drop("sales/dropped")
    return lake


@pytest.fixture
def reader(lake: Lake) -> LakeReader:
    return LakeReader(Path(lake.url.removeprefix("file://")))


def test_branches_are_listed(lake: Lake, reader: LakeReader) -> None:
    assert reader.named("branch") == {name: lake.log(name)[0].id for name in ("dev", "main")}


def test_tags_are_listed_without_deleted_ones(lake: Lake, reader: LakeReader) -> None:
    assert reader.named("tag") == {"v1": lake.log("v1")[0].id}


def test_the_history_of_a_branch_is_followed(lake: Lake, reader: LakeReader) -> None:
    assert list(reader.history("main")) == [commit.id for commit in lake.log()]


@pytest.mark.parametrize(("ref", "ids"), [("main", [2]), ("dev", [1, 2, 3]), ("v1", [1, 2])])
def test_a_table_is_read_as_of_a_ref(reader: LakeReader, ref: str, ids: list[int]) -> None:
    assert sorted(reader.delta(ref, "sales/orders")["id"].to_pylist()) == ids


def test_dropped_datasets_are_gone(reader: LakeReader) -> None:
    assert reader.datasets("main") == {"sales/orders": "delta"}


def test_datasets_that_were_dropped_later_are_there(reader: LakeReader) -> None:
    assert reader.datasets("v1") == {"sales/dropped": "delta", "sales/orders": "delta"}


def test_a_plain_file_is_read(reader: LakeReader) -> None:
    assert reader.read(reader.tree("main")["notes/ö.txt"]) == b"hello"


def test_all_files_of_a_large_tree_are_found(reader: LakeReader) -> None:
    tree = reader.tree("main")
    assert [reader.read(tree[f"many/{number:05}"]) for number in range(0, 3000, 100)] == [
        b"%d" % number for number in range(0, 3000, 100)
    ]


def test_a_journal_is_read_from_the_snapshot_that_replaces_its_first_entries(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=60)
    lake = Lake.create(tmp_path, clock=ManualClock(long_ago))
    for number in range(40):
        lake.create_tag(f"t{number}")
    for path in (tmp_path / "_lake" / "refs").iterdir():
        if path.is_file():
            os.utime(path, (long_ago.timestamp(), long_ago.timestamp()))
    Journal(open_store(tmp_path), "_lake/refs").purge(datetime.now(UTC) - timedelta(days=30))
    assert (tmp_path / "_lake" / "refs" / "TAIL").exists()
    assert sorted(LakeReader(tmp_path).named("tag")) == sorted(f"t{number}" for number in range(40))


def test_a_history_whose_old_commits_are_archived_is_followed(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=60)
    lake = Lake.create(tmp_path, clock=ManualClock(long_ago))
    for number in range(500):
        with lake.session() as s:
            s.put("file", b"%d" % number)
    for path in (tmp_path / "_lake" / "refs").rglob("*"):
        os.utime(path, (long_ago.timestamp(), long_ago.timestamp()))
    Lake.open(tmp_path).repository.journal.purge(datetime.now(UTC) - timedelta(days=30))
    assert list((tmp_path / "_lake" / "refs" / "archive").iterdir())
    assert list(LakeReader(tmp_path).history("main")) == [commit.id for commit in lake.log()]


def test_another_version_is_refused(tmp_path: Path) -> None:
    Lake.create(tmp_path)
    path = tmp_path / "_lake" / "format.json"
    path.write_text(path.read_text().replace('"version": 3', '"version": 4'))
    with pytest.raises(ValueError, match="version 4"):
        LakeReader(tmp_path)
