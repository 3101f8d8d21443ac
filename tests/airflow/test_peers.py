"""The table of other ways in docs/airflow.md: what each leaves in two tables, where the rows are to be there once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.behaviour import home, plan

pytestmark = [pytest.mark.airflow, pytest.mark.newest]

WAYS = ("lake", "delta_append", "delta_overwrite", "iceberg_append", "iceberg_overwrite")
_days = count()

ONCE, NOTHING = {"lines": 4, "totals": 2}, {"lines": 0, "totals": 0}
HALF = {"lines": 4, "totals": 0}


def run_of(way: str) -> Any:
    from tests.airflow.scheduler import Life

    return Life(f"peer_{way}", datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=next(_days)))


def rows(way: str, root: Path) -> Mapping[str, int]:
    """Return how many rows a reader finds in the tables."""
    return {name: _count(way, name, root) for name in ("lines", "totals")}


def _count(way: str, name: str, root: Path) -> int:
    if way == "lake":
        from lake_core import Lake

        lake = Lake.open(str(root))
        there = any(record.path == name for record in lake.list_datasets("main"))
        return len(lake.delta(name).to_arrow()) if there else 0
    if way.startswith("delta"):
        import deltalake

        path = str(home() / "delta" / name)
        return deltalake.DeltaTable(path).count() if deltalake.DeltaTable.is_deltatable(path) else 0
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("peers", uri=f"sqlite:///{home()}/iceberg.db", warehouse=f"file://{home()}/iceberg")
    there = catalog.table_exists(f"peers.{name}")
    return len(catalog.load_table(f"peers.{name}").scan().to_arrow()) if there else 0


@pytest.mark.parametrize("way", WAYS)
def test_a_run_writes_its_rows(way: str, lake_root: Path) -> None:
    run_of(way).go()
    assert rows(way, lake_root) == ONCE


@pytest.mark.parametrize(
    ("way", "left"),
    [
        ("lake", ONCE),
        ("delta_append", {"lines": 6, "totals": 2}),
        ("delta_overwrite", ONCE),
        ("iceberg_append", {"lines": 6, "totals": 2}),
        ("iceberg_overwrite", ONCE),
    ],
)
def test_a_task_that_dies_after_its_write_is_tried_again(way: str, left: Mapping[str, int], lake_root: Path) -> None:
    plan(dies="lines")
    run_of(way).go()
    assert rows(way, lake_root) == left


@pytest.mark.parametrize("way", WAYS)
def test_the_second_of_two_tables_fails(way: str, lake_root: Path) -> None:
    plan(fail=["totals"])
    run_of(way).go()
    assert rows(way, lake_root) == (NOTHING if way == "lake" else HALF)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_cleared(way: str, lake_root: Path) -> None:
    run = run_of(way)
    run.go()
    run.clear()
    run.go()
    doubled = {"lines": 8, "totals": 4}
    assert rows(way, lake_root) == (doubled if way.endswith("append") else ONCE)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_cleared_whose_list_has_shrunk(way: str, lake_root: Path) -> None:
    run = run_of(way)
    run.go()
    plan(files=1)
    run.clear()
    run.go()
    left = {"lines": 6, "totals": 4} if way.endswith("append") else {"lines": 4, "totals": 2}
    assert rows(way, lake_root) == ({"lines": 2, "totals": 2} if way == "lake" else left)
