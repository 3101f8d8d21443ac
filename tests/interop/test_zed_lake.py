"""The `zed` command, versions 1.18 and 1.6, on lakes that are written here, and the other way around.

`make interop` builds both.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from lake_core.pool import Pool, PoolLake
from tests.interop.zed import VERSIONS, needs_zed, query, run

pytestmark = needs_zed


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with a pool in each direction, of several objects and segments."""
    lake = PoolLake.create(tmp_path)
    for order in ("asc", "desc"):
        pool = lake.create_pool(
            order, key="k", order="asc" if order == "asc" else "desc", seek_stride=100, threshold=2000
        )
        pool.load(
            [{"k": number * 7 % 500, "s": f"a{number}", "l": [number, None]} for number in range(500)],
            author="ada",
            meta={"job": 7},
        )
        pool.load([{"k": "text"}, {"s": "no key"}, {"k": 1.5}, {"k": None}], message="odd keys")
    return tmp_path


@pytest.mark.parametrize("pool", ["asc", "desc"])
def test_zed_scans_what_is_loaded_here(zed: str, lake: Path, pool: str) -> None:
    scanned = PoolLake.open(lake).pool(pool).scan().to_zson().splitlines()
    printed = query(zed, lake, f"from {pool}")
    assert sorted(printed) == sorted(scanned)
    if zed == VERSIONS["1.18"]:  # 1.6 has no total order of keys of several types.
        assert printed == scanned


@pytest.mark.parametrize("pool", ["asc", "desc"])
def test_zed_finds_ranges_of_keys_by_the_seek_index(zed: str, lake: Path, pool: str) -> None:
    scan = PoolLake.open(lake).pool(pool).scan(start=100, stop=121)
    assert query(zed, lake, f"from {pool} | k >= 100 and k <= 120") == scan.to_zson().splitlines()


def test_zed_lists_pools_branches_objects_and_the_log(zed: str, lake: Path) -> None:
    pool = PoolLake.open(lake).pool("asc")
    assert len(query(zed, lake, "from :pools")) == 2
    assert len(query(zed, lake, "from asc:branches")) == 1
    assert len(query(zed, lake, "from asc@main:objects")) == len(pool.objects())
    log = run(zed, lake, "log", "-use", "asc")
    assert [line.split()[1] for line in log if line.startswith("commit ")] == [commit.id for commit in pool.log()]


def test_zed_and_this_load_in_turns(zed: str, lake: Path) -> None:
    pool = PoolLake.open(lake).pool("asc")
    before = sum(1 for _ in pool.scan().values())
    for number in range(15):
        run(zed, lake, "load", "-q", "-use", "asc@main", "-i", "zson", "-", text=f"{{k:{number}}}")
        pool.load([{"k": number}])
    scanned = pool.scan().to_zson().splitlines()
    assert len(scanned) == before + 30
    assert sorted(query(zed, lake, "from asc")) == sorted(scanned)


def test_zed_compacts_and_deletes_what_is_loaded_here(zed: str, lake: Path) -> None:
    # Version 1.6 deletes too much where keys are null.
    pool = PoolLake.open(lake).create_pool("numbers", key="k", order="desc", threshold=2000)
    pool.load([{"k": number * 7 % 500, "s": f"a{number}"} for number in range(500)])
    before = pool.scan().to_zson()
    run(zed, lake, "compact", "-q", "-use", "numbers@main", *(each.id for each in pool.objects()))
    assert pool.scan().to_zson() == before
    run(zed, lake, "delete", "-q", "-use", "numbers@main", "-where", "k < 400")
    assert [record["k"] for record in pool.scan().records()] == list(range(499, 399, -1))


def test_zed_renames_drops_and_creates_pools_beside_this(zed: str, lake: Path) -> None:
    run(zed, lake, "rename", "asc", "renamed")
    PoolLake.open(lake).rename_pool("desc", "other")
    run(zed, lake, "create", "-q", "-orderby", "k:asc", "third")
    PoolLake.open(lake).drop_pool("other")
    assert [pool.name for pool in PoolLake.open(lake).pools()] == ["renamed", "third"]
    assert sorted(line.split()[0] for line in run(zed, lake, "ls")) == ["renamed", "third"]


@pytest.fixture
def changed(tmp_path: Path) -> Pool:
    """A pool after every kind of change, and a snapshot of them."""
    pool = PoolLake.create(tmp_path).create_pool("events", key="k", order="asc", seek_stride=100, threshold=2000)
    for start in range(0, 400, 100):
        pool.load([{"k": (start + number) * 7 % 400, "s": f"a{number}"} for number in range(100)])
    pool.create_branch("dev")
    pool.load([{"k": 1000}], "dev", txn=("app", 1))
    pool.delete("k < 10", "dev")
    pool.merge("dev")
    pool.compact()
    commit = pool.delete("s = 'a7'")
    assert commit is not None
    pool.revert(commit.id)
    pool.delete("k >= 390 AND k < 400")
    pool.create_branch("other")
    pool.merge("dev")
    for number in range(32):
        pool.load([{"k": 2000 + number}])
    assert list(tmp_path.rglob("commits/*.snap.zng"))
    return pool


def test_zed_reads_a_pool_after_every_kind_of_change(zed: str, changed: Pool, tmp_path: Path) -> None:
    scanned = changed.scan().to_zson().splitlines()
    assert query(zed, tmp_path, "from events") == scanned
    assert len(scanned) == 400 - 10 + 1 - 10 + 32
    assert query(zed, tmp_path, "from events@other") == changed.scan("other").to_zson().splitlines()
    assert len(query(zed, tmp_path, "from events@main:objects")) == len(changed.objects())
    log = run(zed, tmp_path, "log", "-use", "events")
    assert [line.split()[1] for line in log if line.startswith("commit ")] == [commit.id for commit in changed.log()]
    assert (
        query(zed, tmp_path, "from events | k >= 100 and k <= 120")
        == changed.scan(start=100, stop=121).to_zson().splitlines()
    )


def test_this_reads_what_zed_changes_on_top(zed: str, changed: Pool, tmp_path: Path) -> None:
    run(zed, tmp_path, "branch", "-use", "events@main", "theirs")
    run(zed, tmp_path, "load", "-q", "-use", "events@theirs", "-i", "zson", "-", text="{k:5000}")
    run(zed, tmp_path, "delete", "-q", "-use", "events@theirs", "-where", "k >= 2000 and k < 2010")
    run(zed, tmp_path, "merge", "-use", "events@theirs", "main")
    run(zed, tmp_path, "compact", "-q", "-use", "events@main", *(each.id for each in changed.objects()[:5]))
    assert changed.scan().to_zson().splitlines() == query(zed, tmp_path, "from events")
    assert changed.load([{"k": 1}], txn=("app", 1)) is None, "the marker counts behind commits of zed"
    before = changed.scan().to_zson()
    assert changed.merge("theirs") is None, "it was merged by zed"
    changed.compact()
    assert changed.scan().to_zson() == before
    changed.vacuum(dt.timedelta(0))
    assert query(zed, tmp_path, "from events") == before.splitlines()


def test_a_pool_with_vectors_is_changed_here(zed: str, changed: Pool, tmp_path: Path) -> None:
    for each in changed.objects()[:3]:
        run(zed, tmp_path, "vector", "add", "-q", "-use", "events@main", each.id)
    for number in range(33):
        changed.load([{"k": 3000 + number}])
    changed.compact()
    assert query(zed, tmp_path, "from events") == changed.scan().to_zson().splitlines()


def test_a_branch_that_zed_merged_is_merged_again(zed: str, tmp_path: Path) -> None:
    """The commits of `zed` do not say which branch they merged."""
    pool = PoolLake.create(tmp_path).create_pool("events", key="k", order="asc")
    pool.load([{"k": 0}])
    pool.create_branch("dev")
    pool.load([{"k": key} for key in (1, 2, 3)], "dev")
    run(zed, tmp_path, "merge", "-q", "-use", "events@dev", "main")
    pool.delete("k = 2", "dev")
    pool.merge("dev")
    assert [record["k"] for record in pool.scan().records()] == [0, 1, 3]
