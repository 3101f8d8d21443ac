"""Three DAGs: tables that have no months, the flights of a month, and what is made whenever a month is published.

A run of each is one session of the lake: what its tasks write is published when all of them have succeeded, in one
commit, or not at all.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable

from example_pipelines.airflow_flights.delays import carriers_of, delays_of, with_month
from example_pipelines.flights import source
from example_pipelines.flights.places import LANDING
from example_pipelines.flights.tables import (
    KEY,
    LOGGED,
    MEASURES,
    departures_of,
    distinct_flights,
    impossible_flights,
    routes_of,
    totals_of,
)
from lake_orch.airflow import DataInterval, LakeArray, LakeTable, lake_session

# A folder of their own: the Dagster pipeline has tables of the same names in the same lake.
WEATHER, PLANES = LakeTable("airflow/weather"), LakeTable("airflow/planes")
AIRLINES, AIRPORTS = LakeTable("airflow/airlines"), LakeTable("airflow/airports")
FLIGHTS = LakeTable("airflow/flights", partition_by=["month"])
# A coordinate for each hour of the year, so that months may come in any order.
HOURS = np.arange(f"{source.YEAR}", f"{source.YEAR + 1}", dtype="M8[h]").astype("M8[ns]")
HOURLY_WEATHER = LakeArray("airflow/hourly_weather", coordinates={"time": HOURS})
DELAYS = LakeTable("airflow/delays_by_hour", partition_by=["month"])
TOTALS = LakeTable("airflow/monthly_totals")
LOG = LakeTable("airflow/departure_log", partition_by=["month"])
CARRIERS, ROUTES = LakeTable("airflow/carriers"), LakeTable("airflow/routes")

MONTH = DataInterval("month")
"""The slice of the tables that a run replaces: the rows whose column `month` lies in its data interval."""


def of_month(start: datetime) -> str:
    """Return the condition for the rows of the month that begins then."""
    return f"month = DATE '{start:%Y-%m-%d}'"


@dag(schedule="@once", start_date=datetime(source.YEAR, 1, 1), catchup=True, tags=["flights"])
def flights_reference() -> None:
    """Load the tables that have no months."""
    with lake_session():

        @task.lake(into=WEATHER)
        def weather() -> pa.Table:
            return source.weather()

        @task.lake(into=PLANES)
        def planes() -> pa.Table:
            return source.planes()

        @task.lake(into=AIRLINES)
        def airlines() -> pa.Table:
            return source.airlines()

        @task.lake(into=AIRPORTS)
        def airports() -> pa.Table:
            return source.airports()

        weather()
        planes()
        airlines()
        airports()


@dag(
    schedule=CronDataIntervalTimetable("@monthly", timezone="UTC"),
    start_date=datetime(source.YEAR, 1, 1),
    end_date=datetime(source.YEAR, 12, 1),
    catchup=True,
    max_active_runs=2,
    default_args={"retries": 1},
    params={"pause": 0.0},
    tags=["flights"],
)
def flights_by_month() -> None:
    """Load a month's file, and make four tables and the arrays of its weather.

    Each run replaces its own month, so that any of them can be cleared, in any order.
    """
    with lake_session() as run:

        @task.lake(into=FLIGHTS, slice=MONTH)
        def flights(data_interval_start: Any = None) -> pa.Table:
            """Read the file of the month that has arrived, or else the month as published."""
            file = Path(LANDING) / "airflow" / f"{data_interval_start:%Y-%m}.parquet"
            return with_month(
                pq.read_table(file) if file.exists() else source.flights_of_month(data_interval_start.month)
            )

        @run.check(FLIGHTS)
        def identified(flights: LakeTable) -> None:
            rows = flights.load(pa.Table, columns=KEY)
            distinct = distinct_flights(rows)
            assert distinct == len(rows), f"{len(rows):,} flights, {distinct:,} of them distinct"

        @run.check(FLIGHTS)
        def possible(flights: LakeTable) -> None:
            elsewhere, nowhere = impossible_flights(flights.load(pa.Table, columns=["origin", "distance"]))
            assert not elsewhere + nowhere, f"{elsewhere:,} flights from elsewhere, {nowhere:,} that go nowhere"

        @task.lake(into=HOURLY_WEATHER, slice=DataInterval("time"))
        def hourly_weather(data_interval_start: Any = None, data_interval_end: Any = None) -> Any:
            import pandas as pd

            from example_pipelines.flights.tables import weather_arrays

            rows = WEATHER.load(pa.Table, columns=["origin", "time_hour", *MEASURES])
            hours = pd.date_range(data_interval_start, data_interval_end, freq="h", inclusive="left")
            return weather_arrays(rows).reindex(time=hours.tz_localize(None))

        @task.lake(into=DELAYS, slice=MONTH)
        def delays_by_hour(flights: LakeTable, data_interval_start: Any = None) -> pa.Table:
            weather = WEATHER.load(pa.Table, columns=["origin", "time_hour", "wind_speed", "precip", "visib"])
            return delays_of(flights.load(pa.Table, where=of_month(data_interval_start)), weather)

        @task.lake(into=TOTALS, slice=MONTH)
        def monthly_totals(delays: LakeTable, data_interval_start: Any = None) -> pa.Table:
            return totals_of(delays.load(pa.Table, where=of_month(data_interval_start)))

        @task
        def departure_log(work: Any = run.writer, data_interval_start: Any = None, params: Any = None) -> None:
            """Write the flights that left, airport by airport, by the task's own code."""
            month = of_month(data_interval_start)
            with work() as writer:
                for number, rows in enumerate(departures_of(FLIGHTS.load(pa.Table, columns=LOGGED, where=month))):
                    if number == 0:
                        writer.overwrite(LOG.path, rows, where=month, partition_by=["month"])
                    else:
                        writer.append(LOG.path, rows)
                    time.sleep(params["pause"])

        landed = flights()
        hourly_weather()
        monthly_totals(delays_by_hour(landed))
        landed >> departure_log()


@dag(schedule=[FLIGHTS.asset], start_date=datetime(source.YEAR, 1, 1), catchup=False, tags=["flights"])
def flights_summary() -> None:
    """Make the tables of all months, whenever one is published. Each task publishes by itself."""

    @task.lake(into=CARRIERS)
    def carriers() -> pa.Table:
        flights = FLIGHTS.load(pa.Table, columns=["carrier", "dep_delay"])
        return carriers_of(flights, AIRLINES.load(pa.Table))

    @task.lake(into=ROUTES, mode="merge", keys=["origin", "dest", "carrier"])
    def routes() -> pa.Table:
        return routes_of(FLIGHTS.load(pa.Table, columns=["month", "origin", "dest", "carrier"]))

    carriers()
    routes()


flights_reference()
flights_by_month()
flights_summary()
