"""What must hold of the tables and arrays.

The checks compare with the source for whatever months are there, so they hold at any time.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import xarray as xr

from example_pipelines.flights import assets, source
from example_pipelines.flights.tables import KEY, MAX_WIND_MPH, ORIGINS, weather_arrays
from lake_core.delta import DeltaTable

UNNAMED_AIRPORTS = {"BQN", "PSE", "SJU", "STT"}
"""Puerto Rico and the Virgin Islands: destinations that the source's list of airports leaves out."""


def _whole_table(asset: dg.AssetsDefinition, rows: int, key: str) -> dg.AssetChecksDefinition:
    """Make a check that a reference table is as long as its source, and that its key identifies its rows."""

    @dg.asset_check(asset=asset, name="complete_and_unique", description=f"{rows} rows, one for each {key}.")
    def check(table: DeltaTable) -> dg.AssetCheckResult:
        keys = table.to_arrow(columns=[key])[key]
        counts = {"rows": len(keys), "distinct": pc.count_distinct(keys).as_py(), "nulls": keys.null_count}
        return dg.AssetCheckResult(passed=counts == {"rows": rows, "distinct": rows, "nulls": 0}, metadata=counts)

    return check


reference_checks = [
    _whole_table(assets.planes, 3_322, "tailnum"),
    _whole_table(assets.airlines, 16, "carrier"),
    _whole_table(assets.airports, 1_458, "faa"),
]


@dg.asset_check(asset=assets.flights)
def flights_as_in_source(flights: DeltaTable) -> dg.AssetCheckResult:
    """Each month has exactly the flights of the source: 336 776 in all."""
    counts = _rows_by_month(flights.to_arrow(columns=["month"]))
    expected = {month: source.flights_of_month(_month_number(month)).num_rows for month in counts}
    return dg.AssetCheckResult(
        passed=counts == expected and bool(counts), metadata={"rows": sum(counts.values()), "months": len(counts)}
    )


@dg.asset_check(asset=assets.flights)
def flights_are_identified(flights: DeltaTable) -> dg.AssetCheckResult:
    """Carrier, number, airport and scheduled hour identify a flight; none of them is missing."""
    return _unique(flights.to_arrow(columns=KEY), KEY)


@dg.asset_check(asset=assets.flights)
def flights_in_range(flights: DeltaTable) -> dg.AssetCheckResult:
    """Only the three airports, delays of less than a day, and every date in the month of its partition."""
    table = flights.to_arrow(columns=["month", "date", "origin", "dep_delay", "distance"])
    wrong = {
        "origin": _count(pc.invert(pc.is_in(table["origin"], pa.array(ORIGINS)))),
        "dep_delay": _count(pc.or_(pc.less(table["dep_delay"], -60), pc.greater(table["dep_delay"], 24 * 60))),
        "distance": _count(pc.less_equal(table["distance"], 0)),
        "date": _count(pc.not_equal(pc.floor_temporal(table["date"], unit="month"), table["month"])),
    }
    return dg.AssetCheckResult(passed=not any(wrong.values()), metadata=wrong)


@dg.asset_check(asset=assets.weather)
def weather_complete_and_unique(weather: DeltaTable) -> dg.AssetCheckResult:
    """26 115 hours, one row for each airport and hour."""
    key = ["origin", "time_hour"]
    table = weather.to_arrow(columns=key)
    unique = _unique(table, key)
    return dg.AssetCheckResult(passed=unique.passed and table.num_rows == 26_115, metadata=unique.metadata)


@dg.asset_check(asset=assets.weather)
def weather_in_range(weather: DeltaTable) -> dg.AssetCheckResult:
    """Temperatures, visibility and rain are possible; the one impossible wind speed of the source is the only one."""
    table = weather.to_arrow(columns=["temp", "visib", "precip", "wind_speed"])
    wrong = {
        "temp": _count(pc.or_(pc.less(table["temp"], -20), pc.greater(table["temp"], 120))),
        "visib": _count(pc.or_(pc.less(table["visib"], 0), pc.greater(table["visib"], 10))),
        "precip": _count(pc.or_(pc.less(table["precip"], 0), pc.greater(table["precip"], 5))),
        "wind_speed": _count(pc.greater(table["wind_speed"], MAX_WIND_MPH)),
    }
    return dg.AssetCheckResult(passed=wrong == {"temp": 0, "visib": 0, "precip": 0, "wind_speed": 1}, metadata=wrong)


@dg.asset_check(asset=assets.hourly_weather, additional_ins={"weather": dg.AssetIn("weather")})
def arrays_as_in_table(hourly_weather: xr.Dataset, weather: pa.Table) -> dg.AssetCheckResult:
    """The arrays have each temperature of their months at its airport and hour, and no others."""
    expected = weather_arrays(weather).temp
    temperatures = hourly_weather.temp.load().dropna("time", how="all")
    months = sorted(set(temperatures.time.dt.month.values.tolist()))
    expected = expected.where(expected.time.dt.month.isin(months)).dropna("time", how="all")
    passed = bool(months) and temperatures.equals(expected)
    return dg.AssetCheckResult(passed=passed, metadata={"hours": temperatures.sizes["time"], "months": len(months)})


@dg.asset_check(asset=assets.delays_by_hour, additional_ins={"flights": dg.AssetIn("flights")})
def delays_count_every_flight(delays_by_hour: DeltaTable, flights: DeltaTable) -> dg.AssetCheckResult:
    """The join with the weather neither loses nor doubles a flight."""
    totals = delays_by_hour.to_arrow(columns=["month", "flights"]).group_by("month").aggregate([("flights", "sum")])
    counts = dict(zip(map(str, totals["month"].to_pylist()), totals["flights_sum"].to_pylist(), strict=True))
    rows = _rows_by_month(flights.to_arrow(columns=["month"]))
    expected = {month: rows.get(month, 0) for month in counts}
    return dg.AssetCheckResult(
        passed=counts == expected and bool(counts), metadata={"flights": sum(counts.values()), "months": len(counts)}
    )


@dg.asset_check(asset=assets.carrier_airport_summary, additional_ins={"flights": dg.AssetIn("flights")})
def summary_counts_every_flight(carrier_airport_summary: DeltaTable, flights: DeltaTable) -> dg.AssetCheckResult:
    """All flights are counted once, and only the airports that the source does not know lack a name."""
    table = carrier_airport_summary.to_arrow()
    counted = pc.sum(table["flights"]).as_py()
    unnamed = set(table.filter(pc.field("dest_name").is_null())["dest"].to_pylist())
    passed = (
        counted == flights.to_arrow(columns=["month"]).num_rows
        and unnamed <= UNNAMED_AIRPORTS
        and table["carrier_name"].null_count == 0
        and bool(_unique(table, ["carrier", "dest"]).passed)
    )
    return dg.AssetCheckResult(passed=passed, metadata={"flights": counted, "unnamed airports": sorted(unnamed)})


@dg.asset_check(asset=assets.departure_log)
def log_has_every_departure_once(departure_log: DeltaTable) -> dg.AssetCheckResult:
    """The log holds each flight of its months that left, once, however often its step was killed."""
    table = departure_log.to_arrow(columns=[*KEY, "month"])
    counts = _rows_by_month(table)
    expected = {month: source.departures(_month_number(month)) for month in counts}
    return dg.AssetCheckResult(
        passed=counts == expected and bool(counts) and bool(_unique(table, KEY).passed),
        metadata={"rows": table.num_rows, "months": len(counts)},
    )


all_checks = [
    *reference_checks,
    flights_as_in_source,
    flights_are_identified,
    flights_in_range,
    weather_complete_and_unique,
    weather_in_range,
    arrays_as_in_table,
    delays_count_every_flight,
    summary_counts_every_flight,
    log_has_every_departure_once,
]


def _unique(table: pa.Table, key: Sequence[str]) -> dg.AssetCheckResult:
    distinct = table.group_by(list(key)).aggregate([]).num_rows
    counts = {"rows": table.num_rows, "distinct": distinct, "nulls": sum(table[column].null_count for column in key)}
    return dg.AssetCheckResult(passed=counts["rows"] == distinct and not counts["nulls"], metadata=counts)


def _rows_by_month(table: pa.Table) -> dict[str, int]:
    counts = table.group_by("month").aggregate([([], "count_all")])
    return dict(zip(map(str, counts["month"].to_pylist()), counts["count_all"].to_pylist(), strict=True))


def _month_number(month: str) -> int:
    return int(month.split("-")[1])


def _count(flags: Any) -> int:
    return pc.sum(flags).as_py() or 0
