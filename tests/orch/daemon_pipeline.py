"""The code location of test_daemon: assets that a daemon backfills, retries and cancels."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
import signal
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_orch import (
    DeltaIOManager,
    LakeResource,
    SparkResource,
    lake_backfill_sensor,
    lake_executor,
    lake_session_sensors,
)

FOLDER = Path(os.environ["LAKE_TEST_FOLDER"])
DAYS = dg.StaticPartitionsDefinition([f"{day:02}" for day in range(60)])
BY_DAY = {"partition_expr": "day"}


SPARK = SparkResource(shared=True, master="local[2]", idle_timeout=60) if os.environ.get("LAKE_TEST_SPARK") else None


def of_days(context: dg.AssetExecutionContext) -> Any:
    days = [day for day in context.partition_keys for _ in range(3)]
    rows = pa.table({"day": days, "n": range(len(days))})
    return rows if SPARK is None else SPARK.session.createDataFrame(rows)


@dg.asset(partitions_def=DAYS, metadata=BY_DAY)
def daily(context: dg.AssetExecutionContext) -> Any:
    return of_days(context)


@dg.asset(partitions_def=DAYS, metadata={**BY_DAY, "lake/mode": "append"})
def appended(context: dg.AssetExecutionContext, daily: pa.Table) -> Any:
    assert set(daily["day"].to_pylist()) == set(context.partition_keys)
    return of_days(context)


@dg.asset(partitions_def=DAYS, metadata=BY_DAY, backfill_policy=dg.BackfillPolicy.single_run())
def at_once(context: dg.AssetExecutionContext) -> Any:
    return of_days(context)


@dg.asset(partitions_def=DAYS, metadata=BY_DAY)
def gathered(context: dg.AssetExecutionContext) -> Any:
    return of_days(context)


@dg.asset(metadata={"lake/mode": "append"})
def first() -> pa.Table:
    return pa.table({"id": [1]})


@dg.asset(metadata={"lake/mode": "append"})
def second(first: pa.Table) -> pa.Table:
    """Kill the run's worker once, or wait to be canceled, as a file says."""
    if (FOLDER / "kill").exists():
        (FOLDER / "kill").unlink()
        os.kill(os.getppid() if (FOLDER / "parent").exists() else os.getpid(), signal.SIGKILL)
    while (FOLDER / "wait").exists():
        (FOLDER / "waiting").touch()
        time.sleep(0.05)
    return pa.table({"id": [len(first)]})


@dg.asset_check(asset=second, blocking=True)
def second_fine() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=not (FOLDER / "bad").exists())


lake = LakeResource(root=str(FOLDER / "lake"))

defs = dg.Definitions(
    assets=[daily, appended, at_once, gathered, first, second],
    asset_checks=[second_fine],
    jobs=[
        dg.define_asset_job("days", [daily, appended]),
        dg.define_asset_job("pair", [first, second], tags={"dagster/max_retries": "1"}),
    ],
    sensors=[
        *lake_session_sensors(minimum_interval_seconds=1),
        lake_backfill_sensor(minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING),
    ],
    resources={"io_manager": DeltaIOManager(lake=lake), "lake": lake},
    executor=lake_executor.configured({"in_process": {}}, name="one_process"),
)
