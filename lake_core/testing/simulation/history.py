"""The course of a simulation as data: the steps of each process, and the faults that occur in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

A = TypeVar("A")

FaultKind = Literal["die before", "die after", "unavailable", "lost answer", "late", "stall"]
"""The kind of a fault at a store operation.

- `die before`, `die after`: the process dies before or after the operation, and a new one replaces it
- `unavailable`: the operation is not carried out, and the caller gets an error that its outcome is unknown
- `lost answer`: the operation is carried out, and the caller gets an error that its outcome is unknown
- `late`: the caller gets an error that the outcome is unknown, and the operation is carried out `seconds` later
- `stall`: the process stops for `seconds` before the operation
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at the n-th store operation of a step."""

    step: int
    """The number of the step."""
    operation: int
    """The number of the store operation in its step, from 1."""
    kind: FaultKind
    seconds: float = 0.0
    """The length of a stall, or the delay of a late operation."""


@dataclass(frozen=True, slots=True)
class Step(Generic[A]):
    """One action of a process."""

    number: int
    """Unique in the history.

    It is the seed of the step's random numbers, so a step does the same in a smaller history.
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
        """Return the number of steps."""
        return sum(len(steps) for steps in self.processes)

    def only(self, numbers: set[int]) -> History[A]:
        """Keep the steps with these numbers, and the faults in them."""
        processes = tuple(tuple(step for step in steps if step.number in numbers) for steps in self.processes)
        return replace(self, processes=processes, faults=tuple(fault for fault in self.faults if fault.step in numbers))


def random_faults(
    chance: random.Random, steps: int, kinds: dict[FaultKind, float], operations: int = 60
) -> Iterator[Fault]:
    """Draw faults for the steps numbered 1 to `steps`.

    Args:
        chance: The source of random numbers.
        steps: The number of steps of the history.
        kinds: The probability that a step has a fault of each kind.
        operations: Faults occur at one of the first so many store operations of a step.
    """
    for number in range(1, steps + 1):
        for kind, probability in kinds.items():
            if chance.random() < probability:
                seconds = round(chance.choice([0.5, 3.0, 6.0, 8.0, 30.0, 400.0]) * chance.uniform(0.5, 1.5), 3)
                yield Fault(number, chance.randint(1, operations), kind, seconds if kind in ("late", "stall") else 0.0)


def shrink(history: History[A], fails: Callable[[History[A]], bool], *, tries: int = 400) -> History[A]:
    """Find a small part of a failing history that still fails: fewest steps first, then fewest faults.

    Args:
        history: A history for which `fails` returns True.
        fails: Plays a history, and returns whether it fails in the same way.
        tries: The most histories to play.
    """
    tries_left = tries

    def still_fails(smaller: History[A]) -> bool:
        nonlocal tries_left
        if tries_left <= 0:
            return False
        tries_left -= 1
        return fails(smaller)

    numbers = [step.number for steps in history.processes for step in steps]
    size = max(1, len(numbers) // 2)
    while size:
        at = 0
        while at < len(numbers):
            kept = numbers[:at] + numbers[at + size :]
            smaller = history.only(set(kept))
            if kept and still_fails(smaller):
                numbers, history = kept, smaller
            else:
                at += size
        size = size // 2 if size > 1 or tries_left <= 0 else 0
    at = 0
    while at < len(history.faults):
        smaller = replace(history, faults=history.faults[:at] + history.faults[at + 1 :])
        if still_fails(smaller):
            history = smaller
        else:
            at += 1
    return history
