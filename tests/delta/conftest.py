"""Fixtures of this folder's tests; one that needs another store or table defines its own by the same name."""

from __future__ import annotations

import pytest

from lake_core.delta import DeltaTable
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, rows


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(store: MemoryStore) -> DeltaTable:
    """Three commits of six rows each, every one into three partitions."""
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    for number in range(3):
        table.append(rows(number * 6, number * 6 + 6))
    return table
