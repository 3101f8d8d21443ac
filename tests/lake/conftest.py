"""Fixtures of this folder's tests."""

from __future__ import annotations

import pytest

from lake_core import Lake
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import create_tables


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(time: ManualClock) -> MemoryStore:
    """Its clock is the lake's."""
    return MemoryStore(clock=time)


@pytest.fixture
def empty(store: MemoryStore, time: ManualClock) -> Lake:
    """A lake without anything in it."""
    return Lake.create(store, clock=time)


@pytest.fixture
def lake(empty: Lake) -> Lake:
    """A lake with the table `t/orders`, ids 0 to 9, and the file `notes.txt`."""
    create_tables(empty, "t/orders")
    with empty.session(message="notes") as s:
        s.put("notes.txt", b"one")
    return empty
