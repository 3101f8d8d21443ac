"""Branches of pools: they are created, merged, reverted and deleted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import (
    BranchExists,
    DeleteConflict,
    InvalidBranchName,
    NoSuchBranch,
    NoSuchCommit,
    ObjectsVacuumed,
)
from lake_core.pool.key_range import KeyRange
from lake_core.store import MemoryStore
from lake_core.testing import ManualClock


@pytest.fixture
def pool() -> Pool:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    pool.load([{"k": 1}])
    pool.create_branch("dev")
    return pool


def keys(pool: Pool, branch: str = "main") -> list[int]:
    return [record["k"] for record in pool.scan(branch).records()]


def rewrite(pool: Pool, branch: str, start: int, stop: int, rows: Sequence[int]) -> str:
    """Replace a range of keys, and return the id of the commit."""
    ranges = [KeyRange.of(start, stop)]
    commit = pool.replace(pool.write_objects([{"k": key} for key in rows], ranges), ranges, branch)
    assert commit is not None
    return commit.id


def merge_a_deletion(pool: Pool, where: str) -> str:
    """Load records on `dev`, merge them, delete some there and merge that. Return the id of the deletion."""
    pool.load([{"k": key} for key in (2, 3, 4)], "dev")
    pool.merge("dev")
    commit = pool.delete(where, "dev")
    assert commit is not None
    pool.merge("dev")
    return commit.id


def test_branches_are_listed_created_and_deleted(pool: Pool) -> None:
    assert [branch.name for branch in pool.list_branches()] == ["dev", "main"]
    assert pool.create_branch("old", at=pool.tip()).commit == pool.tip()
    pool.delete_branch("dev")
    assert [branch.name for branch in pool.list_branches()] == ["main", "old"]


def test_main_is_deleted_and_created_like_any_other(pool: Pool) -> None:
    pool.delete_branch("main")
    with pytest.raises(NoSuchBranch):
        pool.scan()
    pool.create_branch("main", at="dev")
    assert keys(pool) == [1]


def test_a_branch_begins_at_a_commit_or_a_branch_that_exists(pool: Pool) -> None:
    first = pool.tip()
    pool.load([{"k": 2}])
    pool.create_branch("first", at=first)
    assert keys(pool, "first") == [1]
    for nowhere in ("nowhere", "0" * 26 + "1"):
        with pytest.raises(NoSuchBranch, match="no branch or commit"):
            pool.create_branch("x", at=nowhere)


@pytest.mark.parametrize("name", ["", "a@b", "a\nb", "0ujtsYcgvSTl8PAuAdqWYSMnLOv"])
def test_names_that_mislead_are_refused(pool: Pool, name: str) -> None:
    with pytest.raises(InvalidBranchName):
        pool.create_branch(name)


def test_a_branch_is_created_and_deleted_once(pool: Pool) -> None:
    with pytest.raises(BranchExists):
        pool.create_branch("dev")
    pool.delete_branch("dev")
    with pytest.raises(NoSuchBranch):
        pool.delete_branch("dev")


def test_a_merge_brings_what_a_branch_has_changed(pool: Pool) -> None:
    pool.load([{"k": 2}], "dev")
    pool.load([{"k": 3}])
    commit = pool.merge("dev", author="ada")
    assert commit is not None
    assert (commit.author, commit.message, commit.merged) == ("ada", "merged 'dev' into 'main'", pool.tip("dev"))
    assert (keys(pool), keys(pool, "dev")) == ([1, 2, 3], [1, 2])
    assert pool.merge("dev") is None
    assert pool.tip() == commit.id


def test_a_merge_of_deletes_happens_once(pool: Pool) -> None:
    rewrite(pool, "dev", 1, 2, [])
    assert pool.merge("dev") is not None
    assert pool.merge("dev") is None
    pool.load([{"k": 5}], "dev")
    assert pool.merge("dev") is not None
    assert keys(pool) == [5]


def test_what_was_merged_and_rewritten_since_does_not_come_back(pool: Pool) -> None:
    pool.load([{"k": 2}], "dev")
    pool.merge("dev")
    rewrite(pool, "main", 2, 3, [])
    pool.load([{"k": 4}], "dev")
    pool.merge("dev")
    assert keys(pool) == [1, 4]


def test_branches_are_merged_into_one_another_in_turns(pool: Pool) -> None:
    pool.load([{"k": 2}], "dev")
    rewrite(pool, "main", 1, 2, [1, 1])
    pool.merge("main", into="dev")
    assert keys(pool, "dev") == [1, 1, 2]
    rewrite(pool, "dev", 1, 2, [1])
    pool.merge("dev")
    assert keys(pool) == keys(pool, "dev") == [1, 2]
    rewrite(pool, "main", 1, 2, [])
    pool.merge("main", into="dev")
    assert keys(pool, "dev") == [2]


def crossed(pool: Pool) -> None:
    """Merge main and dev into one another as two writers do at the same time: neither sees the other's merge."""
    pool.create_branch("main-before", at="main")
    pool.load([{"k": 2}], "dev")
    pool.load([{"k": 3}], "main-before")
    pool.merge("main-before")
    pool.merge("dev")
    pool.merge("main-before", into="dev")
    assert keys(pool) == keys(pool, "dev") == [1, 2, 3]


@pytest.mark.parametrize(("source", "target"), [("main", "dev"), ("dev", "main")])
def test_what_was_rewritten_after_crossed_merges_is_merged_once(pool: Pool, source: str, target: str) -> None:
    crossed(pool)
    pool.compact(branch=source)
    pool.merge(source, into=target)
    assert keys(pool, target) == [1, 2, 3]


def test_what_both_rewrote_after_crossed_merges_is_a_conflict(pool: Pool) -> None:
    crossed(pool)
    rewrite(pool, "dev", 2, 3, [2, 2])
    pool.compact()
    with pytest.raises(DeleteConflict, match="both branches deleted or rewrote"):
        pool.merge("main", into="dev")


def test_what_was_deleted_before_crossed_merges_stays_deleted(pool: Pool) -> None:
    rewrite(pool, "main", 1, 2, [])
    pool.create_branch("main-before", at="main")
    pool.load([{"k": 2}], "dev")
    pool.merge("dev")
    pool.merge("main-before", into="dev")
    pool.compact(branch="dev") if len(pool.objects("dev")) > 1 else None
    pool.load([{"k": 3}])
    pool.merge("main", into="dev")
    pool.merge("dev")
    assert keys(pool) == keys(pool, "dev") == [2, 3]


def test_what_both_merged_from_a_third_branch_and_one_rewrote_is_merged_once(pool: Pool) -> None:
    pool.create_branch("third")
    pool.load([{"k": 2}], "third")
    pool.load([{"k": 3}], "third")
    for branch in ("main", "dev"):
        pool.load([{"k": 4}], branch)
        pool.merge("third", into=branch)
    pool.compact()
    pool.merge("main", into="dev")
    assert keys(pool, "dev") == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("where", ["k = 3", "k > 1"])
def test_a_deletion_that_is_reverted_after_its_merge_is_undone_by_the_next(pool: Pool, where: str) -> None:
    deletion = merge_a_deletion(pool, where)
    pool.revert(deletion, "dev")
    pool.merge("dev")
    assert keys(pool) == [1, 2, 3, 4]


def test_a_deletion_is_not_undone_where_what_it_left_was_rewritten(pool: Pool) -> None:
    deletion = merge_a_deletion(pool, "k = 3")
    pool.revert(deletion, "dev")
    pool.compact()
    with pytest.raises(DeleteConflict):
        pool.merge("dev")
    assert keys(pool) == [1, 2, 4]


@pytest.mark.parametrize("where", ["k = 3", "k > 1"])
def test_what_both_branches_restored_and_one_rewrote_is_not_doubled(pool: Pool, where: str) -> None:
    deletion = merge_a_deletion(pool, where)
    pool.revert(pool.tip())
    pool.compact()
    pool.revert(deletion, "dev")
    with suppress(DeleteConflict):
        pool.merge("dev")
    assert keys(pool) == [1, 2, 3, 4]


def test_rewriting_the_same_objects_on_both_sides_is_a_conflict(pool: Pool) -> None:
    (original,) = pool.objects()
    rewrite(pool, "dev", 1, 2, [1, 1])
    rewrite(pool, "main", 1, 2, [])
    before = pool.tip()
    with pytest.raises(DeleteConflict, match="both branches deleted or rewrote") as caught:
        pool.merge("dev")
    assert caught.value.ids == (original.id,)
    assert pool.tip() == before


def test_deleting_the_same_objects_on_both_sides_is_none(pool: Pool) -> None:
    rewrite(pool, "dev", 1, 2, [])
    rewrite(pool, "main", 1, 2, [])
    assert pool.merge("dev") is None
    assert keys(pool) == []


def test_a_marker_is_merged_with_its_load(pool: Pool) -> None:
    pool.load([{"k": 2}], "dev", txn=("app", 1))
    pool.merge("dev")
    assert pool.load([{"k": 2}], txn=("app", 1)) is None


def test_a_merge_of_an_older_commit_brings_nothing_twice(pool: Pool) -> None:
    pool.load([{"k": 2}])
    pool.create_branch("older")
    pool.compact()
    pool.merge("main", into="dev")
    assert pool.merge("older", into="dev") is None
    pool.load([{"k": 3}], "older")
    pool.merge("older", into="dev")
    assert keys(pool, "dev") == [1, 2, 3]


def test_what_came_by_a_deleted_branch_is_not_merged_twice(pool: Pool) -> None:
    pool.load([{"k": 2}])
    pool.create_branch("between")
    pool.load([{"k": 3}], "between")
    pool.merge("between", into="dev")
    pool.delete_branch("between")
    clock = ManualClock(dt.datetime.now(dt.UTC) + dt.timedelta(days=30))
    PoolLake.open(pool.store, clock=clock).pool("events").vacuum()
    pool.compact()
    pool.merge("main", into="dev")
    assert keys(pool, "dev") == [1, 2, 3]


def test_a_merge_between_branches_without_a_common_commit_takes_all(pool: Pool) -> None:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    pool.create_branch("dev")
    pool.load([{"k": 1}], "dev")
    pool.load([{"k": 2}])
    pool.merge("dev")
    assert keys(pool) == [1, 2]


def load(pool: Pool) -> str:
    commit = pool.load([{"k": 7}, {"k": 8}])
    assert commit is not None
    return commit.id


def replace(pool: Pool) -> str:
    return rewrite(pool, "main", 1, 2, [])


@pytest.mark.parametrize("change", [load, replace])
def test_a_revert_undoes_one_commit_once(pool: Pool, change: Callable[[Pool], str]) -> None:
    before = keys(pool)
    commit = change(pool)
    pool.load([{"k": 9}])
    assert pool.revert(commit) is not None
    assert keys(pool) == [*before, 9]
    assert pool.revert(commit) is None


def test_a_revert_of_a_revert_brings_the_change_back(pool: Pool) -> None:
    commit = load(pool)
    undone = pool.revert(commit)
    assert undone is not None
    assert undone.message == f"reverted {commit}"
    pool.revert(undone.id)
    assert keys(pool) == [1, 7, 8]


def test_a_commit_whose_values_were_rewritten_since_is_not_reverted(pool: Pool) -> None:
    commit = load(pool)
    rewrite(pool, "main", 8, 9, [8, 8])
    with pytest.raises(DeleteConflict, match="later commits deleted or rewrote"):
        pool.revert(commit)
    assert keys(pool) == [1, 7, 8, 8]


@pytest.mark.parametrize("ids", [True, False])
def test_a_revert_does_not_return_what_later_commits_deleted(pool: Pool, ids: bool) -> None:
    pool.load([{"k": 7}])
    compaction = pool.compact()
    assert compaction is not None
    if ids:
        pool.delete(ids=[each.id for each in pool.objects()])
    else:
        pool.delete("true")
    with pytest.raises(DeleteConflict, match="later commits deleted or rewrote"):
        pool.revert(compaction.id)
    assert keys(pool) == []


def test_a_deletion_that_was_reverted_twice_over_keeps_the_other_values(pool: Pool) -> None:
    load(pool)
    deletion = pool.delete("k = 7")
    assert deletion is not None
    undone = pool.revert(deletion.id)
    assert undone is not None
    redone = pool.revert(undone.id)
    assert redone is not None
    with pytest.raises(DeleteConflict, match="which an earlier revert of it brought back; revert those commits first"):
        pool.revert(deletion.id)
    assert keys(pool) == [1, 8]
    pool.revert(redone.id)
    assert keys(pool) == [1, 7, 8]


def test_a_merge_is_not_reverted_where_a_later_one_brought_what_it_deleted(pool: Pool) -> None:
    pool.load([{"k": 2}], "dev")
    pool.merge("dev")
    pool.compact(branch="dev")
    commit = pool.delete("k > 0", "dev")
    assert commit is not None
    merge = pool.merge("dev")
    assert merge is not None
    pool.revert(commit.id, "dev")
    pool.merge("dev")
    with pytest.raises(DeleteConflict):
        pool.revert(merge.id)
    assert keys(pool) == [1, 2]


def test_a_compaction_that_comes_by_another_branch_conflicts_with_a_deletion(pool: Pool) -> None:
    pool.create_branch("by")
    pool.load([{"k": 2}], "dev")
    pool.load([{"k": 3}], "dev")
    pool.merge("dev")
    pool.delete("k >= 2")
    pool.compact(branch="dev")
    pool.merge("dev", "by")
    with pytest.raises(DeleteConflict):
        pool.merge("by")
    assert keys(pool) == [1]


def test_of_two_compactions_that_come_by_other_branches_the_second_conflicts(pool: Pool) -> None:
    known = {each.id for each in pool.objects()}
    for name in ("by", "other by"):
        pool.create_branch(name)
    pool.load([{"k": 2}], "dev")
    pool.load([{"k": 3}], "dev")
    pool.create_branch("other", at="dev")
    for branch, by in (("dev", "by"), ("other", "other by")):
        pool.compact(sorted({each.id for each in pool.objects(branch)} - known), branch)
        pool.merge(branch, by)
    pool.merge("by")
    with pytest.raises(DeleteConflict):
        pool.merge("other by")
    assert keys(pool) == [1, 2, 3]


def test_a_commit_of_another_branch_is_not_reverted(pool: Pool) -> None:
    commit = load(pool)
    with pytest.raises(NoSuchCommit):
        pool.revert(commit, "dev")


def test_values_that_are_gone_are_not_restored(pool: Pool) -> None:
    (original,) = pool.objects()
    commit = replace(pool)
    pool.store.delete([f"{pool.config.id}/data/{original.id}.zng"])
    with pytest.raises(ObjectsVacuumed) as caught:
        pool.revert(commit)
    assert caught.value.ids == (original.id,)
    assert keys(pool) == []
