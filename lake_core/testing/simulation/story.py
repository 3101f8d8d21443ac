"""Reports a failing history as a story that a person can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from lake_core.testing.simulation.history import History, shrink
from lake_core.testing.simulation.run import Result, Scenario, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.testing.simulation.world import World

A = TypeVar("A")


class HistoryFailed(AssertionError):
    """A history broke an invariant. The message tells the smallest part of it that still does."""


def check_history(history: History[A], scenario_in: Callable[[World], Scenario[A]], *, tries: int = 300) -> Result:
    """Play a history, and shrink it if it fails.

    Args:
        history: The history.
        scenario_in: Creates the scenario for a world.
        tries: The most smaller histories to play.

    Raises:
        HistoryFailed: An invariant was broken.
    """
    result = run(history, scenario_in)
    if not result.violations:
        return result
    kinds = {violation.kind for violation in result.violations}
    first = result.violations[0].kind
    smallest = shrink(
        history,
        lambda smaller: first in {violation.kind for violation in run(smaller, scenario_in).violations},
        tries=tries,
    )
    story = "\n".join(run(smallest, scenario_in, trace=True).story)
    raise HistoryFailed(
        f"seed {history.seed} breaks: {', '.join(sorted(kinds))}. The smallest part that breaks {first!r} has "
        f"{smallest.steps} of {history.steps} steps and {len(smallest.faults)} of {len(history.faults)} "
        f"faults:\n{story}"
    )
