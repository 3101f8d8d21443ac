"""What happens in a simulation, as data: the steps of each process, and the faults that meet them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

A = TypeVar("A")

FaultKind = Literal["die before", "die after", "unavailable", "lost answer", "late", "stall"]
"""What happens at a store operation.

- `die before`, `die after`: the process dies before or after the operation, and a new one takes its place
- `unavailable`: the operation is not done, and the caller gets an error that its outcome is unknown
- `lost answer`: the operation is done, and the caller gets an error that its outcome is unknown
- `late`: the caller gets an error that the outcome is unknown, and the operation is done `seconds` later
- `stall`: the process stands still for `seconds` before the operation
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at the n-th store operation of a step."""

    step: int
    """The step's number."""
    operation: int
    """Which of the step's store operations, from 1."""
    kind: FaultKind
    seconds: float = 0.0
    """How long a stall takes, or how late a late operation is."""


@dataclass(frozen=True, slots=True)
class Step(Generic[A]):
    """One action of a process."""

    number: int
    """Unique in the history.

    It decides what random numbers the step draws, so that a step does the same in a smaller history.
    """
    action: A


@dataclass(frozen=True, slots=True)
class History(Generic[A]):
    """The steps of each process, and the faults."""

    seed: int
    processes: tuple[tuple[Step[A], ...], ...]
    faults: tuple[Fault, ...] = ()

    @property
    def steps(self) -> int:
        """Return how many steps there are."""
        return sum(len(steps) for steps in self.processes)

    def only(self, numbers: set[int]) -> History[A]:
        """Keep the steps of these numbers, and the faults that meet them."""
        processes = tuple(tuple(step for step in steps if step.number in numbers) for steps in self.processes)
        return replace(self, processes=processes, faults=tuple(fault for fault in self.faults if fault.step in numbers))


def random_faults(
    chance: random.Random, steps: int, kinds: dict[FaultKind, float], operations: int = 60
) -> Iterator[Fault]:
    """Draw faults for the steps numbered 1 to `steps`.

    Args:
        chance: where random numbers come from.
        steps: how many steps the history has.
        kinds: how likely a step meets a fault of each kind.
        operations: faults hit one of the first so many store operations of a step.
    """
    for number in range(1, steps + 1):
        for kind, probability in kinds.items():
            if chance.random() < probability:
                seconds = round(chance.choice([0.5, 3.0, 6.0, 8.0, 30.0, 400.0]) * chance.uniform(0.5, 1.5), 3)
                yield Fault(number, chance.randint(1, operations), kind, seconds if kind in ("late", "stall") else 0.0)


def shrink(history: History[A], fails: Callable[[History[A]], bool], *, tries: int = 400) -> History[A]:
    """Find a small part of a failing history that still fails: fewest steps first, then fewest faults.

    Args:
        history: one for which `fails` is true.
        fails: plays a history, and tells whether it fails in the same way.
        tries: how many histories are played at most.
    """
    left = tries

    def still(smaller: History[A]) -> bool:
        nonlocal left
        if left <= 0:
            return False
        left -= 1
        return fails(smaller)

    numbers = [step.number for steps in history.processes for step in steps]
    size = max(1, len(numbers) // 2)
    while size:
        at = 0
        while at < len(numbers):
            kept = numbers[:at] + numbers[at + size :]
            smaller = history.only(set(kept))
            if kept and still(smaller):
                numbers, history = kept, smaller
            else:
                at += size
        size = size // 2 if size > 1 or left <= 0 else 0
    at = 0
    while at < len(history.faults):
        smaller = replace(history, faults=history.faults[:at] + history.faults[at + 1 :])
        if still(smaller):
            history = smaller
        else:
            at += 1
    return history
