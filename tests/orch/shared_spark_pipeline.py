"""Assets whose steps run in processes of their own, and share a Spark server."""

import os

import dagster as dg
import pyarrow as pa
from pyspark.sql import DataFrame

from lake_orch import DeltaIOManager, LakeResource, SparkResource

SPARK = SparkResource(
    shared=True,
    master="local[2,3]",
    idle_timeout=30,
    config={
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    },
)


def _note(spark: SparkResource, kind: str) -> dict[str, str]:
    from lake_orch.spark.connect_server import _leases

    return {"server": str(_leases[spark.session].folder), "kind": kind, "pid": str(os.getpid())}


@dg.asset
def numbers() -> pa.Table:
    import sys

    assert "pyspark.sql" not in sys.modules or sys.modules["pyspark.sql"].SparkSession.getActiveSession() is None
    return pa.table({"n": list(range(10))})


@dg.asset
def even(context: dg.AssetExecutionContext, numbers: DataFrame, spark: SparkResource) -> DataFrame:
    context.add_output_metadata(_note(spark, type(numbers).__module__))
    return numbers.where("n % 2 = 0")


@dg.asset
def odd(context: dg.AssetExecutionContext, numbers: DataFrame, spark: SparkResource) -> DataFrame:
    context.add_output_metadata(_note(spark, type(numbers).__module__))
    return numbers.where("n % 2 = 1")


def job() -> dg.JobDefinition:
    lake = LakeResource(root=os.environ["LAKE_ROOT"])
    defs = dg.Definitions(
        assets=[numbers, even, odd],
        resources={"lake": lake, "spark": SPARK, "io_manager": DeltaIOManager(lake=lake, spark=SPARK)},
        jobs=[dg.define_asset_job("all", executor_def=dg.multiprocess_executor)],
    )
    return defs.resolve_job_def("all")
