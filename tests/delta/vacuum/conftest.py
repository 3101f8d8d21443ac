"""A clock that tests set, the store in its time, and two ways to list a table's folder."""

from __future__ import annotations

import pytest

from lake_core.store import MemoryStore
from tests.delta.vacuum.clocked_tables import Time


@pytest.fixture
def time_() -> Time:
    return Time()


@pytest.fixture
def store(time_: Time) -> MemoryStore:
    return MemoryStore(clock=time_)


@pytest.fixture(params=["whole", pytest.param("ranges", marks=pytest.mark.exhaustive)])
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """List the folder at once, or a few files at a time."""
    if request.param == "ranges":
        monkeypatch.setattr("lake_core.delta.operations.listing._KEYS_A_TASK", 2)
