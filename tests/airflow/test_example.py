"""The DAGs of the example: a month is published once, and its checks hold a broken one back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core import Lake

pytestmark = [pytest.mark.airflow, pytest.mark.newest]


@pytest.fixture
def month(airflow_home: Path, lake_root: Path) -> Any:
    """Make a run of February, with the tables that have no months."""
    from tests.airflow.scheduler import Life

    reference, month = (
        Life(dag, datetime(2013, 3, 1, tzinfo=UTC)) for dag in ("flights_reference", "flights_by_month")
    )
    assert reference.go() == "success"
    yield month
    # Airflow has one run of a DAG for each logical date.
    reference.delete()
    month.delete()


def land(table: pa.Table) -> None:
    """Let the file of February arrive."""
    from example_pipelines.flights.folders import drop

    drop("airflow", "2013-02", table)


def rows(root: Path, table: str) -> int:
    return len(Lake.open(str(root)).delta(f"airflow/{table}").to_arrow())


def test_a_month_is_one_commit_with_every_flight_once(month: Any, lake_root: Path) -> None:
    from example_pipelines.flights import source

    assert month.go() == "success"
    lake = Lake.open(str(lake_root))
    assert {change.dataset for change in lake.diff("main~1", "main")} == {
        f"airflow/{name}" for name in ("flights", "hourly_weather", "delays_by_hour", "monthly_totals", "departure_log")
    }
    flights = source.flights_of_month(2).num_rows
    assert rows(lake_root, "flights") == flights
    assert rows(lake_root, "departure_log") == source.departures(2)
    delays = lake.delta("airflow/delays_by_hour").to_arrow()
    assert sum(delays["flights"].to_pylist()) == flights
    assert lake.delta("airflow/monthly_totals").to_arrow()["flights"].to_pylist() == [flights]


def test_a_broken_month_is_held_back_until_its_file_is_replaced(month: Any, lake_root: Path) -> None:
    from example_pipelines.flights import source

    land(source.broken_month(2))
    assert month.go() == "failed"
    assert {path for path in Lake.open(str(lake_root)).at().datasets() if "flights" in path} == set()
    land(source.flights_of_month(2))
    month.clear("session.flights", downstream=True)
    assert month.go() == "success"
    assert rows(lake_root, "flights") == source.flights_of_month(2).num_rows
    assert rows(lake_root, "departure_log") == source.departures(2)
