"""A simulated process: a thread that passes the world's gate before each store operation."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from lake_core.errors import StoreUnavailable
from lake_core.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.testing.simulation.history import Fault
    from lake_core.testing.simulation.world import World

T = TypeVar("T")


class ProcessDied(BaseException):
    """A simulated process dies. This is not an Exception, so that no handler of errors catches it and goes on."""


class InlineExecutor(Executor):
    """An executor that runs tasks immediately, in the thread that submits them."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the function immediately in the calling thread, so that the order of tasks is always the same."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Process:
    """One process of a simulated world. If it dies, a new one replaces it in the same thread."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index = index
        self.name = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]
        self.turn = threading.Semaphore(0)
        self.skew = timedelta(0)
        """How far this process's clock is ahead of the store's."""
        self.step = 0
        self.lives = 1
        """The number of processes so far: this one, and those that it replaced."""
        self._dead = False
        self._operation = 0
        self._faults: dict[int, Fault] = {}
        self._latency = random.Random()
        self._chance = random.Random()

    def begin(self, number: int, faults: dict[int, Fault]) -> None:
        """Begin a step, in a new process if the last one died. Random numbers and faults depend only on the number."""
        self.lives += self._dead
        self.step, self._operation, self._faults, self._dead = number, 0, faults, False
        self._latency = random.Random(f"{self.world.seed}/{number}/latency")
        self._chance = random.Random(f"{self.world.seed}/{number}/chance")

    @property
    def is_dead(self) -> bool:
        """Return whether the process died in this step."""
        return self._dead

    @property
    def host(self) -> str:
        """Return a name that no other process has, in this world or another."""
        return f"{self.world.id}-{self.name}{self.lives}"

    @property
    def runtime(self) -> Runtime:
        """Return the runtime with which the library sleeps and draws random numbers in this process."""
        return Runtime(
            sleep=self.sleep,
            monotonic=lambda: self.world.now,
            uniform=lambda low, high: self._chance.uniform(low, high),
            random_bytes=lambda count: self._chance.randbytes(count),
            thread_pool=lambda workers: InlineExecutor(),
        )

    def clock(self) -> datetime:
        """Return the time by this process's own clock."""
        return self.world.time + self.skew

    def sleep(self, seconds: float) -> None:
        """Let other processes go on for so many seconds."""
        self._check_alive()
        self.world.wait(self, max(0.0, seconds))

    def operate(self, name: str, operation: Callable[[], T], *, mutates: bool) -> T:
        """Wait for this process's turn, and then carry out a store operation, with its fault if it has one."""
        self._check_alive()
        self._operation += 1
        fault = self._faults.get(self._operation)
        seconds = self._latency.uniform(0.001, 0.02)
        if self._latency.random() < 0.01:
            seconds += self._latency.uniform(0.1, 2.0)
        if fault is not None and fault.kind == "stall":
            self.world.tell(self, f"stops for {fault.seconds:g} s before {name}")
            seconds += fault.seconds
        self.world.wait(self, seconds)
        if fault is not None:
            self._inject(fault, name, operation, mutates)
        self.world.operated(self, name, mutates=mutates)
        return operation()

    def _inject(self, fault: Fault, name: str, operation: Callable[[], Any], mutates: bool) -> None:
        match fault.kind:
            case "die before":
                self._die(f"dies before {name}")
            case "die after":
                self.world.operated(self, name, mutates=mutates)
                operation()
                self._die(f"dies after {name}")
            case "unavailable":
                self.world.tell(self, f"gets no answer to {name}, which is not done")
            case "lost answer":
                self.world.operated(self, name, mutates=mutates)
                operation()
                self.world.tell(self, f"gets no answer to {name}, which is done")
            case "late":
                self.world.tell(self, f"gets no answer to {name}, which is done {fault.seconds:g} s later")
                if mutates:
                    self.world.later(self, fault.seconds, name, operation)
            case "stall":
                return
        raise StoreUnavailable(f"the store gave no answer to {name}: the connection was lost")

    def _die(self, story: str) -> None:
        self._dead = True
        self.world.tell(self, story)
        raise ProcessDied(story)

    def _check_alive(self) -> None:
        # Error handlers of a dead process must not reach the store.
        if self._dead:
            raise ProcessDied(f"{self.name} is dead")
