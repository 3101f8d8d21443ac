"""Definitions for test_kill: assets whose process kills itself with SIGKILL, once, at a given seam of a write.

Steps are children of a fork server, whose environment is that of its start: the test's folder comes with the job's
arguments, and what a test wants is in a file there.
"""

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from lake_core.store import ObjectStore
from lake_orch import DeltaIOManager, LakeResource, SparkResource

ROWS = 3
BATCHES = 3

_folder: Path


def plan() -> dict[str, str]:
    """Return the settings of the current test: `seam`, and `root` of the lake."""
    return json.loads((_folder / "plan.json").read_text())


def die_once(seam: str) -> None:
    """Kill this process, if the test asks for it at this seam and it has not happened yet."""
    died = Path(plan()["root"]) / "died"
    if plan()["seam"] == seam and not died.exists():
        died.parent.mkdir(parents=True, exist_ok=True)
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def arm() -> None:
    """Install the seams before and after the commit of rows in this process."""
    put: Callable[..., Any] = ObjectStore.put

    def put_between_seams(store: ObjectStore, key: str, data: bytes, **conditions: Any) -> Any:
        if "_delta_log/" not in key or b'"add"' not in bytes(data):
            return put(store, key, data, **conditions)
        die_once("before commit")
        written = put(store, key, data, **conditions)
        die_once("after commit")
        return written

    ObjectStore.put = put_between_seams  # type: ignore[method-assign]


def batch(number: int) -> pa.Table:
    return pa.table({"id": [f"{number}-{row}" for row in range(ROWS)]})


def by_io_manager(context: dg.AssetExecutionContext) -> pa.Table:
    arm()
    return batch(0)


def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
    arm()
    table = lake.table(context)
    for number in range(BATCHES):
        table.append(batch(number))
        if number == 1:
            die_once("between batches")
    return dg.MaterializeResult(metadata=table.metadata())


def by_spark(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    arm()
    return spark.session.createDataFrame(batch(0))


def by_spark_worker(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Kill a Python worker of Spark, not the step's process, half-way through its rows."""
    died = str(Path(plan()["root"]) / "died")

    def half(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 1)
            if not os.path.exists(died):
                open(died, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(1)

    half.__module__ = "__main__"  # the worker need not have the tests
    frame = spark.session.createDataFrame(batch(0))
    return frame.mapInArrow(half, frame.schema)


def asset(function: Callable[..., Any], name: str, retries: int) -> dg.AssetsDefinition:
    policy = dg.RetryPolicy(max_retries=retries) if retries else None
    return dg.asset(name=name, metadata={"lake/mode": "append"}, retry_policy=policy)(function)


assets = [
    asset(by_io_manager, "by_io_manager", retries=0),
    asset(by_io_manager, "by_io_manager_retried", retries=1),
    asset(by_hand, "by_hand", retries=0),
    asset(by_hand, "by_hand_retried", retries=1),
    asset(by_spark, "by_spark", retries=0),
    asset(by_spark_worker, "by_spark_worker", retries=0),
    asset(by_spark_worker, "by_spark_worker_retried", retries=1),
]


def definitions() -> dg.Definitions:
    lake = LakeResource(root=plan()["root"])
    spark = SparkResource(
        master="local[1]", config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    )
    return dg.Definitions(
        assets=assets,
        resources={"lake": lake, "spark": spark, "io_manager": DeltaIOManager(lake=lake, spark=spark)},
        jobs=[
            dg.define_asset_job(f"job_{assets_def.key.path[-1]}", dg.AssetSelection.assets(assets_def))
            for assets_def in assets
        ],
        executor=dg.multiprocess_executor.configured(
            {"start_method": {"forkserver": {"preload_modules": ["tests.orch.kill_pipeline", "pyarrow.parquet"]}}}
        ),
    )


def job(name: str, folder: str) -> dg.JobDefinition:
    """Return the job of one asset, in a process that serves the test of this folder."""
    global _folder
    _folder = Path(folder)
    return definitions().resolve_job_def(f"job_{name}")
