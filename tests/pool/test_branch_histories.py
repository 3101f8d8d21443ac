"""Random histories of branches that are merged again and again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lake_core.pool import Pool, PoolLake
from lake_core.pool.errors import DeleteConflict
from lake_core.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

ACTIONS = {"load": 2, "delete a record": 2, "delete an object": 1, "revert": 3, "compact": 2, "merge": 6}
"""The actions, and how often they are drawn."""


@dataclass
class BranchHistory:
    """Two branches of a pool, main and `dev`. No two records have the same key.

    Attributes:
        pool: The pool.
        rng: Draws the actions.
        loaded: How many keys were loaded.
        changes: The commits of each branch that can be reverted.
        merges: How many merges made a commit.
        actions: The actions so far, for messages.
    """

    pool: Pool
    rng: random.Random
    loaded: int = 0
    changes: dict[str, list[str]] = field(default_factory=lambda: {"main": [], "dev": []})
    merges: int = 0
    actions: list[str] = field(default_factory=list)

    def keys(self, branch: str) -> list[int]:
        return [record["k"] for record in self.pool.scan(branch).records()]

    def draw(self) -> str:
        return self.rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]

    def act(self, action: str, branch: str) -> None:
        """Make a change of a branch, or merge the other one into it. Raises DeleteConflict."""
        self.actions.append(f"{action} {branch}")
        pool, rng, changes = self.pool, self.rng, self.changes[branch]
        commit = None
        match action:
            case "load":
                first = self.loaded
                self.loaded += 3
                commit = pool.load([{"k": key} for key in range(first, self.loaded)], branch)
            case "delete a record" if self.loaded:
                commit = pool.delete(f"k = {rng.randrange(max(0, self.loaded - 6), self.loaded)}", branch)
            case "delete an object" if objects := pool.objects(branch):
                commit = pool.delete(ids=[rng.choice(objects).id], branch=branch)
            case "revert" if changes:
                commit = pool.revert(rng.choice([*changes, changes[-1], changes[-1]]), branch)
            case "compact":
                before = self.keys(branch)
                pool.compact(branch=branch)
                assert self.keys(branch) == before, self.actions
            case "merge":
                commit = pool.merge("dev" if branch == "main" else "main", branch)
                self.merges += commit is not None
        if commit is not None:
            changes.append(commit.id)


def _seeds(usual: int, most: int, block: int = 25) -> list[object]:
    blocks = [range(first, first + block) for first in range(0, most, block)]
    return [pytest.param(each, marks=[] if each.start < usual else pytest.mark.exhaustive) for each in blocks]


def _history(seed: int) -> BranchHistory:
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    pool.load([{"k": -1}])
    pool.create_branch("dev")
    return BranchHistory(pool, random.Random(seed))


def follow(history: BranchHistory, steps: int) -> None:
    """Let only `dev` change records: after a merge into main, main has the same; a merge into `dev` changes nothing."""
    for _ in range(steps):
        action = history.draw()
        branch = history.rng.choice(["main", "dev"]) if action in ("compact", "merge") else "dev"
        before = history.keys("dev")
        try:
            history.act(action, branch)
        except DeleteConflict:
            continue
        if action == "merge":
            assert history.keys(branch) == before, history.actions


def cross(history: BranchHistory, steps: int) -> None:
    """Let both branches change records: a merge doubles none, and loses none that both have."""
    for _ in range(steps):
        action, branch = history.draw(), history.rng.choice(["main", "dev"])
        both = set(history.keys("main")), set(history.keys("dev"))
        try:
            history.act(action, branch)
        except DeleteConflict:
            continue
        keys = history.keys(branch)
        assert len(keys) == len(set(keys)), history.actions
        if action == "merge":
            assert both[0] & both[1] <= set(keys) <= both[0] | both[1], history.actions


def _run(rule: Callable[[BranchHistory, int], None], seeds: range, steps: int) -> None:
    histories = [_history(seed) for seed in seeds]
    for history in histories:
        rule(history, steps)
    assert sum(history.merges for history in histories) > 5


@pytest.mark.parametrize("steps", [8, 16])
@pytest.mark.parametrize("seeds", _seeds(25, 1000))
def test_after_a_merge_main_has_the_records_of_the_branch(seeds: range, steps: int) -> None:
    _run(follow, seeds, steps)


@pytest.mark.parametrize("steps", [8, 16, 24])
@pytest.mark.parametrize("seeds", _seeds(25, 1000))
@pytest.mark.sampled(2)
def test_merges_in_both_directions_double_and_lose_nothing(seeds: range, steps: int) -> None:
    _run(cross, seeds, steps)
