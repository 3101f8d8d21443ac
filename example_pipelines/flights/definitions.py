"""The code location that `make ui` serves: assets, checks, jobs and the resources that they run on."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from example_pipelines.flights import assets, checks
from lake_orch import DeltaIOManager, LakeResource, SparkResource

REPOSITORY = Path(__file__).resolve().parents[2]
LAKE_ROOT = os.environ.get("LAKE_ROOT") or str(REPOSITORY / ".lake")

MONTHLY = dg.AssetSelection.assets(assets.flights, assets.delays_by_hour)
SUMMARY = dg.AssetSelection.assets(assets.carrier_airport_summary)
LOG = dg.AssetSelection.assets(assets.departure_log)
REFERENCE = dg.AssetSelection.assets(assets.weather, assets.planes, assets.airlines, assets.airports)

jobs = [
    dg.define_asset_job("reference", REFERENCE.without_checks(), description="The tables that have no months."),
    dg.define_asset_job("month", MONTHLY.without_checks(), description="One month of flights and delays."),
    dg.define_asset_job("year", SUMMARY.without_checks(), description="The summary of all months that are there."),
    dg.define_asset_job("log", LOG.without_checks(), description="One month of the departure log."),
    dg.define_asset_job("check", dg.AssetSelection.all_asset_checks(), description="Every check on every table."),
]

lake = LakeResource(root=LAKE_ROOT)
spark = SparkResource(app_name="flights", master="local[2]", config={"spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR"})

defs = dg.Definitions(
    assets=dg.load_assets_from_modules([assets]),
    asset_checks=checks.all_checks,
    jobs=jobs,
    resources={"lake": lake, "spark": spark, "io_manager": DeltaIOManager(lake=lake, spark=spark)},
    # Each step is a process of its own, and each Spark step starts a JVM: two at a time are enough for a laptop.
    executor=dg.multiprocess_executor.configured({"max_concurrent": 2}),
)
