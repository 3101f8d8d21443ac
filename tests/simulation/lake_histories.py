"""Random histories of a lake."""

from __future__ import annotations

import random
from typing import get_args

from lake_core.testing.simulation import FaultKind, History, Step, random_faults
from tests.simulation.lake_actions import (
    ARRAY,
    MANAGED,
    NEW_TABLE,
    OPEN_TABLE,
    POOL,
    TABLES,
    Action,
    Branch,
    Change,
    Foreign,
    Merge,
    Pick,
    Publish,
    PublishHeld,
    Read,
    Revert,
    Share,
    Shared,
    Tag,
    Tidy,
    Verb,
    Wait,
    Work,
)

FAULTS: dict[FaultKind, float] = {
    "die before": 0.05,
    "die after": 0.05,
    "unavailable": 0.06,
    "lost answer": 0.06,
    "late": 0.04,
    "stall": 0.2,
}
PROCESSES = 4


class _Draw:
    """Draws actions for one history."""

    def __init__(self, chance: random.Random, *, faulty: bool) -> None:
        self.chance = chance
        self.faulty = faulty
        self.works = 0
        self.foreign = 0
        self.deletable = {path: list(range(10, 40)) for path in (*TABLES, ARRAY, POOL)}
        self.tried: list[Publish] = []
        self.attempts: dict[tuple[str, str], list[Share]] = {}
        self.has_foreign = chance.random() < 0.4

    def work(self) -> Work:
        self.works += 1
        tables = TABLES if self.chance.random() < 0.3 else MANAGED
        changes = []
        for _ in range(self.chance.choice([1, 1, 1, 2, 2, 3])):
            table = self.chance.choice([ARRAY, POOL]) if self.chance.random() < 0.25 else self.chance.choice(tables)
            if self.chance.random() < 0.1:
                changes.append(Change("add", NEW_TABLE, self.chance.randint(1, 2)))
                continue
            match self.chance.random():
                case x if x < 0.55:
                    changes.append(Change("add", table, self.chance.randint(1, 3)))
                case x if x < 0.75:
                    changes.append(Change("count", table, self.chance.randint(0, 9)))
                case x if x < 0.9:
                    changes.append(Change("delete", table, self.deletable[table].pop(0)))
                case _:
                    file = self.chance.choice(["list/x", "list/y"])
                    if not any(change.target == file for change in changes):
                        changes.append(Change("list", file))
        return Work(self.works, tuple(changes))

    def share(self) -> Share:
        """A part of a shared session: the first attempt at an output, the same once more, or a later attempt."""
        session, output = self.chance.choice(["s1", "s2"]), self.chance.choice(["o1", "o2"])
        attempts = self.attempts.setdefault((session, output), [])
        if attempts and self.chance.random() < 0.3:
            return self.chance.choice(attempts)
        attempts.append(Share(session, self.work(), output, len(attempts)))
        return attempts[-1]

    def pair(self) -> tuple[str, str]:
        """A branch or tag, and the branch that its commits come to."""
        name = self.chance.choice(["b1", "b1", "b2", "b2", "main", "v1", "v2"])
        return name, "main" if name.startswith("b") and self.chance.random() < 0.9 else self.chance.choice(["b1", "b2"])

    def action(self) -> Action:
        x = self.chance.random()
        if x < 0.34:
            publish = Publish(self.work(), "main" if self.chance.random() < 0.8 else self.chance.choice(["b1", "b2"]))
            self.tried.append(publish)
            return publish
        if x < 0.40 and self.tried:
            return self.chance.choice(self.tried)  # the same again: a retry of what may have been published
        if x < 0.43:
            return Publish(self.work(), hold=True)
        if x < 0.46:
            return PublishHeld()
        if x < 0.57:
            return self.share()
        if x < 0.65:
            verb: Verb = self.chance.choice(["publish", "publish", "publish", *get_args(Verb)])
            return Shared(self.chance.choice(["s1", "s2"]), verb)
        if x < 0.67:
            return Branch(self.chance.choice(["b1", "b2"]))
        if x < 0.68:
            return Tag(self.chance.choice(["v1", "v2"]))
        if x < 0.725:
            name, into = self.pair()
            return Merge(name, into, squash=self.chance.random() < 0.2)
        if x < 0.735:
            return Pick(*self.pair())
        if x < 0.75:
            return Revert(self.chance.randint(0, 2), self.chance.choice(["main", "main", "main", "b1"]))
        if x < 0.86:
            task = self.chance.choice(["optimize", "optimize", "checkpoint", "vacuum", "checkout", "gc", "gc", "adopt"])
            return Tidy(task, self.chance.choice(TABLES))
        if x < 0.93 and self.has_foreign:
            self.foreign += 1
            return Foreign(self.foreign, self.chance.randint(1, 3))
        return Read(self.chance.choice(["main", "main", "main", *MANAGED, OPEN_TABLE]))


def lake_history(seed: int, *, steps: int = 7) -> History[Action]:
    """Draw a history: `steps` actions of each process, some of them days after the others."""
    chance = random.Random(seed)
    draw = _Draw(chance, faulty=chance.random() < 0.8)
    days = chance.choice([(), (), (9.0,), (9.0, 18.0), (45.0,)])
    number = 0
    processes = []
    for _ in range(PROCESSES):
        actions = [draw.action() for _ in range(steps)]
        for index, day in enumerate(days):
            actions.insert((index + 1) * len(actions) // (len(days) + 1), Wait(day))
        numbered = []
        for action in actions:
            number += 1
            numbered.append(Step(number, action))
        processes.append(tuple(numbered))
    faults = tuple(random_faults(chance, number, FAULTS)) if draw.faulty else ()
    return History(seed, tuple(processes), faults)
