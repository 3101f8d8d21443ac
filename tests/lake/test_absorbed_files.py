"""Files that a merge left out, because later commits of the branch replaced them, do not come back."""

from __future__ import annotations

from typing import Any

import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.lake.session.write_session import WriteSession
from tests.lake.lakes import SCHEMA, ids, rows


class Table:
    """A Delta table of ids."""

    path = "t/a"

    def append(self, session: WriteSession, start: int) -> None:
        if self.path not in session.datasets():
            session.create_delta(self.path, SCHEMA)
        session.delta(self.path).append(rows(range(start, start + 4)))

    def delete(self, session: WriteSession, id: int) -> None:
        session.delta(self.path).delete(f"id = {id}")

    def ids(self, lake: Lake, ref: str = "main") -> list[int]:
        return ids(lake.delta(self.path, ref=ref))


class Pool:
    """A pool of ids."""

    path = "p/a"

    def append(self, session: WriteSession, start: int) -> None:
        if self.path not in session.datasets():
            session.create_pool(self.path, key="id")
        session.pool(self.path).load([{"id": id} for id in range(start, start + 4)])

    def delete(self, session: WriteSession, id: int) -> None:
        session.pool(self.path).delete(f"id = {id}")

    def ids(self, lake: Lake, ref: str = "main") -> list[int]:
        return sorted(record["id"] for record in lake.pool(self.path, ref=ref).scan().records())


class Branched:
    """A lake with a branch `dev`, and with the dataset on both sides or on none."""

    def __init__(self, lake: Lake, dataset: Table | Pool, *, is_old: bool) -> None:
        self.lake, self.dataset = lake, dataset
        if is_old:
            self.append("main", 100)
        lake.create_branch("dev")

    def append(self, branch: str, start: int) -> str:
        """Append four ids in a commit, and return the commit."""
        with self.lake.session(branch) as session:
            self.dataset.append(session, start)
        return self.lake.list_branches()[branch]

    def delete(self, branch: str, id: int) -> None:
        """Delete one id in a commit, which rewrites its file."""
        with self.lake.session(branch) as session:
            self.dataset.delete(session, id)

    def ids(self, ref: str = "main") -> list[int]:
        """Return the ids at a ref."""
        return self.dataset.ids(self.lake, ref)


@pytest.fixture(params=[Table, Pool], ids=["table", "pool"])
def dataset(request: pytest.FixtureRequest) -> Table | Pool:
    dataset: Table | Pool = request.param()
    return dataset


@pytest.fixture(params=[False, True], ids=["new", "old"])
def branched(lake: Lake, dataset: Table | Pool, request: pytest.FixtureRequest) -> Branched:
    return Branched(lake, dataset, is_old=request.param)


@pytest.mark.parametrize("options", [{}, {"squash": True}], ids=str)
def test_a_commit_that_was_merged_is_not_picked(branched: Branched, options: dict[str, Any]) -> None:
    appended = branched.append("dev", 0)
    branched.delete("dev", 0)
    branched.lake.merge("dev", **options)
    before = branched.ids()
    with pytest.raises(NothingToApply):
        branched.lake.cherry_pick(appended, onto="main")
    assert branched.ids() == before


def test_a_commit_of_a_branch_that_was_taken_as_it_is_is_not_picked(lake: Lake, dataset: Table | Pool) -> None:
    branched = Branched(lake, dataset, is_old=True)
    branched.delete("main", 100)
    appended = branched.append("dev", 0)
    for id in (0, 101):
        branched.delete("dev", id)
    branched.lake.merge("dev", strategy="theirs")
    assert branched.ids() == [1, 2, 3, 100, 102, 103]
    with pytest.raises(NothingToApply):
        branched.lake.cherry_pick(appended, onto="main")


def test_branches_that_replaced_the_same_file_conflict(branched: Branched) -> None:
    branched.append("dev", 0)
    branched.lake.create_branch("other", at="dev")
    branched.delete("dev", 0)
    branched.delete("other", 3)
    branched.lake.merge("other", squash=True)
    before = branched.ids()
    with pytest.raises(Conflict):
        branched.lake.merge("dev")
    assert branched.ids() == before


def test_a_file_that_a_squashed_branch_replaces_later_is_replaced(branched: Branched) -> None:
    branched.append("dev", 0)
    branched.lake.merge("dev", squash=True)
    branched.delete("dev", 0)
    branched.lake.merge("dev")
    assert branched.ids() == branched.ids("dev")


def test_files_that_a_merge_left_out_stay_known_after_another_merge(branched: Branched) -> None:
    appended = branched.append("dev", 0)
    branched.delete("dev", 0)
    branched.lake.create_branch("stage", at="main")
    branched.lake.merge("dev", into="stage", squash=True)
    branched.delete("stage", 1)
    branched.lake.merge("stage", squash=True)
    with pytest.raises(NothingToApply):
        branched.lake.cherry_pick(appended, onto="main")


@pytest.mark.parametrize("squash", [False, True])
def test_a_branch_is_merged_again_and_again(branched: Branched, squash: bool) -> None:
    for number in range(3):
        branched.append("dev", 10 * number)
        branched.delete("dev", 10 * number)
        branched.lake.merge("dev", squash=squash)
    assert branched.ids() == branched.ids("dev")


def test_a_branch_is_merged_whose_commits_were_all_picked(branched: Branched) -> None:
    branched.lake.cherry_pick(branched.append("dev", 0), onto="main")
    branched.delete("dev", 0)
    branched.lake.cherry_pick(branched.lake.list_branches()["dev"], onto="main")
    branched.append("dev", 10)
    branched.lake.merge("dev")
    assert branched.ids() == branched.ids("dev")


def test_what_two_branches_got_from_a_third_does_not_keep_them_apart(lake: Lake, dataset: Table | Pool) -> None:
    branched = Branched(lake, dataset, is_old=True)
    branched.lake.create_branch("stage", at="main")
    branched.append("stage", 0)
    branched.delete("stage", 0)
    for branch in ("main", "dev"):
        branched.append(branch, 10 if branch == "main" else 20)
        branched.lake.merge("stage", into=branch)
    branched.append("dev", 30)
    branched.delete("dev", 30)
    branched.lake.merge("dev")
    assert [id for id in branched.ids() if id < 100] == [1, 2, 3, *range(10, 14), *range(20, 24), 31, 32, 33]


def test_a_commit_that_was_reverted_is_brought_back_by_a_revert(branched: Branched) -> None:
    branched.append("dev", 0)
    branched.delete("dev", 0)
    branched.append("main", 10)
    merge = branched.lake.merge("dev").commit
    merged = branched.ids()
    revert = branched.lake.revert(merge).commit
    branched.lake.revert(revert)
    assert branched.ids() == merged
