"""Random histories of a branch that is merged again and again.

Only `dev` changes records; both branches compact. So after a merge into main, main has the records of `dev`, and a
merge into `dev` changes none.
"""

from __future__ import annotations

import random

import pytest

from lake_core.pool import Pool, PoolLake
from lake_core.pool.commit import Commit
from lake_core.pool.errors import DeleteConflict
from lake_core.store import MemoryStore

ACTIONS = {
    "load": 2,
    "delete a record": 2,
    "delete an object": 1,
    "revert": 3,
    "compact": 1,
    "compact main": 1,
    "merge": 5,
    "merge main": 1,
}
"""The actions, and how often they are drawn."""


def keys(pool: Pool, branch: str) -> list[int]:
    return [record["k"] for record in pool.scan(branch).records()]


def run(seed: int, steps: int) -> int:
    """Run a random history. Return how many merges into main succeeded."""
    rng = random.Random(seed)
    pool = PoolLake.create(MemoryStore()).create_pool("events", key="k", order="asc")
    pool.load([{"k": -1}])
    pool.create_branch("dev")
    changes: list[Commit] = []
    loaded = merges = 0
    history: list[str] = []
    for _ in range(steps):
        (action,) = rng.choices(list(ACTIONS), list(ACTIONS.values()))
        history.append(action)
        before = keys(pool, "dev")
        commit = None
        try:
            match action:
                case "load":
                    loaded += 3
                    commit = pool.load([{"k": key} for key in range(loaded - 3, loaded)], "dev")
                case "delete a record" if loaded:
                    commit = pool.delete(f"k = {rng.randrange(max(0, loaded - 6), loaded)}", "dev")
                case "delete an object" if objects := pool.objects("dev"):
                    commit = pool.delete(ids=[rng.choice(objects).id], branch="dev")
                case "revert" if changes:
                    commit = pool.revert(rng.choice([*changes, changes[-1], changes[-1]]).id, "dev")
                case "compact" | "compact main":
                    branch = "main" if action == "compact main" else "dev"
                    pool.compact(branch=branch)
                    assert keys(pool, "dev") == before, history
                case "merge":
                    pool.merge("dev")
                    assert keys(pool, "main") == before, (seed, history)
                    merges += 1
                case "merge main":
                    pool.merge("main", into="dev")
                    assert keys(pool, "dev") == before, (seed, history)
        except DeleteConflict:
            history[-1] += " (conflict)"
        if commit is not None:
            changes.append(commit)
    return merges


@pytest.mark.parametrize("steps", [8, 16])
@pytest.mark.parametrize(
    "first", [0, 25, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in range(50, 1000, 25))]
)
def test_after_a_merge_both_branches_have_the_same_records(first: int, steps: int) -> None:
    assert sum(run(seed, steps) for seed in range(first, first + 25)) > 10
