"""Random histories of a lake: four processes, deaths, stalls, lost and late answers, and clocks that jump."""

from __future__ import annotations

import pytest

from lake_core.testing.simulation import Fault, History, Step, check_history
from tests.examples import exhaustive
from tests.simulation.lake_actions import OPEN_TABLE, Action, Change, Foreign, Publish, Share, Shared, Tidy, Work
from tests.simulation.lake_histories import lake_history
from tests.simulation.lake_scenario import LakeScenario

_BLOCK = 10


@pytest.mark.parametrize("steps", [4, *exhaustive([7])])
@pytest.mark.parametrize("first", [0, *exhaustive(range(_BLOCK, 200, _BLOCK))])
def test_nothing_is_lost_doubled_or_half_seen(first: int, steps: int) -> None:
    for seed in range(first, first + _BLOCK):
        check_history(lake_history(seed, steps=steps), LakeScenario)


@pytest.mark.extended
def test_nothing_is_lost_in_new_histories(new_seed: int) -> None:
    for seed in range(new_seed, new_seed + 20):
        check_history(lake_history(seed), LakeScenario)


@pytest.mark.histories
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_many_histories(chosen_seeds: range) -> None:
    for seed in chosen_seeds:
        check_history(lake_history(seed), LakeScenario)


def _work(number: int, *changes: Change) -> Work:
    return Work(number, changes)


def _history(*scripts: list[Action], fault: Fault) -> History[Action]:
    numbers = iter(range(1, 100))
    return History(7, tuple(tuple(Step(next(numbers), action) for action in script) for script in scripts), (fault,))


@pytest.mark.parametrize(
    "operations",
    [
        range(1, 75, 12),
        pytest.param(range(7, 75, 12), marks=pytest.mark.extended),
        *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (range(1, 25), range(25, 50), range(50, 75))),
    ],
)
def test_a_publisher_that_is_overtaken_anywhere_accuses_nobody(operations: range) -> None:
    slow = Publish(_work(1, Change("count", "t/a", 1), Change("add", "t/b", 2)))
    fast = [Publish(_work(number, Change("add", "t/a", 1), Change("count", "t/b", 2))) for number in (2, 3)]
    for operation in operations:
        check_history(_history([slow], [*fast], fault=Fault(1, operation, "stall", 60.0)), LakeScenario)


@pytest.mark.parametrize(
    "operations",
    [
        range(1, 60, 22),
        pytest.param(range(12, 60, 22), marks=pytest.mark.extended),
        *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (range(1, 60, 4), range(3, 60, 4))),
    ],
)
def test_an_adopter_that_is_overtaken_anywhere_accuses_nobody(operations: range) -> None:
    others: list[Action] = [
        Foreign(1, 2),
        Publish(_work(2, Change("add", OPEN_TABLE, 1))),
        Foreign(2, 1),
        Tidy("adopt"),
        Publish(_work(3, Change("count", OPEN_TABLE, 1))),
    ]
    for operation in operations:
        for action in (Tidy("adopt"), Publish(_work(1, Change("add", OPEN_TABLE, 2)))):
            check_history(_history([action], others, fault=Fault(1, operation, "stall", 60.0)), LakeScenario)


@pytest.mark.parametrize(
    "operations",
    [range(1, 60, 5), *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (range(1, 30), range(30, 60)))],
)
def test_a_publisher_that_dies_anywhere_leaves_nothing_half(operations: range) -> None:
    work = _work(1, Change("count", "t/a", 1), Change("add", "t/b", 2), Change("list", "list/x"))
    for operation in operations:
        script: list[Action] = [Share("s1", work, "o1", 0), Shared("s1", "publish"), Shared("s1", "publish")]
        check_history(_history([*script], [Tidy("checkout")], fault=Fault(2, operation, "die after")), LakeScenario)
