"""Random histories of a pool."""

from __future__ import annotations

import random

from lake_core.testing.simulation import FaultKind, History, Step, random_faults
from tests.simulation.pool_actions import (
    Action,
    Compact,
    CreateBranch,
    Delete,
    DeleteBranch,
    DeleteObject,
    Load,
    Look,
    Merge,
    Pause,
    Revert,
    SetClock,
    Vacuum,
)

FAULTS: dict[FaultKind, float] = {
    "die before": 0.05, "die after": 0.05, "unavailable": 0.06, "lost answer": 0.06, "late": 0.05, "stall": 0.15,
}  # fmt: skip
PROCESSES = 4
KEYS = 30
"""Keys are from 0 up to this."""
_BRANCHES = ("dev", "fix")
_RETENTIONS = (1.0, 1.0, 7.0)


class _Draw:
    """Draws actions for one history."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.number = 0
        self.marked: list[Load] = []

    def branch(self) -> str:
        return "main" if self.chance.random() < 0.6 else self.chance.choice(_BRANCHES)

    def load(self) -> Load:
        if self.marked and self.chance.random() < 0.2:
            return self.chance.choice(self.marked)  # the same again: a retry of what may have been loaded
        keys = tuple(self.chance.randrange(KEYS) for _ in range(self.chance.randint(1, 4)))
        load = Load(self.number, self.branch(), keys, self.chance.random() < 0.6)
        if load.has_marker:
            self.marked.append(load)
        return load

    def delete(self) -> Delete | DeleteObject:
        if self.chance.random() < 0.3:
            return DeleteObject(self.number, self.branch(), self.chance.randint(0, 3))
        if self.chance.random() < 0.3:
            start = self.chance.randint(0, self.number)
            return Delete(self.number, self.branch(), "batch", start, start + 2)
        start = self.chance.randrange(KEYS)
        return Delete(self.number, self.branch(), "k", start, start + self.chance.randint(1, 8))

    def action(self) -> Action:
        self.number += 1
        match self.chance.random():
            case x if x < 0.3:
                return self.load()
            case x if x < 0.44:
                return self.delete()
            case x if x < 0.52:
                return Compact(self.number, self.branch())
            case x if x < 0.62:
                child = self.chance.choice(_BRANCHES)
                into, child = ("main", child) if self.chance.random() < 0.7 else (child, "main")
                return Merge(self.number, into, child)
            case x if x < 0.68:
                return Revert(self.number, self.branch(), self.chance.randint(0, 3))
            case x if x < 0.75:
                return CreateBranch(
                    self.chance.choice(_BRANCHES), self.chance.choice(["main", "main", *_BRANCHES, None])
                )
            case x if x < 0.79:
                return DeleteBranch(self.chance.choice(_BRANCHES))
            case x if x < 0.88:
                return Vacuum(self.chance.choice(_RETENTIONS))
            case x if x < 0.9:
                return SetClock(round(self.chance.uniform(-600, 600), 1))
        return Look(self.branch(), self.chance.choice(["tip", "tip", "commit", "seen"]))


def pool_history(seed: int, *, steps: int = 7) -> History[Action]:
    """Draw a history: `steps` actions of each process, some of them days after the others."""
    chance = random.Random(seed)
    draw = _Draw(chance)
    is_faulty = chance.random() < 0.8
    days = chance.choice([(), (3.0,), (2.0, 4.0), (9.0, 18.0)])
    number = 0
    processes = []
    for _ in range(PROCESSES):
        actions = [draw.action() for _ in range(steps)]
        for index, day in enumerate(days):
            actions.insert((index + 1) * len(actions) // (len(days) + 1), Pause(day))
        numbered = []
        for action in actions:
            number += 1
            numbered.append(Step(number, action))
        processes.append(tuple(numbered))
    return History(seed, tuple(processes), tuple(random_faults(chance, number, FAULTS, 40)) if is_faulty else ())
