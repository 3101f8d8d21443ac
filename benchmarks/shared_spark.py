"""What a step costs: without Spark, with a JVM of its own, and with the server that the steps of an instance share."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from lake_orch import DeltaIOManager, LakeResource, SparkResource

_STEPS = 4
_KIND = "BENCHMARK_SPARK"
_ROOT = "BENCHMARK_LAKE"


def job() -> dg.JobDefinition:
    """Define a chain of steps in processes of their own; each reads a small table, and writes one."""
    kind = os.environ[_KIND]
    spark = SparkResource(shared=kind == "shared", master="local[2,3]", idle_timeout=60)
    lake = LakeResource(root=os.environ[_ROOT])
    return dg.Definitions(
        assets=[_first(), *(_step(number, kind) for number in range(1, _STEPS))],
        resources={"io_manager": DeltaIOManager(lake=lake, spark=spark)},
        jobs=[dg.define_asset_job("chain", executor_def=dg.multiprocess_executor)],
    ).resolve_job_def("chain")


def _first() -> dg.AssetsDefinition:
    @dg.asset(name="step0")
    def first() -> pa.Table:
        return pa.table({"id": list(range(1000))})

    return first


def _step(number: int, kind: str) -> dg.AssetsDefinition:
    loaded: Any = pa.Table
    if kind != "none":
        from pyspark.sql import DataFrame

        loaded = DataFrame

    def step(before: Any) -> Any:
        return before

    step.__annotations__ = {"before": loaded, "return": loaded}
    return dg.asset(name=f"step{number}", ins={"before": dg.AssetIn(f"step{number - 1}")})(step)


def measure(rounds: int) -> None:
    """Print the seconds that a run takes for each of its steps.

    With a shared server, the run that starts it is printed by itself.
    """
    for kind, name in (("none", "no Spark"), ("own", "a JVM for each step"), ("shared", "a shared server")):
        os.environ[_KIND] = kind
        with tempfile.TemporaryDirectory() as home, dg.DagsterInstance.local_temp(home) as instance:
            os.environ[_ROOT] = str(Path(home) / "lake")
            seconds = [_run(instance) for _ in range(rounds + 1)]
            later = sorted(seconds[1:])
            figures = f"{later[len(later) // 2] / _STEPS:.2f} s; the first run {seconds[0] / _STEPS:.2f} s"
            print(f"{f'a step, {name}':<48} {figures}", flush=True)
            if kind == "shared":
                from lake_orch.spark.connect_server import stop_servers

                stop_servers(Path(instance.storage_directory()) / "lake_spark_connect")


def _run(instance: dg.DagsterInstance) -> float:
    begin = time.perf_counter()
    dg.execute_job(dg.reconstructable(job), instance, raise_on_error=True)
    return time.perf_counter() - begin
