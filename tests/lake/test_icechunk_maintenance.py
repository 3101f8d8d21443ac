"""The maintenance of Icechunk repositories in a lake: manifests that are rewritten, and retention that ends."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.icechunk import Repository
from lake_core.testing.manual_clock import ManualClock
from tests.lake.arrays import PATH, create_array, filled, outside, outside_values, set_chunk

WRITTEN = (0, 1, 2)
"""Chunks that hold their own numbers."""
ALL = filled(c0=0, c1=1, c2=2)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with the arrays `values` and `other`.

    Each session has written one chunk of `values`, and so made a manifest.
    """
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        store = session.create_icechunk(PATH).store
        create_array(store)
        create_array(store, "other")
    for chunk in WRITTEN:
        write(lake, chunk, chunk)
    return lake


def write(lake: Lake, chunk: int, value: int, name: str = "values") -> None:
    with lake.session() as session:
        set_chunk(session.icechunk(PATH).store, chunk, value, name)


def manifests(repository: Repository) -> int:
    return len(next(repository.ancestry(branch="main")).manifests)


def test_rewritten_manifests_are_published(lake: Lake, tmp_path: Path) -> None:
    before = manifests(lake.icechunk(PATH))
    with lake.session() as session:
        session.icechunk(PATH).rewrite_manifests("fewer", branch="main")
    assert (before, manifests(lake.icechunk(PATH))) == (3, 1)
    assert outside_values(tmp_path) == ALL


def test_icechunk_finds_no_change_in_rewritten_manifests(lake: Lake, tmp_path: Path) -> None:
    before = outside(tmp_path).lookup_branch("main")
    with lake.session() as session:
        session.icechunk(PATH).rewrite_manifests("fewer", branch="main")
    changed = outside(tmp_path).diff(from_snapshot_id=before, to_branch="main")
    assert not changed.updated_chunks
    assert not changed.updated_arrays


def test_rewritten_manifests_meet_a_write_to_another_array(lake: Lake, tmp_path: Path) -> None:
    rewriting = lake.session()
    rewriting.icechunk(PATH).rewrite_manifests("fewer", branch="main")
    write(lake, 5, 50, "other")
    rewriting.publish()
    assert manifests(lake.icechunk(PATH)) == 2
    assert (outside_values(tmp_path), outside_values(tmp_path, name="other")) == (ALL, filled(c5=50))


def test_rewritten_manifests_give_way_to_a_write_to_the_same_array(lake: Lake, tmp_path: Path) -> None:
    rewriting = lake.session()
    rewriting.icechunk(PATH).rewrite_manifests("fewer", branch="main")
    write(lake, 2, 20)
    rewriting.publish()
    assert outside_values(tmp_path) == filled(c0=0, c1=1, c2=20)


def test_a_rewrite_of_manifests_merges_from_its_branch(lake: Lake, tmp_path: Path) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.icechunk(PATH).rewrite_manifests("fewer", branch="main")
    assert [manifests(lake.icechunk(PATH, ref=ref)) for ref in ("main", "dev")] == [3, 1]
    lake.merge("dev")
    assert manifests(lake.icechunk(PATH)) == 1
    assert outside_values(tmp_path) == ALL


def test_chunks_are_collected_once_their_retention_has_ended(tmp_path: Path) -> None:
    clock = ManualClock(dt.datetime.now(dt.UTC) - dt.timedelta(days=9))
    lake = Lake.create(tmp_path, clock=clock)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH).store)
    for value in (1, 2):
        write(lake, 0, value)
    for file in tmp_path.rglob("*"):
        os.utime(file, (0, 0))
    clock.pass_days(9)
    collected = [key for key in lake.maintenance.gc(dry_run=True).keys if "/chunks/" in key]
    with lake.session() as session:
        session.icechunk(PATH).expire_snapshots(clock() - dt.timedelta(days=8))
    collected_after = [key for key in lake.maintenance.gc().keys if "/chunks/" in key]
    assert (len(collected), len(collected_after)) == (0, 1)
    assert outside_values(tmp_path) == filled(c0=2)
