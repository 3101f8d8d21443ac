"""Checks that Spark's executors have the packages that an array needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.spark.arrays.chunk_codec import check_zarr
from lake_core.spark.errors import MissingPackage
from lake_core.spark.executor import batch_function, our_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def check_executors(spark: SparkSession, path: str) -> None:
    """Raise MissingPackage if an executor cannot use Zarr. Call this for an array whose codecs need Zarr."""
    with our_errors():
        rows = spark.range(1).mapInArrow(batch_function(_obstacles), "obstacle string").toArrow()
    for obstacle in rows["obstacle"].to_pylist():
        if obstacle is not None:
            raise MissingPackage(
                f"Spark's executors need the package zarr (3 or newer) for the codecs of {path}, and one cannot "
                f"use it: {obstacle}. Install it there, or create the array without shards and filters, and with "
                "the compressor zstd, gzip or none"
            )


def _obstacles(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_arrays([pa.array([check_zarr()], pa.string())], names=["obstacle"])
