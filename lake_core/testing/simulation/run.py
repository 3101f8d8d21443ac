"""Plays a history."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from lake_core.runtime import using
from lake_core.testing.simulation.process import Process, ProcessDied
from lake_core.testing.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lake_core.testing.simulation.history import Fault, History, Step

A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)

_RESTART_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that was broken."""

    kind: str
    """A short name. A smaller history fails in the same way if it has a violation of the same kind."""
    message: str


class Scenario(Protocol[A_contra]):
    """A scenario: how to carry out actions, and the invariants that must hold."""

    def prepare(self) -> None:
        """Fill the world's store before the first process starts."""

    def act(self, process: Process, action: A_contra) -> Iterable[Violation]:
        """Carry out an action in a process, and return its violations. Do not catch ProcessDied."""

    def died(self, process: Process, action: A_contra) -> None:
        """Forget the state of a process that died during an action."""

    def check(self) -> Iterable[Violation]:
        """Return the violations after all processes have ended."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a history."""

    violations: tuple[Violation, ...]
    story: tuple[str, ...]
    operations: int
    """The number of store operations."""
    digest: str
    """The same for two runs that took the same course."""


def run(history: History[A], scenario_in: Callable[[World], Scenario[A]], *, trace: bool = False) -> Result:
    """Play a history.

    Args:
        history: The history.
        scenario_in: Creates the scenario for a world.
        trace: Add each operation that changes the store to the story.
    """
    world = World(history.seed, trace=trace)
    scenario = scenario_in(world)
    violations: list[Violation] = []
    faults: dict[int, dict[int, Fault]] = {}
    for fault in history.faults:
        faults.setdefault(fault.step, {})[fault.operation] = fault

    def body(process: Process, steps: tuple[Step[A], ...]) -> None:
        with using(process.runtime):
            for step in steps:
                process.begin(step.number, faults.get(step.number, {}))
                world.tell(process, f"{step.action}")
                with suppress(ProcessDied):
                    violations.extend(scenario.act(process, step.action))
                # An error of one task can hide that the process died in another task.
                if process.is_dead:
                    process.begin(step.number, {})
                    scenario.died(process, step.action)
                    process.sleep(_RESTART_SECONDS)

    outside = Process(world, len(history.processes))
    outside.name = "-"
    outside.begin(0, {})
    with using(outside.runtime):
        scenario.prepare()
    processes = [Process(world, index) for index in range(len(history.processes))]
    world.start(
        [(process, partial(body, process, steps)) for process, steps in zip(processes, history.processes, strict=True)]
    )
    outside.begin(-1, {})
    with using(outside.runtime):
        violations.extend(scenario.check())
    for violation in violations:
        world.story.append(f"VIOLATED {violation.kind}: {violation.message}")
    return Result(tuple(violations), tuple(world.story), world.operations, world.digest)
