"""Pools as datasets of a lake: published whole, merged by their data objects, ordinary Zed lakes for others."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict, DatasetExists, ReadOnly
from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import DamagedLake, InvalidPoolConfig, NoSuchBranch, OwnedByLake
from lake_core.store import LocalStore, MemoryStore, ObjectStore
from lake_core.testing.manual_clock import ManualClock
from tests.store.round_trips import RoundTripStore

PATH = "events/raw"


def keys(pool: Pool) -> list[int]:
    """Return the keys of a pool's values, in its order."""
    return [record["k"] for record in pool.scan().records()]


def load(lake: Lake, *values: int, branch: str = "main") -> None:
    with lake.session(branch) as session:
        session.pool(PATH).load([{"k": value} for value in values])


def plain_pool(root: Path) -> Pool:
    """Open the pool as a plain reader, which knows nothing of the lake."""
    return PoolLake.open(root / PATH).pool("raw")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a pool that holds the keys 0 to 2."""
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc").load(
            [{"k": 1}, {"k": 0}, {"k": 2}], author="ada", message="first"
        )
    return lake


def test_a_load_is_read_in_its_session_before_it_is_published(lake: Lake) -> None:
    session = lake.session()
    session.pool(PATH).load([{"k": 5}])
    assert (keys(session.pool(PATH)), keys(lake.pool(PATH))) == ([0, 1, 2, 5], [0, 1, 2])


def test_a_publish_is_read_at_main_at_a_ref_and_by_plain_readers(lake: Lake, tmp_path: Path) -> None:
    load(lake, 5)
    assert [keys(lake.pool(PATH)), keys(lake.pool(PATH, ref="main~1")), keys(plain_pool(tmp_path))] == [
        [0, 1, 2, 5],
        [0, 1, 2],
        [0, 1, 2, 5],
    ]


def test_the_folder_is_a_zed_lake_with_one_pool_of_its_name(lake: Lake, tmp_path: Path) -> None:
    (pool,) = PoolLake.open(tmp_path / PATH).pools()
    assert (pool.name, pool.keys, pool.order) == ("raw", (("k",),), "asc")


def test_a_publish_is_one_commit_and_one_entry_of_the_branch(lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        for value in range(3, 6):
            session.pool(PATH).load([{"k": value}])
    assert len(list(plain_pool(tmp_path).log())) == 2
    assert len(list((tmp_path / PATH).glob("*/branches/*.zng"))) == 2


def test_a_publish_of_one_load_is_the_commit_that_the_load_returned(lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        commit = session.pool(PATH).load([{"k": 5}], author="ada", message="five", meta={"job": 7})
    assert next(plain_pool(tmp_path).log()) == commit


def test_a_load_that_is_published_after_another_keeps_its_author_and_message(lake: Lake) -> None:
    session = lake.session()
    session.pool(PATH).load([{"k": 5}], author="ada", message="five", meta={"job": 7})
    load(lake, 6)
    session.publish()
    commit = next(lake.pool(PATH).log())
    assert (commit.author, commit.message, commit.meta.decode()) == ("ada", "five", {"job": 7})


def test_an_empty_pool_is_created(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_pool(PATH)
    assert [list(lake.pool(PATH).log()), list(plain_pool(tmp_path).log())] == [[], []]


def test_an_empty_pool_is_dropped_and_created_again_in_one_session(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        session.create_pool("empty", key="id")
    with lake.session() as session:
        session.drop("empty")
        session.create_pool("empty", key="id")
    assert lake.pool("empty").scan().to_table().num_rows == 0


def test_a_pool_is_created_once(lake: Lake) -> None:
    session = lake.session()
    with pytest.raises(DatasetExists):
        session.create_pool(PATH, key="k")
    assert keys(session.create_pool(PATH, key="k", order="asc", exist_ok=True)) == [0, 1, 2]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_pool_that_cannot_be_created_leaves_nothing_in_the_session(lake: Lake, dropped: bool) -> None:
    path = PATH if dropped else "events/new"
    if dropped:
        with lake.session() as session:
            session.drop(path)
    with lake.session() as session:
        with pytest.raises(InvalidPoolConfig):
            session.create_pool(path, threshold=0)
        assert [meta.key for meta in session.list(path)] == []
        session.create_pool(path, key="k", order="asc").load([{"k": 7}])
    assert keys(lake.pool(path)) == [7]


def test_a_pool_at_a_ref_takes_no_loads(lake: Lake) -> None:
    with pytest.raises(ReadOnly):
        lake.pool(PATH).load([{"k": 5}])


def test_a_pool_in_a_lake_has_the_branch_main_alone(lake: Lake) -> None:
    session = lake.session()
    with pytest.raises(NoSuchBranch):
        session.pool(PATH).load([{"k": 5}], branch="dev")
    with pytest.raises(OwnedByLake, match="create_branch"):
        session.pool(PATH).create_branch("dev")


def test_a_session_deletes_and_compacts_in_one_commit(lake: Lake, tmp_path: Path) -> None:
    load(lake, 3, 4)
    with lake.session() as session:
        session.pool(PATH).delete("k = 1")
        session.pool(PATH).compact()
    assert (
        keys(plain_pool(tmp_path)),
        len(plain_pool(tmp_path).objects()),
        len(list(plain_pool(tmp_path).log())),
    ) == (
        [0, 2, 3, 4],
        1,
        3,
    )


def test_a_compaction_and_a_load_side_by_side_both_land(lake: Lake) -> None:
    load(lake, 3)
    one, other = lake.session(), lake.session()
    one.pool(PATH).compact()
    other.pool(PATH).load([{"k": 4}])
    other.publish()
    one.publish()
    assert (keys(lake.pool(PATH)), len(lake.pool(PATH).objects())) == ([0, 1, 2, 3, 4], 2)


def test_a_delete_and_a_compaction_of_one_object_conflict_by_its_name(lake: Lake) -> None:
    load(lake, 3)
    (deleted,) = (each.id for each in lake.pool(PATH).objects() if each.count == 3)
    one, other = lake.session(), lake.session()
    one.pool(PATH).delete("k = 1")
    other.pool(PATH).compact()
    one.publish()
    with pytest.raises(Conflict, match=deleted) as caught:
        other.publish()
    assert caught.value.kinds == {PATH: "ObjectDeleted"}


@pytest.mark.parametrize(("strategy", "kept"), [("theirs", [1, 2]), ("ours", [0, 2])])
def test_a_merge_takes_one_side_of_what_conflicts(
    lake: Lake, tmp_path: Path, strategy: Literal["ours", "theirs"], kept: list[int]
) -> None:
    lake.create_branch("dev")
    for branch, key in (("main", 1), ("dev", 0)):
        with lake.session(branch) as session:
            session.pool(PATH).delete(f"k = {key}")
    lake.merge("dev", strategy=strategy)
    assert keys(lake.pool(PATH)) == keys(plain_pool(tmp_path)) == kept


def test_a_serializable_session_that_scanned_a_pool_relies_on_it(lake: Lake) -> None:
    session = lake.session(isolation="serializable")
    session.put("report", b"%d" % len(keys(session.pool(PATH))))
    load(lake, 5)
    with pytest.raises(Conflict) as caught:
        session.publish()
    assert "ReadChanged" in caught.value.kinds.values()


def test_a_comparison_counts_and_shows_records(lake: Lake) -> None:
    load(lake, 5, 6, 7)
    (compared,) = lake.compare("main~1", "main", sample=2).datasets
    comparison = compared.comparison
    assert (comparison.rows_added, comparison.rows_removed, comparison.rows_exact, comparison.files_added) == (
        3,
        0,
        True,
        1,
    )
    assert comparison.sample_added == [{"k": 5}, {"k": 6}]


def test_a_comparison_counts_no_records_that_were_only_rewritten(lake: Lake) -> None:
    load(lake, 5)
    with lake.session() as session:
        session.drop(PATH)
        session.create_pool(PATH, key="k", order="asc").load([{"k": 0}, {"k": 2}, {"k": 9}])
    comparison = lake.compare("main~1", "main", sample=5).datasets[0].comparison
    assert (comparison.sample_added, comparison.sample_removed, comparison.rows_exact) == (
        [{"k": 9}],
        [{"k": 1}, {"k": 5}],
        True,
    )


# Sessions side by side


def test_loads_of_sessions_side_by_side_all_land(lake: Lake, tmp_path: Path) -> None:
    sessions = [lake.session() for _ in range(4)]
    for number, session in enumerate(sessions):
        session.pool(PATH).load([{"k": 10 + number}])
    for session in sessions:
        session.publish()
    assert keys(plain_pool(tmp_path)) == [0, 1, 2, 10, 11, 12, 13]


@pytest.mark.parametrize("key", ["k", "other"])
def test_sessions_that_create_one_pool_merge_where_its_key_is_the_same(lake: Lake, tmp_path: Path, key: str) -> None:
    one, other = lake.session(), lake.session()
    for number, session in enumerate((one, other)):
        session.create_pool("events/new", key="k" if session is one else key, order="asc").load([{"k": number}])
    one.publish()
    if key != "k":
        with pytest.raises(Conflict, match="sorted by") as caught:
            other.publish()
        assert caught.value.kinds == {"events/new": "OtherKey"}
        return
    other.publish()
    assert keys(PoolLake.open(tmp_path / "events/new").pool("new")) == [0, 1]


def test_a_dropped_pool_is_created_again_with_another_key(lake: Lake, tmp_path: Path) -> None:
    with lake.session() as session:
        session.drop(PATH)
    assert keys(plain_pool(tmp_path)) == []
    with lake.session() as session:
        session.create_pool(PATH, key="other", order="desc").load([{"k": 7, "other": 1}])
    assert (plain_pool(tmp_path).config.keys, plain_pool(tmp_path).config.order, keys(plain_pool(tmp_path))) == (
        (("other",),),
        "desc",
        [7],
    )
    assert (lake.pool(PATH, ref="main~2").config.order, keys(lake.pool(PATH, ref="main~2"))) == ("asc", [0, 1, 2])


# Markers


def test_a_load_with_a_marker_happens_once(lake: Lake) -> None:
    for _ in range(2):
        with lake.session() as session:
            session.pool(PATH).load([{"k": 5}], txn=("job", 1))
    assert keys(lake.pool(PATH)) == [0, 1, 2, 5]


def test_a_load_with_a_marker_of_two_sessions_happens_once(lake: Lake) -> None:
    sessions = [lake.session(), lake.session()]
    for session in sessions:
        session.pool(PATH).load([{"k": 5}], txn=("job", 1))
    sessions[0].publish()
    assert [write.path for write in sessions[1].publish().skipped] == [PATH]
    assert keys(lake.pool(PATH)) == [0, 1, 2, 5]


def test_changes_without_a_marker_are_not_left_out_with_a_load_that_is_there(lake: Lake) -> None:
    sessions = [lake.session(), lake.session()]
    for session in sessions:
        session.pool(PATH).load([{"k": 5}], txn=("job", 1))
    sessions[1].pool(PATH).load([{"k": 6}])
    sessions[0].publish()
    sessions[1].publish()
    assert keys(lake.pool(PATH)) == [0, 1, 2, 5, 6]


def test_a_load_that_was_reverted_can_be_repeated(lake: Lake) -> None:
    for _ in range(3):
        with lake.session() as session:
            session.pool(PATH).load([{"k": 5}], txn=("job", 1))
        lake.revert("main")
    assert keys(lake.pool(PATH)) == [0, 1, 2]
    with lake.session() as session:
        session.pool(PATH).load([{"k": 5}], txn=("job", 1))
    assert keys(lake.pool(PATH)) == [0, 1, 2, 5]


# Cached snapshots


def snapshots(store: ObjectStore) -> list[str]:
    return [meta.key for meta in store.list(PATH) if meta.key.endswith(".snap.zng")]


def test_cached_snapshots_are_collected_but_for_the_newest() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    lake = Lake.create(store, clock=clock)
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc")
    for value in range(3):
        load(lake, value)
        lake.maintenance.checkpoint(PATH)
    assert len(snapshots(store)) == 3
    clock.pass_days(40)
    lake.maintenance.gc()
    assert (len(snapshots(store)), keys(lake.pool(PATH)), lake.maintenance.verify()) == (1, [0, 1, 2], [])


def test_a_pool_of_many_commits_is_opened_by_reading_few() -> None:
    store = MemoryStore()
    lake = Lake.create(store)
    with lake.session() as session:
        session.create_pool(PATH, key="k", order="asc")
    for value in range(22):
        load(lake, value)
    assert len(snapshots(store)) == 1
    counting = RoundTripStore(store)
    assert counting.measure(lambda: Lake.open(counting).pool(PATH).objects()) < 15


# Other clients, and bringing in


def test_what_another_client_loads_is_adopted_before_the_next_publish(lake: Lake, tmp_path: Path) -> None:
    plain_pool(tmp_path).load([{"k": 7}])
    load(lake, 8)
    assert [keys(lake.pool(PATH)), keys(plain_pool(tmp_path))] == [[0, 1, 2, 7, 8], [0, 1, 2, 7, 8]]


def test_pools_that_another_client_creates_in_the_folder_stay_there(lake: Lake, tmp_path: Path) -> None:
    other = PoolLake.open(tmp_path / PATH).create_pool("other", key="k", order="asc")
    other.load([{"k": 100}])
    load(lake, 5)
    assert (keys(lake.pool(PATH)), keys(other)) == ([0, 1, 2, 5], [100])
    assert [pool.name for pool in PoolLake.open(tmp_path / PATH).pools()] == ["other", "raw"]


def test_branches_that_another_client_creates_stay_in_the_folder(lake: Lake, tmp_path: Path) -> None:
    plain_pool(tmp_path).create_branch("side")
    plain_pool(tmp_path).load([{"k": 50}], "side")
    load(lake, 5)
    assert [keys(lake.pool(PATH)), [record["k"] for record in plain_pool(tmp_path).scan("side").records()]] == [
        [0, 1, 2, 5],
        [0, 1, 2, 50],
    ]
    assert [branch.name for branch in lake.pool(PATH).list_branches()] == ["main"]


def test_a_pool_that_another_client_renames_goes_on(lake: Lake, tmp_path: Path) -> None:
    PoolLake.open(tmp_path / PATH).rename_pool("raw", "renamed")
    load(lake, 5)
    assert keys(PoolLake.open(tmp_path / PATH).pool("renamed")) == keys(lake.pool(PATH)) == [0, 1, 2, 5]


def test_a_pool_that_another_client_dropped_is_refused(lake: Lake, tmp_path: Path) -> None:
    PoolLake.open(tmp_path / PATH).drop_pool("raw")
    with pytest.raises(DamagedLake, match="restore it from a backup"):
        load(lake, 5)


def test_a_zed_lake_with_one_pool_is_brought_in(tmp_path: Path) -> None:
    pool = PoolLake.create(tmp_path / PATH).create_pool("old", key="k", order="asc")
    pool.load([{"k": 1}])
    pool.load([{"k": 2}])
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        assert keys(session.import_pool(PATH)) == [1, 2]
    load(lake, 3)
    assert keys(PoolLake.open(tmp_path / PATH).pool("old")) == keys(lake.pool(PATH)) == [1, 2, 3]


def test_a_lake_with_pools_verifies_and_is_exported(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> None:
    load(lake, 5)
    assert lake.maintenance.verify() == []
    target = tmp_path_factory.mktemp("export")
    lake.maintenance.export(LocalStore(target))
    assert (target / "_lakefs").exists()
