"""What is made of the raw data, as functions from tables to tables: the same under Dagster and under Airflow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import xarray as xr

ORIGINS = ("EWR", "JFK", "LGA")

MAX_WIND_MPH = 200.0
"""Wind speeds above this are taken as missing: the source holds an impossible one (1 048 mph, Newark in February)."""

MEASURES = {
    "temp": ("temperature", "°F"),
    "dewp": ("dew point", "°F"),
    "humid": ("relative humidity", "%"),
    "wind_speed": ("wind speed", "mph"),
    "precip": ("precipitation", "inches"),
    "pressure": ("sea level pressure", "millibars"),
    "visib": ("visibility", "miles"),
}
"""The names and units of the variables that the arrays of the weather have."""

KEY = ["carrier", "flight", "origin", "time_hour"]
"""What identifies a flight."""

LOGGED = ["month", "date", "time_hour", "carrier", "flight", "origin", "dest", "dep_delay"]
"""The columns of the departure log."""


def weather_arrays(weather: pa.Table) -> xr.Dataset:
    """Return the weather of a table as arrays."""
    rows = weather.select(["origin", "time_hour", *MEASURES]).to_pandas()
    rows["time"] = rows.pop("time_hour").dt.tz_localize(None).astype("datetime64[ns]")
    arrays = xr.Dataset.from_dataframe(rows.set_index(["origin", "time"])[list(MEASURES)])
    arrays["wind_speed"] = arrays.wind_speed.where(arrays.wind_speed <= MAX_WIND_MPH)
    for name, (long_name, units) in MEASURES.items():
        arrays[name].attrs = {"long_name": long_name, "units": units}
    return arrays


def totals_of(delays_by_hour: pa.Table) -> pa.Table:
    """Return one row a month: flights, and how many were cancelled."""
    totals = delays_by_hour.group_by("month").aggregate([("flights", "sum"), ("cancelled", "sum")])
    return totals.rename_columns({"flights_sum": "flights", "cancelled_sum": "cancelled"})


def routes_of(flights: pa.Table) -> pa.Table:
    """Return the routes, with the first and last month in which they were flown."""
    summary = flights.group_by(["origin", "dest", "carrier"]).aggregate(
        [("month", "min"), ("month", "max"), ([], "count_all")]
    )
    return summary.rename_columns({"month_min": "first_month", "month_max": "last_month", "count_all": "flights"})


def departures_of(flights: pa.Table) -> Sequence[pa.Table]:
    """Return the flights that left, airport by airport."""
    departed = flights.filter(pc.field("dep_delay").is_valid())
    return [departed.filter(pc.field("origin") == origin) for origin in ORIGINS]


def distinct_flights(flights: pa.Table) -> int:
    """Count the flights, each once."""
    return int(flights.group_by(KEY).aggregate([]).num_rows)


def impossible_flights(flights: pa.Table) -> tuple[int, int]:
    """Count the flights from other airports, and those that go nowhere."""
    elsewhere = pc.sum(pc.invert(pc.is_in(flights["origin"], pa.array(ORIGINS)))).as_py() or 0
    nowhere = pc.sum(pc.less_equal(flights["distance"], 0)).as_py() or 0
    return elsewhere, nowhere
