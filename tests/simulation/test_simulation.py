"""The simulation itself: a seed decides everything, faults do what they say, and a failure is shrunk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from lake_core.errors import NotFound, StoreUnavailable
from lake_core.store import ObjectMeta
from lake_core.store.memory import MemoryStore
from lake_core.store.object_store import Bytes
from lake_core.testing.simulation import (
    Fault,
    FaultKind,
    History,
    HistoryFailed,
    Process,
    SimulatedStore,
    Step,
    Violation,
    World,
    check_history,
    run,
)
from tests.simulation.delta_histories import delta_history
from tests.simulation.delta_scenario import DeltaScenario
from tests.simulation.lake_histories import lake_history
from tests.simulation.lake_scenario import LakeScenario
from tests.simulation.pool_histories import pool_history
from tests.simulation.pool_scenario import PoolScenario


@dataclass(frozen=True, slots=True)
class CountUp:
    """Add one to a counter, safely or not."""

    safely: bool = False

    def __str__(self) -> str:
        return "counts up safely" if self.safely else "counts up"


class Counter:
    """Processes that count up one number in one object."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counted = 0
        self.answers: list[str] = []

    def prepare(self) -> None:
        self.world.store.put("counter", b"0")

    def act(self, process: Process, action: CountUp) -> Iterator[Violation]:
        store = SimulatedStore(self.world.store, process)
        try:
            before = store.get("counter")
            store.put("counter", b"%d" % (int(before) + 1), if_match=before.etag if action.safely else None)
        except StoreUnavailable as error:
            self.answers.append(str(error))
            return
        self.counted += 1
        yield from ()

    def died(self, process: Process, action: CountUp) -> None:
        self.answers.append(f"{process.name} died")

    def check(self) -> Iterator[Violation]:
        stored = int(self.world.store.get("counter"))
        if stored < self.counted:
            yield Violation("lost", f"counted to {self.counted}, and {stored} is there")


def _counting(*faults: Fault, processes: int = 3, steps: int = 3) -> History[CountUp]:
    numbers = iter(range(1, 1000))
    scripts = tuple(tuple(Step(next(numbers), CountUp()) for _ in range(steps)) for _ in range(processes))
    return History(1, scripts, faults)


class ParallelCounter(Counter):
    """Each process looks for a missing object in one task, and counts up in another."""

    def act(self, process: Process, action: CountUp) -> Iterator[Violation]:
        store = SimulatedStore(self.world.store, process)
        with process.runtime.thread_pool(2) as pool:
            tasks: list[Future[Any]] = [
                pool.submit(store.get, "missing"),
                pool.submit(list, super().act(process, action)),
            ]
        try:
            for task in tasks:
                task.result()
        except NotFound:
            self.answers.append(process.host.partition("-")[2])
        yield from ()


def test_a_death_that_an_error_of_another_task_hides() -> None:
    counters: list[ParallelCounter] = []

    def counter_in(world: World) -> ParallelCounter:
        counters.append(ParallelCounter(world))
        return counters[0]

    run(_counting(Fault(1, 2, "die before"), processes=1, steps=2), counter_in)
    assert counters[0].answers == ["A1", "A died", "A2"]


def test_a_history_takes_the_same_course_each_time() -> None:
    # One without a collection, whose files have names that depend on the URL of the store.
    first, second = (run(lake_history(4), LakeScenario) for _ in range(2))
    assert first.digest == second.digest


@pytest.mark.extended
def test_a_history_takes_the_same_course_in_another_process() -> None:
    code = "from lake_core.testing.simulation import run"
    for kind in ("lake", "delta", "pool"):
        code += (
            f"\nfrom tests.simulation.{kind}_histories import {kind}_history"
            f"\nfrom tests.simulation.{kind}_scenario import {kind.title()}Scenario"
            f"\nprint([run({kind}_history(seed), {kind.title()}Scenario).digest for seed in range(1)])"
        )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_other_seeds_take_other_courses() -> None:
    assert len({run(delta_history(seed), DeltaScenario).digest for seed in range(3)}) == 3


def test_a_lost_update_is_told_by_its_two_steps() -> None:
    with pytest.raises(
        HistoryFailed,
        match=r"'lost' has 2 of 9 steps and 0 of 1 faults(.|\n)*put counter(.|\n)*put counter(.|\n)*VIOLATED lost",
    ):
        check_history(_counting(Fault(9, 1, "stall", 3.0)), Counter)


def _alone(kind: FaultKind, operation: int = 2) -> tuple[Counter, World]:
    """Run one process that counts up twice, with a fault at its first step."""
    scenarios: list[Counter] = []

    def scenario(world: World) -> Counter:
        scenarios.append(Counter(world))
        return scenarios[0]

    run(_counting(Fault(1, operation, kind, 30.0), processes=1, steps=2), scenario)
    return scenarios[0], scenarios[0].world


@pytest.mark.parametrize(
    ("kind", "stored", "answer"),
    [
        ("die before", b"1", "A died"),
        ("die after", b"2", "A died"),
        ("unavailable", b"1", "gave no answer"),
        ("lost answer", b"2", "gave no answer"),
    ],
)
def test_a_fault_does_what_it_says(kind: FaultKind, stored: bytes, answer: str) -> None:
    scenario, world = _alone(kind)
    assert (world.store.get("counter"), len(scenario.answers)) == (stored, 1)
    assert answer in scenario.answers[0]


def test_a_late_operation_lands_when_nobody_waits_for_it_any_more() -> None:
    _, world = _alone("late")
    assert world.store.get("counter") == b"1"  # the second step counted to 1 as well, much earlier
    assert world.now > 30


def test_a_stall_takes_its_time() -> None:
    scenario, world = _alone("stall")
    assert scenario.counted == 2
    assert world.now > 30


class OverwritingStore(MemoryStore):
    """A store that says it puts only where nothing stands, and looks and puts one after the other instead."""

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        return super()._put(key, data, False, None, unique)


class ForgetfulStore(MemoryStore):
    """A store that acknowledges an entry of a Delta log, or of the branches of a pool, and keeps nothing of it."""

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        meta = super()._put(key, data, if_absent, if_match, unique)
        if key.endswith(("_delta_log/00000000000000000003.json", "branches/25.zng")):
            super()._delete([key])
        return meta


@pytest.mark.parametrize(
    ("broken", "scenario", "history"),
    [
        (OverwritingStore, LakeScenario, lake_history),
        (OverwritingStore, DeltaScenario, delta_history),
        (ForgetfulStore, DeltaScenario, delta_history),
        (OverwritingStore, PoolScenario, pool_history),
        (ForgetfulStore, PoolScenario, pool_history),
    ],
)
def test_a_store_that_breaks_its_promises_is_found_out(
    broken: type[MemoryStore], scenario: type, history: object
) -> None:
    def on_broken(world: World) -> object:
        world.store = broken(clock=lambda: world.time)
        return scenario(world)

    assert any(run(history(seed), on_broken).violations for seed in range(12))  # type: ignore[operator,arg-type]


def test_a_dead_process_touches_nothing_any_more() -> None:
    world = World(1)
    process = Process(world, 0)
    process.begin(1, {1: Fault(1, 1, "die before")})
    store = SimulatedStore(world.store, process)
    for _ in range(2):
        with pytest.raises(BaseException, match=r"dies before|is dead"):
            store.put("x", b"1")
    with pytest.raises(NotFound):
        world.store.get("x")
