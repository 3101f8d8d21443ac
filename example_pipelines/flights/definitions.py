"""The code location that `make ui` serves: assets, checks, jobs, sensors and the resources that they run on.

A run is one session of the lake: what its steps write is published when all of them have succeeded, or not at all.
"""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from example_pipelines.flights import assets, checks, spark_settings
from example_pipelines.flights.places import LAKE_ROOT, REPOSITORY
from lake_orch import (
    DeltaIOManager,
    IcechunkIOManager,
    LakeResource,
    SparkResource,
    lake_backfill_sensor,
    lake_executor,
    lake_recover,
    lake_session_sensors,
)
from lake_orch.landing_zone import BatchRecord, landing_zone_sensor

__all__ = ["LAKE_ROOT", "REPOSITORY", "defs"]

SUMMARY = dg.AssetSelection.assets(assets.carrier_airport_summary)
REFERENCE = dg.AssetSelection.assets(assets.weather, assets.planes, assets.airlines, assets.airports)
OF_A_MONTH = dg.AssetSelection.assets(
    assets.delays_by_hour, assets.monthly_totals, assets.routes, assets.carrier_airport_summary
)
MONTH = OF_A_MONTH | dg.AssetSelection.assets(assets.flights, assets.hourly_weather)
CORRECTED = OF_A_MONTH | dg.AssetSelection.assets(assets.flight_corrections)

# The checks that the step of the flights makes itself: they gate what it brings.
GATES = dg.AssetSelection.checks(
    dg.AssetCheckKey(dg.AssetKey("flights"), "identified"), dg.AssetCheckKey(dg.AssetKey("flights"), "possible")
)

month = dg.define_asset_job(
    "month",
    MONTH.without_checks() | GATES,
    description="A month's file, into five tables, and its weather, into arrays.",
)
corrections = dg.define_asset_job(
    "corrections",
    CORRECTED.without_checks(),
    description="Late corrections, into the flights and what is made of them.",
)
jobs = [
    dg.define_asset_job("reference", REFERENCE.without_checks(), description="The tables that have no months."),
    month,
    corrections,
    dg.define_asset_job(
        "year",
        dg.AssetSelection.assets(assets.carrier_airport_summary).without_checks(),
        description="Only the summary.",
    ),
    dg.define_asset_job(
        "log",
        dg.AssetSelection.assets(assets.departure_log).without_checks(),
        tags={"lake/scope": "asset"},
        description="One month of the departure log, which is published batch by batch.",
    ),
    dg.define_asset_job(
        "compaction",
        dg.AssetSelection.assets(dg.AssetKey(["maintenance", "compaction"])),
        description="Merge small files.",
    ),
    dg.define_asset_job(
        "manifests",
        dg.AssetSelection.assets(dg.AssetKey(["maintenance", "manifest_rewrite"])),
        description="Merge small manifests.",
    ),
    dg.define_asset_job(
        "check", dg.AssetSelection.checks(*checks.all_checks), description="Run every check on every table."
    ),
    lake_recover(),
]


def _of_its_month(batch: BatchRecord) -> dict[str, str]:
    """Return the partition of the run that a file asks for: its month."""
    return {"partition_key": f"{batch.files[0].key.removesuffix('.parquet')}-01"}


arrivals = landing_zone_sensor(
    assets.ARRIVALS,
    target=month,
    table="tables/flights",
    asset_key="flights",
    request=_of_its_month,
    minimum_interval_seconds=10,
)
late = landing_zone_sensor(
    assets.CORRECTIONS,
    target=corrections,
    table="tables/flights",
    asset_key="flights",
    request=_of_its_month,
    minimum_interval_seconds=10,
)

lake = LakeResource(root=LAKE_ROOT)
spark = SparkResource(app_name=spark_settings.APP_NAME, master=spark_settings.MASTER, config=spark_settings.CONFIG)

defs = dg.Definitions.merge(
    dg.Definitions(
        assets=dg.load_assets_from_modules([assets]),
        asset_checks=checks.all_checks,
        jobs=jobs,
        sensors=[arrivals, late, lake_backfill_sensor(), *lake_session_sensors()],
        resources={
            "lake": lake,
            "spark": spark,
            "io_manager": DeltaIOManager(lake=lake, spark=spark),
            "array_io_manager": IcechunkIOManager(lake=lake),
        },
        executor=lake_executor,
    ),
    # Components in YAML, beside what is written in Python.
    dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
)
