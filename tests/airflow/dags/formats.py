"""One task for each format and each kind of slice, and one that loads all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import xarray as xr
from airflow.sdk import dag, get_current_context, task
from airflow.timetables.interval import CronDataIntervalTimetable

from lake_orch.airflow import DataInterval, LakeArray, LakeFile, LakePool, LakeTable, lake_session

HOURS, READINGS = LakeTable("tables/hours"), LakeTable("tables/readings")
FIELD, EVENTS, REPORT = LakeArray("arrays/field"), LakePool("pools/events", key="ts"), LakeFile("reports/day")


def hours() -> list[datetime]:
    start = get_current_context()["data_interval_start"]
    return [datetime.fromtimestamp(start.timestamp(), UTC) + timedelta(hours=hour) for hour in (0, 12)]


@dag(schedule=CronDataIntervalTimetable("@daily", timezone="UTC"), start_date=datetime(2026, 1, 1), catchup=False)
def formats() -> None:
    with lake_session():

        @task.lake(into=HOURS, slice=DataInterval("at"))
        def of_interval() -> pd.DataFrame:
            return pd.DataFrame({"at": pd.to_datetime(hours()), "n": [1, 2]})

        @task.lake(into=READINGS, mode="merge", keys=["id"])
        def merged() -> pl.DataFrame:
            return pl.DataFrame({"id": [1, 2], "value": [0.5, 1.5]})

        @task.lake(into=FIELD)
        def field() -> xr.Dataset:
            return xr.Dataset({"t": (("x",), [1.0, 2.0, 3.0])})

        @task.lake(into=EVENTS, slice=DataInterval("ts"))
        def events() -> list[dict[str, Any]]:
            return [{"ts": hour, "kind": "click"} for hour in hours()]

        @task.lake(into=REPORT)
        def day() -> dict[str, int]:
            return {"rows": 2}

        @task.lake()
        def all_of_them(
            hours: pd.DataFrame,
            readings: pl.DataFrame,
            field: xr.Dataset,
            events: pa.Table,
            report: dict[str, int],
            raw,
        ) -> dict[str, Any]:
            return {
                "hours": len(hours),
                "readings": readings.height,
                "field": float(field["t"].sum()),
                "events": events.num_rows,
                "report": report,
                "raw": raw["path"],
            }

        interval = of_interval()
        all_of_them(interval, merged(), field(), events(), REPORT, interval) << day()


formats()
