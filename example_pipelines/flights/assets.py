"""The tables, raw ones by month or whole, and what Spark makes of them; and the weather as arrays."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import time

import dagster as dg
import pandas as pd
import pyarrow as pa
import xarray as xr
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from example_pipelines.flights import source
from example_pipelines.flights.places import LANDING
from example_pipelines.flights.tables import (
    KEY,
    LOGGED,
    MAX_WIND_MPH,
    MEASURES,
    departures_of,
    distinct_flights,
    impossible_flights,
    routes_of,
    totals_of,
    weather_arrays,
)
from lake_orch import LakeResource, SparkResource
from lake_orch.landing_zone import LandingZone, batch_of

MONTHS = dg.MonthlyPartitionsDefinition(start_date=f"{source.YEAR}-01-01", end_date=f"{source.YEAR + 1}-01-01")
OWNERS = ["team:flights"]
ARRIVALS = LandingZone("flights", f"{LANDING}/flights", pattern="*.parquet", max_files=1)
"""Where the files of the months arrive, `2013-01.parquet` and so on."""

CORRECTIONS = LandingZone("corrections", f"{LANDING}/corrections", pattern="*.parquet", max_files=1)
"""Where arrivals that were reported again come later, by the same names."""


@dg.asset(
    partitions_def=MONTHS,
    metadata={"partition_expr": "month"},
    check_specs=[
        dg.AssetCheckSpec(
            "identified",
            asset="flights",
            blocking=True,
            description="Carrier, number, airport and hour identify a flight.",
        ),
        dg.AssetCheckSpec(
            "possible",
            asset="flights",
            blocking=True,
            description="Only the three airports, and every flight goes somewhere.",
        ),
    ],
    kinds={"deltalake", "pyspark"},
    group_name="raw",
    owners=OWNERS,
)
def flights(context: dg.AssetExecutionContext, spark: SparkResource, lake: LakeResource) -> dg.MaterializeResult:
    """Every flight that was to leave New York City, by month of departure (local time), as its file landed.

    A month that is broken fails its checks here, in the session of its run: nobody else ever sees it.
    """
    batch = batch_of(context, ARRIVALS, lake)
    table = lake.table(context, partition_by=["month"])
    table.append(_flights(spark, batch.to_arrow()), txn=batch.txn)
    months = ", ".join(f"DATE '{key}'" for key in context.partition_keys)
    arrived = table.to_arrow(columns=[*KEY, "distance"], where=f"month IN ({months})")
    distinct, (elsewhere, nowhere) = distinct_flights(arrived), impossible_flights(arrived)
    return dg.MaterializeResult(
        metadata={**table.metadata(), "lake/landing_batch": batch.number},
        check_results=[
            dg.AssetCheckResult(
                passed=distinct == len(arrived),
                check_name="identified",
                metadata={"rows": len(arrived), "distinct": distinct},
            ),
            dg.AssetCheckResult(
                passed=not elsewhere and not nowhere,
                check_name="possible",
                metadata={"elsewhere": elsewhere, "nowhere": nowhere},
            ),
        ],
    )


@dg.asset(partitions_def=MONTHS, deps=[flights], kinds={"deltalake", "arrow"}, group_name="raw", owners=OWNERS)
def flight_corrections(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
    """Arrivals that were reported again, merged into the flights."""
    batch = batch_of(context, CORRECTIONS, lake)
    rows = batch.to_arrow().select([*KEY, "arr_delay"])
    table = lake.table(context, "tables/flights")
    how = {"keys": KEY, "when_matched_update": {"arr_delay": "s.arr_delay"}}
    table.merge(rows, how, txn=batch.txn)
    return dg.MaterializeResult(metadata={**table.metadata(), "lake/landing_batch": batch.number})


@dg.asset(kinds={"deltalake", "arrow"}, group_name="raw", owners=OWNERS)
def weather() -> pa.Table:
    """Hourly weather at the three airports."""
    return source.weather()


@dg.asset(
    partitions_def=MONTHS,
    # A coordinate for each hour of the year, so that months may come in any order.
    metadata={"partition_expr": "time", "lake/coordinates": {"time": "h"}, "lake/preview_image": "temp"},
    ins={"weather": dg.AssetIn(metadata={"columns": ["origin", "time_hour", *MEASURES]})},
    io_manager_key="array_io_manager",
    kinds={"icechunk", "xarray"},
    group_name="raw",
    owners=OWNERS,
)
def hourly_weather(context: dg.AssetExecutionContext, weather: pa.Table) -> xr.Dataset:
    """The weather as arrays: airports by hours (UTC), a variable for each measurement.

    What was not measured is missing.
    """
    window = context.partition_time_window
    hours = pd.date_range(window.start, window.end, freq="h", inclusive="left")
    return weather_arrays(weather).reindex(time=hours.tz_localize(None))


@dg.asset(kinds={"deltalake", "arrow"}, group_name="raw", owners=OWNERS)
def planes() -> pa.Table:
    """The planes by tail number."""
    return source.planes()


@dg.asset(kinds={"deltalake", "arrow"}, group_name="raw", owners=OWNERS)
def airlines() -> pa.Table:
    """Carrier codes and names."""
    return source.airlines()


@dg.asset(kinds={"deltalake", "arrow"}, group_name="raw", owners=OWNERS)
def airports() -> pa.Table:
    """Airports of the United States by FAA code."""
    return source.airports()


@dg.asset(
    partitions_def=MONTHS,
    deps=[flight_corrections],
    metadata={"partition_expr": "month"},
    ins={"weather": dg.AssetIn(metadata={"columns": ["origin", "time_hour", "wind_speed", "precip", "visib"]})},
    kinds={"deltalake", "pyspark"},
    group_name="delays",
    owners=OWNERS,
)
def delays_by_hour(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Delays and cancellations by airport, hour of the day and weather."""
    wind = F.when(F.col("wind_speed") <= MAX_WIND_MPH, F.col("wind_speed"))
    conditions = (
        F.when(F.col("visib").isNull(), "unknown")
        .when(F.col("precip") > 0, "rain or snow")
        .when(F.col("visib") < 3, "low visibility")
        .when(wind >= 20, "strong wind")
        .otherwise("fair")
    )
    return (
        flights.join(weather, ["origin", "time_hour"], "left")
        .withColumn("conditions", conditions)
        .groupBy("month", "origin", "hour", "conditions")
        .agg(*_delay_columns())
    )


@dg.asset(
    partitions_def=MONTHS,
    metadata={"partition_expr": "month", "lake/partition_by": []},
    kinds={"deltalake", "arrow"},
    group_name="delays",
    owners=OWNERS,
)
def monthly_totals(delays_by_hour: pa.Table) -> pa.Table:
    """One row a month: flights, and how many were cancelled."""
    return totals_of(delays_by_hour)


@dg.asset(
    metadata={"lake/merge": ["origin", "dest", "carrier"]},
    ins={"flights": dg.AssetIn(metadata={"columns": ["month", "origin", "dest", "carrier"]})},
    kinds={"deltalake", "arrow"},
    group_name="delays",
    owners=OWNERS,
)
def routes(flights: pa.Table) -> pa.Table:
    """The routes, with the first and last month in which they were flown.

    Known routes are updated, new ones are added.
    """
    return routes_of(flights)


class SummaryConfig(dg.Config):
    """The definition of a late flight."""

    late_after: int = 15
    """Minutes."""


@dg.asset(kinds={"deltalake", "pyspark"}, group_name="delays", owners=OWNERS)
def carrier_airport_summary(
    config: SummaryConfig, flights: DataFrame, airlines: DataFrame, airports: DataFrame, planes: DataFrame
) -> DataFrame:
    """The year by carrier and destination, with their names and the seats on offer."""
    names = airlines.withColumnRenamed("name", "carrier_name")
    destinations = airports.select(F.col("faa").alias("dest"), F.col("name").alias("dest_name"))
    return (
        flights.join(planes.select("tailnum", "seats"), "tailnum", "left")
        .groupBy("carrier", "dest")
        .agg(
            *_delay_columns(config.late_after), F.sum("seats").alias("known_seats"), F.avg("distance").alias("distance")
        )
        .join(names, "carrier", "left")
        .join(destinations, "dest", "left")
        .select(
            "carrier",
            "carrier_name",
            "dest",
            "dest_name",
            "flights",
            "cancelled",
            "mean_dep_delay",
            "share_late",
            "known_seats",
            "distance",
        )
    )


class DepartureLogConfig(dg.Config):
    """The settings by which the log is written."""

    pause: float = 0.0
    """Seconds to wait after each batch, so that one can watch the table grow (or kill the step in between)."""


@dg.asset(
    partitions_def=MONTHS,
    metadata={"partition_expr": "month"},
    ins={"flights": dg.AssetIn(metadata={"columns": LOGGED})},
    kinds={"deltalake", "arrow"},
    group_name="delays",
    owners=OWNERS,
)
def departure_log(
    context: dg.AssetExecutionContext, config: DepartureLogConfig, flights: pa.Table, lake: LakeResource
) -> dg.MaterializeResult:
    """The flights that left, written airport by airport by the asset's own code.

    Each write is a batch of this step. The first replaces the month, the others add to it; if the step dies in between,
    its next attempt skips what was committed and goes on.
    """
    log = lake.table(context, partition_by=["month"])
    for number, batch in enumerate(departures_of(flights)):
        if number == 0:
            months = ", ".join(f"DATE '{key}'" for key in context.partition_keys)
            log.overwrite(batch, where=f"month IN ({months})")
        else:
            log.append(batch)
        time.sleep(config.pause)
    return dg.MaterializeResult(metadata=log.metadata())


def _flights(spark: SparkResource, table: pa.Table) -> DataFrame:
    """Return the rows of a file, with the month's first day, types and comments."""
    table = table.set_column(table.schema.get_field_index("month"), "month", source.first_of_month(table))
    return spark.session.createDataFrame(table).select(
        "month",
        "date",
        _described("time_hour", "scheduled hour of departure"),
        "carrier",
        F.col("flight").cast("int"),
        "tailnum",
        "origin",
        "dest",
        F.col("hour").cast("int"),
        _described("dep_delay", "minutes, negative if early; null if the flight was cancelled", "int"),
        _described("arr_delay", "minutes, negative if early; null if cancelled or diverted", "int"),
        _described("air_time", "minutes", "int"),
        _described("distance", "miles", "int"),
    )


def _described(name: str, comment: str, data_type: str | None = None) -> Column:
    column = F.col(name) if data_type is None else F.col(name).cast(data_type)
    return column.alias(name, metadata={"comment": comment})


def _delay_columns(late_after: int = 15) -> list[Column]:
    return [
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.avg(F.when(F.col("dep_delay").isNotNull(), (F.col("dep_delay") > late_after).cast("int"))).alias(
            "share_late"
        ),
    ]
