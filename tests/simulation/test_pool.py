"""Random histories of a pool: four processes with deaths, stalls, lost and late answers, and clocks that differ."""

from __future__ import annotations

import pytest

from lake_core.testing.simulation import Fault, History, Step, check_history
from tests.examples import exhaustive
from tests.simulation.pool_actions import (
    Action,
    CreateBranch,
    Delete,
    DeleteBranch,
    Load,
    Look,
    Merge,
    Pause,
    Revert,
    Vacuum,
)
from tests.simulation.pool_histories import pool_history
from tests.simulation.pool_scenario import PoolScenario

_BLOCK = 6


@pytest.mark.parametrize("first", [0, *exhaustive(range(_BLOCK, 60, _BLOCK))])
def test_nothing_is_lost_doubled_or_half_seen(first: int) -> None:
    for seed in range(first, first + _BLOCK):
        check_history(pool_history(seed), PoolScenario)


@pytest.mark.extended
def test_nothing_is_lost_in_new_histories(new_seed: int) -> None:
    for seed in range(new_seed, new_seed + 20):
        check_history(pool_history(seed), PoolScenario)


@pytest.mark.histories
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_many_histories(chosen_seeds: range) -> None:
    for seed in chosen_seeds:
        check_history(pool_history(seed), PoolScenario)


def _history(*scripts: list[Action], fault: Fault) -> History[Action]:
    numbers = iter(range(1, 100))
    return History(7, tuple(tuple(Step(next(numbers), action) for action in script) for script in scripts), (fault,))


_OLD = [Load(1, "dev", (3, 4), True), Delete(2, "main", "k", 5, 10), Pause(3.0)]
"""What is days old when a vacuum begins: records on a branch alone, and records that main has deleted."""
_UNREACHED: dict[str, list[Action]] = {
    "a revert": [DeleteBranch("dev"), Pause(3 + 1e-5), Revert(3, "main", 0), Look("main", "tip")],
    "a branch at a commit": [
        Look("dev", "commit"),
        DeleteBranch("dev"),
        Pause(3 + 1e-5),
        CreateBranch("fix", None),
        Look("fix", "tip"),
    ],
}
_USED: dict[str, list[Action]] = {
    "a revert": [Revert(3, "main", 0), Look("main", "tip")],
    "a branch at a deleted one": [CreateBranch("fix", "dev"), Look("fix", "tip")],
    "a merge of a deleted branch": [Merge(4, "main", "dev"), Look("main", "tip")],
    "a reader of a deleted branch": [Look("dev", "commit"), Look("dev", "seen"), CreateBranch("fix", None)],
}


@pytest.mark.parametrize("use", _UNREACHED)
@pytest.mark.parametrize(
    "operations", [range(20, 60, 5), pytest.param(range(1, 60), marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_a_vacuum_that_is_overtaken_anywhere_takes_nothing_that_is_used(use: str, operations: range) -> None:
    for operation in operations:
        check_history(
            _history([*_OLD, Vacuum(1.0)], _UNREACHED[use], fault=Fault(4, operation, "stall", 60.0)), PoolScenario
        )


@pytest.mark.parametrize("use", _USED)
@pytest.mark.parametrize(
    "operations", [range(2, 26, 6), pytest.param(range(1, 60), marks=pytest.mark.exhaustive)], ids=["some", "all"]
)
def test_a_process_that_a_vacuum_overtakes_anywhere_keeps_what_it_uses(use: str, operations: range) -> None:
    others: list[Action] = [Pause(3 + 1e-4), DeleteBranch("dev"), Vacuum(1.0), Vacuum(1.0)]
    for operation in operations:
        check_history(_history([*_OLD, *_USED[use]], others, fault=Fault(4, operation, "stall", 60.0)), PoolScenario)
