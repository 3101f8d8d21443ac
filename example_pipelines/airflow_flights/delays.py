"""Delays and cancellations by hour and by carrier, in Arrow. Under Dagster, Spark computes these two tables."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from example_pipelines.flights import source
from example_pipelines.flights.tables import MAX_WIND_MPH


def with_month(rows: pa.Table) -> pa.Table:
    """Return the rows of a month's file, with the first day of the month instead of its number."""
    columns = ["month", "date", "time_hour", "carrier", "flight", "tailnum", "origin", "dest", "hour"]
    measures = ["dep_delay", "arr_delay", "air_time", "distance"]
    rows = rows.set_column(rows.schema.get_field_index("month"), "month", source.first_of_month(rows))
    return rows.select([*columns, *measures])


def delays_of(flights: pa.Table, weather: pa.Table) -> pa.Table:
    """Return delays and cancellations by airport, hour of the day and weather."""
    joined = flights.join(weather, ["origin", "time_hour"], join_type="left outer")
    joined = joined.append_column("conditions", _conditions(joined))
    return _delays(joined, ["month", "origin", "hour", "conditions"])


def carriers_of(flights: pa.Table, airlines: pa.Table) -> pa.Table:
    """Return the delays of the carriers, with their names."""
    names = airlines.rename_columns(["carrier", "carrier_name"])
    return _delays(flights, ["carrier"]).join(names, "carrier", join_type="left outer").sort_by("carrier")


def _conditions(rows: pa.Table) -> pa.ChunkedArray:
    wind = pc.if_else(pc.less_equal(rows["wind_speed"], MAX_WIND_MPH), rows["wind_speed"], None)
    cases = {
        "unknown": pc.is_null(rows["visib"]),
        "rain or snow": pc.fill_null(pc.greater(rows["precip"], 0), False),
        "low visibility": pc.fill_null(pc.less(rows["visib"], 3), False),
        "strong wind": pc.fill_null(pc.greater_equal(wind, 20), False),
    }
    return pc.case_when(pc.make_struct(*cases.values(), field_names=list(cases)), *cases, "fair")


def _delays(rows: pa.Table, keys: list[str]) -> pa.Table:
    rows = rows.append_column("cancelled", pc.is_null(rows["dep_delay"]).cast(pa.int64()))
    measured = [([], "count_all"), ("cancelled", "sum"), ("dep_delay", "mean")]
    grouped = rows.group_by(keys).aggregate(measured)
    names = {"count_all": "flights", "cancelled_sum": "cancelled", "dep_delay_mean": "mean_dep_delay"}
    return grouped.rename_columns(names)
