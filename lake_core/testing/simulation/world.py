"""Virtual time, and the gate of all processes. Only one thread runs at a time: the one whose time comes first."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from lake_core.errors import StoreError
from lake_core.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 1, 1, tzinfo=UTC)
_WORLDS = itertools.count(1)
_MOST_OPERATIONS = 200_000
_STUCK_SECONDS = 60.0


class SimulationStuck(Exception):
    """A simulated process blocks on something other than the gate, or never ends."""


class Actor(Protocol):
    """A process that passes the gate."""

    name: str
    index: int
    turn: threading.Semaphore


@dataclass(order=True, slots=True)
class _Event:
    at: float
    number: int
    process: Actor | None = field(compare=False)
    """The process that goes on."""
    operation: Callable[[], object] | None = field(compare=False, default=None)
    """A late store operation, for which no process waits."""


class World:
    """A store, virtual time and the processes on it."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.id = next(_WORLDS)
        """Distinguishes the stores of this world from those of others. The course does not depend on it."""
        self.now = 0.0
        """Seconds since the beginning."""
        self.store = MemoryStore(clock=lambda: self.time)
        self.operations = 0
        self.story: list[str] = []
        self._trace = trace
        self._events: list[_Event] = []
        self._numbered = 0
        self._course = hashlib.sha256()
        self._finished = threading.Semaphore(0)
        self._stuck: str | None = None

    @property
    def time(self) -> datetime:
        """Return the time by the store's clock."""
        return START + timedelta(seconds=self.now)

    @property
    def digest(self) -> str:
        """Return a digest of all events in order. It is the same for two runs that took the same course."""
        return self._course.hexdigest()

    def tell(self, process: Actor | None, event: str) -> None:
        """Add a line to the story."""
        event = event.replace(f"memory://{self.id}-", "memory://")
        self.story.append(f"{self.now:12.3f}  {process.name if process is not None else ' '}  {event}")
        self._course.update(self.story[-1].encode())

    def operated(self, process: Actor, name: str, *, mutates: bool) -> None:
        """Record a store operation."""
        self.operations += 1
        self._course.update(f"{self.now:.6f} {process.name} {name}\n".encode())
        if self._trace and mutates:
            self.story.append(f"{self.now:12.3f}  {process.name}      {name}")
        if self.operations > _MOST_OPERATIONS:
            raise SimulationStuck(f"more than {_MOST_OPERATIONS} store operations: {process.name} does not seem to end")

    def wait(self, process: Actor, seconds: float) -> None:
        """Let other processes go on for so many seconds of virtual time."""
        event = self._push(self.now + seconds, process)
        following = self._next()
        if following is event:
            return
        self._resume(following)
        process.turn.acquire()

    def later(self, process: Actor, seconds: float, name: str, operation: Callable[[], object]) -> None:
        """Carry out a store operation so many seconds later, when no process waits for it any more."""

        def carry_out() -> None:
            self.operated(process, f"{name}, late", mutates=True)
            with suppress(StoreError):
                operation()

        self._push(self.now + seconds, None, carry_out)

    def start(self, processes: list[tuple[Actor, Callable[[], None]]]) -> None:
        """Run processes to their end. Raises SimulationStuck, and the error of a process."""
        failures: list[BaseException] = []

        def work(process: Actor, body: Callable[[], None]) -> None:
            process.turn.acquire()
            try:
                body()
            except BaseException as error:
                failures.append(error)
            finally:
                following = self._next()
                if following is None:
                    self._finished.release()
                else:
                    self._resume(following)

        threads = [
            threading.Thread(target=work, args=pair, daemon=True, name=f"process {pair[0].name}") for pair in processes
        ]
        for process, _ in processes:
            self._push(self.now + 0.001 * process.index, process)
        for thread in threads:
            thread.start()
        first = self._next()
        if first is not None:
            self._resume(first)
            self._await_end(threads)
        for failure in failures:
            raise failure

    def _await_end(self, threads: list[threading.Thread]) -> None:
        last_count = -1
        while not self._finished.acquire(timeout=_STUCK_SECONDS):
            if self.operations == last_count:
                raise SimulationStuck(
                    f"no store operation for {_STUCK_SECONDS:g} s: a process waits for another outside of the gate"
                )
            last_count = self.operations
        for thread in threads:
            thread.join()

    def _push(self, at: float, process: Actor | None, operation: Callable[[], object] | None = None) -> _Event:
        self._numbered += 1
        event = _Event(at, self._numbered, process, operation)
        heapq.heappush(self._events, event)
        return event

    def _next(self) -> _Event | None:
        """Return the first event of a process. First, carry out the late store operations that come before it."""
        while self._events:
            event = heapq.heappop(self._events)
            self.now = max(self.now, event.at)
            if event.operation is not None:
                event.operation()
            else:
                return event
        return None

    @staticmethod
    def _resume(event: _Event | None) -> None:
        assert event is not None
        assert event.process is not None
        event.process.turn.release()
