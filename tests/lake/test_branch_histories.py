"""Random histories of a branch of a lake that is merged again and again.

Only `dev` changes rows; both branches compact. So after a merge into main, main has the rows of `dev`, and a merge into
`dev` changes none. A merge may also conflict; then nothing changes.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from lake_core.lake import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.store import MemoryStore

ACTIONS = {
    "load": 2,
    "delete a record": 2,
    "delete a load": 1,
    "revert": 3,
    "compact": 1,
    "compact main": 1,
    "merge": 5,
    "merge main": 1,
}
"""The actions, and how often they are drawn."""
SCHEMA = pa.schema([("k", pa.int64())])


@dataclass
class BranchHistory:
    """A lake with a table and a pool, whose rows are the same.

    Attributes:
        lake: The lake.
        rng: Draws the actions.
        loads: How many loads of three rows there were.
        commits: The commits of `dev` that changed rows.
        merges: How many merges into main succeeded.
        actions: The actions so far, for messages.
    """

    lake: Lake
    rng: random.Random
    loads: int = 0
    commits: list[str] = field(default_factory=list)
    merges: int = 0
    actions: list[str] = field(default_factory=list)

    def rows(self, branch: str) -> list[Counter[int]]:
        """Return the keys in the table and in the pool."""
        table = self.lake.delta("table", ref=branch).to_arrow()["k"].to_pylist()
        return [Counter(table), Counter(record["k"] for record in self.lake.pool("pool", ref=branch).scan().records())]

    def step(self) -> None:
        (action,) = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))
        self.do(action)

    def do(self, action: str) -> None:
        self.actions.append(action)
        dev, main = self.rows("dev"), self.rows("main")
        try:
            self.act(action)
        except Conflict:
            self.actions[-1] += " (conflict)"
            assert (self.rows("dev"), self.rows("main")) == (dev, main), self.actions
            return
        except NothingToApply:
            if action == "merge":
                assert main == dev, self.actions
            return
        if action == "merge":
            self.merges += 1
            assert self.rows("main") == dev, self.actions
        elif action in ("compact", "compact main", "merge main"):
            assert self.rows("dev") == dev, self.actions

    def act(self, action: str) -> None:
        keys = range(3 * self.loads)[-6:]
        match action:
            case "load":
                rows = pa.table({"k": range(3 * self.loads, 3 * self.loads + 3)}, schema=SCHEMA)
                self.loads += 1
                with self.lake.session("dev") as session:
                    session.delta("table").append(rows)
                    session.pool("pool").load(rows)
            case "delete a record" if keys:
                self.delete(f"k = {self.rng.choice(keys)}")
            case "delete a load" if keys:
                first = 3 * self.rng.randrange(self.loads)
                self.delete(f"k >= {first} and k < {first + 3}")
            case "revert" if self.commits:
                self.lake.revert(self.rng.choice([*self.commits, *self.commits[-1:] * 2]), branch="dev")
            case "compact" | "compact main":
                with self.lake.session("main" if action == "compact main" else "dev") as session:
                    session.delta("table").optimize()
                    session.pool("pool").compact()
                return
            case "merge":
                self.lake.merge("dev")
                return
            case "merge main":
                self.lake.merge("main", into="dev")
                return
            case _:
                return
        tip = next(iter(self.lake.log("dev"))).id
        if tip not in self.commits:
            self.commits.append(tip)

    def delete(self, where: str) -> None:
        with self.lake.session("dev") as session:
            session.delta("table").delete(where)
            session.pool("pool").delete(where)


def run(seed: int, steps: int) -> int:
    """Run a random history. Return how many merges into main succeeded."""
    lake = Lake.create(MemoryStore())
    with lake.session() as session:
        session.create_delta("table", SCHEMA)
        session.create_pool("pool", key="k", order="asc").load([{"k": -1}])
        session.delta("table").append(pa.table({"k": [-1]}, schema=SCHEMA))
    lake.create_branch("dev")
    history = BranchHistory(lake, random.Random(seed))
    for _ in range(steps):
        history.step()
    history.do("merge")
    return history.merges


@pytest.mark.parametrize("steps", [8, 16])
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in range(10, 400, 10))]
)
def test_after_a_merge_both_branches_have_the_same_rows(first: int, steps: int) -> None:
    assert sum(run(seed, steps) for seed in range(first, first + 10)) > 5, "merges that changed something"
