"""Fixtures of this folder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core import Lake
from tests.lake.lakes import create_tables


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake with the table `t/orders`, ids 0 to 9, and the file `reports/today.txt`."""
    root = str(tmp_path / "lake")
    lake = Lake.create(root)
    create_tables(lake, "t/orders")
    with lake.session(message="report", metadata={"dagster/run": "run-17"}) as s:
        s.put("reports/today.txt", "grün\n".encode())
    return root


@pytest.fixture
def lake(root: str) -> Lake:
    """The same."""
    return Lake.open(root)
