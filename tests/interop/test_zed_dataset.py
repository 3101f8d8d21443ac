"""The `zed` command, versions 1.18 and 1.6, on pools that a lake publishes, and the other way around."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.pool.key_range import KeyRange
from tests.interop.zed import needs_zed, query, run

pytestmark = needs_zed

PATH = "events/raw"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a pool that was loaded, partly replaced, merged from a branch and reverted."""
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc", seek_stride=100).load(
            [{"k": value, "s": f"a{value}"} for value in range(100)]
        )
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.pool(PATH).load([{"k": 200}], txn=("job", 1))
    with lake.session() as session:
        pool = session.pool(PATH)
        pool.replace(pool.write_objects([{"k": 5, "s": "replaced"}]), [KeyRange.of(0, 50)])
    lake.merge("dev")
    with lake.session() as session:
        session.pool(PATH).load([{"k": 300}])
    lake.revert("main")
    return lake


def test_zed_reads_what_a_lake_published(zed: str, lake: Lake, tmp_path: Path) -> None:
    scan = lake.pool(PATH).scan()
    assert query(zed, tmp_path / PATH, "from raw") == scan.to_zson().splitlines()
    assert (
        query(zed, tmp_path / PATH, "from raw | k >= 60 and k < 63")
        == lake.pool(PATH).scan(start=60, stop=63).to_zson().splitlines()
    )
    assert len(query(zed, tmp_path / PATH, "from raw@main:objects")) == len(scan.objects)


def test_zed_shows_a_commit_for_each_publish(zed: str, lake: Lake, tmp_path: Path) -> None:
    lines = run(zed, tmp_path / PATH, "log", "-use", "raw")
    assert [line.split()[1] for line in lines if line.startswith("commit ")] == [
        commit.id for commit in lake.pool(PATH).log()
    ]


def test_a_lake_publishes_upon_what_zed_loads_and_deletes(zed: str, lake: Lake, tmp_path: Path) -> None:
    run(zed, tmp_path / PATH, "load", "-q", "-use", "raw@main", "-i", "zson", "-", text="{k:400}")
    with lake.session() as session:
        session.pool(PATH).load([{"k": 500}])
    run(zed, tmp_path / PATH, "delete", "-q", "-use", "raw@main", "-where", "k < 90")
    with lake.session() as session:
        session.pool(PATH).load([{"k": 600}])
    assert [record["k"] for record in lake.pool(PATH).scan().records()] == [*range(90, 100), 200, 400, 500, 600]
    assert query(zed, tmp_path / PATH, "from raw") == lake.pool(PATH).scan().to_zson().splitlines()
    assert lake.maintenance.verify() == []


def test_a_pool_that_is_created_again_with_another_key_is_read_by_zed(zed: str, lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        session.drop(PATH)
    assert query(zed, tmp_path / PATH, "from raw") == []
    with lake.session() as session:
        session.create_pool(PATH, key="other", order="desc").load([{"other": 1}, {"other": 2}])
    assert query(zed, tmp_path / PATH, "from raw") == ["{other:2}", "{other:1}"]


def test_a_lake_of_zed_is_brought_in(zed: str, tmp_path: Path) -> None:
    folder = tmp_path / PATH
    run(zed, folder, "init")
    run(zed, folder, "create", "-q", "-orderby", "k:asc", "old")
    for number in range(12):
        run(zed, folder, "load", "-q", "-use", "old@main", "-i", "zson", "-", text=f"{{k:{number}}}")
    run(zed, folder, "branch", "-q", "-use", "old@main", "side")
    run(zed, folder, "load", "-q", "-use", "old@side", "-i", "zson", "-", text="{k:100}")
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.import_pool(PATH)
    with lake.session() as session:
        session.pool(PATH).load([{"k": 12}])
    assert [record["k"] for record in lake.pool(PATH).scan().records()] == list(range(13))
    assert (len(query(zed, folder, "from old")), len(query(zed, folder, "from old@side"))) == (13, 13)
    assert lake.maintenance.verify() == []


def test_zed_reads_a_pool_with_cached_snapshots(zed: str, lake: Lake, tmp_path: Path) -> None:
    for number in range(25):
        with lake.session() as session:
            session.pool(PATH).load([{"k": 1000 + number}])
    assert list((tmp_path / PATH).glob("*/commits/*.snap.zng"))
    assert query(zed, tmp_path / PATH, "from raw") == lake.pool(PATH).scan().to_zson().splitlines()
