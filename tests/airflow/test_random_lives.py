"""Random orders of what people do to runs: each run's colour is true, and its rows are there once."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.behaviour import plan, planned
from tests.airflow.test_lives import meant, new_life, published

pytestmark = [pytest.mark.airflow, pytest.mark.newest]

TASKS = (
    "open",
    "files",
    "day",
    "line",
    "choose",
    "left",
    "right",
    "down",
    "report",
    "halves",
    "some",
    "publish",
    "close",
)
FAILING = ("day", "line", "down", "report")


class People:
    """Runs of one DAG, and what must be published of each."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.chance = root, random.Random(seed)
        self.lives: list[Any] = [new_life()]
        self.rows: dict[str, Counter[Any]] = {}
        """What each run has published."""
        self.unopened: set[str] = set()
        """The runs that somebody marked before their session was opened. Airflow leaves out their teardown, too."""
        self.did: list[str] = []

    def act(self) -> None:
        """Do something, and let the run go on."""
        life = self.chance.choice(self.lives)
        acts = [self.clear, self.clear, self.clear_failed, self.stop, self.mark, self.mark_run, self.again, self.more]
        plan(
            fail=self.chance.sample(FAILING, self.chance.choice([0, 0, 0, 1, 2])),
            files=self.chance.randint(0, 3),
            branch=self.chance.choice(["left", "right"]),
            bad=self.chance.random() < 0.1,
        )
        self.did.append(f"{planned()}")
        self.chance.choice(acts)(life)

    def clear(self, life: Any) -> None:
        tasks = self.chance.sample(TASKS, self.chance.choice([0, 1, 1, 2]))
        downstream = self.chance.random() < 0.5
        self.did.append(f"{life.run_id[5:15]}: clear {tasks} {downstream=}")
        life.clear(*(f"session.{task}" for task in tasks), downstream=downstream)

    def clear_failed(self, life: Any) -> None:
        self.did.append(f"{life.run_id[5:15]}: clear failed")
        life.clear(only_failed=True)

    def stop(self, life: Any) -> None:
        """Clear all, and look away before some task runs."""
        task = self.chance.choice(TASKS)
        self.did.append(f"{life.run_id[5:15]}: clear all, stop before {task}")
        life.clear()
        life.go(until=lambda id: id == f"session.{task}")

    def mark(self, life: Any) -> None:
        failed = [key for key, state in life.states().items() if state == "failed" and key[1] < 0]
        if failed:
            task, _ = self.chance.choice(failed)
            self.did.append(f"{life.run_id[5:15]}: mark {task}")
            life.mark(task, "success")

    def mark_run(self, life: Any) -> None:
        state, task = self.chance.choice(["success", "failed"]), self.chance.choice(TASKS)
        self.did.append(f"{life.run_id[5:15]}: clear all, mark {state} before {task}")
        life.clear()
        if life.go(until=lambda id: id == f"session.{task}") != "running":
            return  # people may call an ended run what they like
        life.mark_run(state)
        if life.states()["session.open", -1] != "success":
            self.unopened.add(life.run_id)

    def again(self, life: Any) -> None:
        self.did.append(f"{life.run_id[5:15]}: delete, make again")
        life.delete()
        self.lives[self.lives.index(life)] = new_life(life.run_id)

    def more(self, life: Any) -> None:
        if len(self.lives) < 3:
            self.did.append("another run")
            self.lives.append(new_life())

    def check(self) -> None:
        """Let all runs end, and compare. A run that has failed has published before or in the end, or neither."""
        options: list[list[Counter[Any]]] = []
        for life in self.lives:
            state = life.go(choose=self.chance.choice)
            self.did.append(f"{life.run_id[5:15]} is {state}")
            assert state in ("success", "failed"), self.did
            old, now = self.rows.get(life.run_id, Counter()), meant(life)
            is_true = state == "success" and life.run_id not in self.unopened
            options.append([now] if is_true else [old, now])
        self.unopened -= {each.run_id for each in self.lives if each.states()["session.open", -1] == "success"}
        found = published(self.root)
        for chosen in product(*options):
            if found == sum(chosen, Counter()):
                self.rows = {life.run_id: rows for life, rows in zip(self.lives, chosen, strict=True)}
                return
        self.same(found, sum((each[0] for each in options), Counter()))

    def same(self, found: Counter[Any], expected: Counter[Any]) -> None:
        """Compare rows, and tell the whole history if they differ."""
        history = "\n".join(self.did)
        assert (found - expected, expected - found) == (Counter(), Counter()), history

    def end(self) -> None:
        """Bring each run to green."""
        plan(fail=[], bad=False)
        for life in self.lives:
            life.clear()
            if life.go() != "success":
                # What it had staged contradicts what another run has published since: it is to run again.
                life.clear()
                assert life.go() == "success", self.did
            self.rows[life.run_id] = meant(life)
        self.same(published(self.root), sum(self.rows.values(), Counter()))


def live(root: Path, seed: int, steps: int) -> None:
    people = People(root, seed)
    people.check()
    for _ in range(steps):
        people.act()
        people.check()
    people.end()


@pytest.mark.parametrize("seed", range(2))
def test_runs_in_random_orders(lake_root: Path, seed: int) -> None:
    live(lake_root, seed, 5)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 130))
def test_runs_in_many_random_orders(lake_root: Path, seed: int) -> None:
    live(lake_root, seed, 12)
