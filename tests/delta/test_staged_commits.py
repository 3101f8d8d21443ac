"""Catalog-managed tables are read at the commits that their catalog lists, and never written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import CorruptCommit, LogGap, UnsupportedReaderFeature, UnsupportedWriterFeature
from lake_core.delta.log_segment import commit_key

FIRST = "00000000000000000001.4cb9708e-b478-44de-b203-53f9ba9b2876.json"
SECOND = "00000000000000000002.5b9bba4a-0085-430d-a65e-b0d38c1afbe9.json"


@pytest.fixture
def managed(cases: Path, tmp_path: Path) -> Path:
    """A table with one published commit, and two that are staged."""
    return Path(shutil.copytree(cases / "delta" / "kerneljava-catalog-owned-preview", tmp_path / "table"))


def test_it_is_refused_without_the_catalogs_word(managed: Path) -> None:
    with pytest.raises(UnsupportedReaderFeature, match="Ask the catalog") as caught:
        DeltaTable.open(managed)
    assert caught.value.feature == "catalogManaged"


def test_each_version_that_the_catalog_knows_is_read(managed: Path) -> None:
    assert DeltaTable.open(managed, staged_commits=[]).version == 0
    assert DeltaTable.open(managed, staged_commits=[FIRST]).version == 1
    table = DeltaTable.open(managed, staged_commits=[f"_delta_log/_staged_commits/{SECOND}", FIRST])
    assert table.version == 2
    rows = table.to_arrow()
    assert rows.num_rows == 200
    assert set(rows["part1"].to_pylist()) == {0, 1}
    assert len(table.history()) == 3
    old = DeltaTable.open(managed, staged_commits=[FIRST, SECOND], version=1)
    assert old.to_arrow(where="part1 = 0").num_rows == old.to_arrow().num_rows == 100


def test_a_commit_that_was_published_meanwhile_counts_once(managed: Path) -> None:
    log = managed / "_delta_log"
    shutil.copy(log / "_staged_commits" / FIRST, managed / commit_key(1))
    table = DeltaTable.open(managed, staged_commits=[FIRST, SECOND])
    assert table.version == 2
    assert table.to_arrow().num_rows == 200


def test_a_commit_that_the_catalog_left_out_is_a_gap(managed: Path) -> None:
    with pytest.raises(LogGap):
        DeltaTable.open(managed, staged_commits=[SECOND])


@pytest.mark.parametrize("names", [["x.json"], [FIRST, f"a/{FIRST}"], ["00000000000000000003.json"]])
def test_what_is_no_list_of_staged_commits(managed: Path, names: list[str]) -> None:
    with pytest.raises(CorruptCommit, match="staged commit"):
        DeltaTable.open(managed, staged_commits=names)


def test_it_is_never_written(managed: Path) -> None:
    table = DeltaTable.open(managed, staged_commits=[FIRST, SECOND])
    before = sorted(managed.rglob("*"))
    rows = pa.table({"part1": [1], "col1": [1]}, schema=table.schema)
    for write in (lambda: table.append(rows), lambda: table.delete("col1 = 1"), table.checkpoint, table.vacuum):
        with pytest.raises(UnsupportedWriterFeature) as caught:
            write()
        assert caught.value.feature == "catalogManaged"
    assert sorted(managed.rglob("*")) == before
