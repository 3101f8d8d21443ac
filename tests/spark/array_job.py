"""Arrays and pools in Spark's executors, for `test_lean_executors`: a part of `lean_job`, or a program over Connect."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xarray as xr

from lake_core.icechunk import Repository, RepositoryConfig
from lake_core.pool import PoolLake
from lake_core.spark import MissingPackage, load_pool, read_array, read_pool, session, write_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def main(folder: str) -> None:
    """Print the report of a session of Spark Connect as JSON."""
    spark = session(remote="local[2,3]", config=CONFIG)
    print(json.dumps(report_of(spark, folder)))
    spark.stop()


def report_of(spark: SparkSession, folder: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write and read arrays of several codecs and a pool, and return what came of it."""
    zeros = np.zeros((4, 3))
    dataset = xr.Dataset(dict.fromkeys(("plain", "packed", "sharded"), (("x", "y"), zeros)), {"y": ["a", "b", "c"]})
    dataset.plain.encoding = {"chunks": (2, 2), "compressors": None}
    dataset.packed.encoding = {"chunks": (2, 2), "dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}
    dataset.sharded.encoding = {"chunks": (1, 1), "shards": (2, 2)}
    plain_chunks = RepositoryConfig(inline_chunk_threshold_bytes=0)
    repository = Repository.create(folder, config=plain_chunks, storage_options=storage_options)
    first = repository.writable_session("main")
    dataset.to_zarr(first.store, consolidated=False)
    first.commit("zeros")
    chunks = len(list(repository.storage.list("chunks/")))

    writing = repository.writable_session("main")
    rows = spark.createDataFrame(pa.table({"x": [0, 3, 1], "y": ["a", "c", "b"], "v": [1.5, None, 2.0]}))
    report: dict[str, Any] = {"session": type(spark).__module__.split(".")[2]}
    try:
        write_array(rows, writing, "sharded", value="v")
    except MissingPackage as error:
        report["sharded"] = [str(error), len(list(repository.storage.list("chunks/"))) - chunks]
    for name in ("plain", "packed"):
        report[f"{name} chunks"] = write_array(rows, writing, name, value="v").chunks
    writing.commit("rows")
    read = read_array(spark, repository, variables=["plain", "packed"], where="y != 'c' AND round(x) < 2")
    report["rows"] = sorted(list(row.values()) for row in read.toArrow().to_pylist())
    report["xarray"] = (
        xr.open_zarr(repository.readonly_session("main").store, consolidated=False).packed.fillna(-9).values.tolist()
    )

    lake = PoolLake.create(f"{folder}-pools", storage_options=storage_options)
    lake.create_pool("source", key="k").load([{"k": number % 3, "v": number, "t": "x" * number} for number in range(6)])
    frame = read_pool(spark, lake.pool("source"), start=1)
    load_pool(frame.select("k", (frame.v + 0.5).alias("v")), lake.create_pool("target", key="k"), txn=("job", 1))
    report["pool"] = lake.pool("target").scan().to_zson().split()
    return report


if __name__ == "__main__":
    main(*sys.argv[1:])
