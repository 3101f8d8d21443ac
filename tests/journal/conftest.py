from __future__ import annotations

from collections.abc import Iterator

import pytest

from lake_core import runtime
from lake_core.store import MemoryStore
from tests.journal.clocks import Clock
from tests.journal.stores import ScriptedStore


@pytest.fixture(autouse=True)
def virtual_time() -> Iterator[None]:
    """Let journals of the test's own thread sleep on its newest clock, if it makes one."""
    system = runtime.Runtime()
    Clock.newest = None

    def sleep(seconds: float) -> None:
        (system if Clock.newest is None else Clock.newest).sleep(seconds)

    def monotonic() -> float:
        return (system if Clock.newest is None else Clock.newest).monotonic()

    with runtime.using(runtime.Runtime(sleep=sleep, monotonic=monotonic)):
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> ScriptedStore:
    return ScriptedStore(MemoryStore(clock=clock))
