"""Definitions for test_button_orders: a chain of assets by day, each of whose executions writes a number of its own."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, LakeResource, lake_executor

FOLDER = Path(os.environ["RERUN_FOLDER"])
lake = LakeResource(
    root=str(FOLDER / "lake"), backfills="gather" if os.environ["RERUN_BACKFILLS"] == "gather" else "publish"
)
BY_DAY: Any = {"partitions_def": dg.StaticPartitionsDefinition(["x", "y"]), "metadata": {"partition_expr": "day"}}


def execute(context: dg.AssetExecutionContext, upstream: pa.Table | None) -> pa.Table:
    """Note an execution, fail if a file says so, and return its row."""
    asset, day = context.asset_key.to_user_string(), context.partition_key
    read = None if upstream is None or not len(upstream) else max(upstream["number"].to_pylist())
    is_to_fail = (FOLDER / f"fail-{asset}-{day}").exists()
    with (FOLDER / "executions").open("a+") as file:
        file.seek(0)
        number = len(file.readlines()) + 1
        noted = {"number": number, "run": context.run_id, "asset": asset, "day": day, "read": read}
        file.write(json.dumps(noted | {"succeeded": not is_to_fail}) + "\n")
    if is_to_fail:
        raise RuntimeError("told to fail")
    return pa.table({"day": [day], "number": [number]})


@dg.asset(**BY_DAY)
def first(context: dg.AssetExecutionContext) -> pa.Table:
    return execute(context, None)


@dg.asset(**BY_DAY)
def second(context: dg.AssetExecutionContext, first: pa.Table) -> pa.Table:
    return execute(context, first)


@dg.asset(**BY_DAY)
def third(context: dg.AssetExecutionContext, second: pa.Table) -> pa.Table:
    return execute(context, second)


defs = dg.Definitions(
    assets=[first, second, third],
    resources={"io_manager": DeltaIOManager(lake=lake), "lake": lake},
    executor=lake_executor.configured({"in_process": {}}, name="one_process"),
)
