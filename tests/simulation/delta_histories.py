"""Random histories of a plain Delta table."""

from __future__ import annotations

import random

from lake_core.testing.simulation import FaultKind, History, Step, random_faults
from tests.simulation.delta_scenario import Action, Look, Maintain, Pause, Write

FAULTS: dict[FaultKind, float] = {
    "die before": 0.05, "die after": 0.05, "unavailable": 0.07, "lost answer": 0.07, "late": 0.05, "stall": 0.15,
}  # fmt: skip
PROCESSES = 4


def delta_history(seed: int, *, steps: int = 8) -> History[Action]:
    """Draw a history: `steps` actions of each process, some of them days after the others."""
    chance = random.Random(seed)
    deletable = list(range(10, 40))
    writes: list[Write] = []

    def action() -> Action:
        x = chance.random()
        if x < 0.6:
            if writes and chance.random() < 0.2:
                return chance.choice(writes)  # the same again: a retry of what may have been written
            number = len(writes) + 1
            match chance.choice(["append", "append", "delete", "update", "merge"]):
                case "append":
                    writes.append(Write(number, "append", rows=chance.randint(1, 4)))
                case "delete" if deletable:
                    writes.append(Write(number, "delete", row=deletable.pop(0)))
                case "merge":
                    writes.append(Write(number, "merge", row=chance.randint(0, 9), rows=chance.randint(0, 2)))
                case _:
                    writes.append(Write(number, "update", row=chance.randint(0, 9)))
            return writes[-1]
        if x < 0.85:
            return Maintain(chance.choice(["optimize", "optimize", "vacuum", "vacuum", "checkpoint", "clean log"]))
        return Look(again=chance.random() < 0.3)

    faulty = chance.random() < 0.8
    days = chance.choice([(), (), (3.0,), (9.0, 18.0)])
    number = 0
    processes = []
    for _ in range(PROCESSES):
        actions = [action() for _ in range(steps)]
        for index, day in enumerate(days):
            actions.insert((index + 1) * len(actions) // (len(days) + 1), Pause(day))
        numbered = []
        for drawn in actions:
            number += 1
            numbered.append(Step(number, drawn))
        processes.append(tuple(numbered))
    return History(seed, tuple(processes), tuple(random_faults(chance, number, FAULTS, 30)) if faulty else ())
