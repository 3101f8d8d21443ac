"""Maintenance of lakes in Spark's executors.

Each function does what the method of `lake.maintenance` does in one process, with the same results. What changes the
lake's refs runs in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.spark.runner import run_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from pyspark.sql import SparkSession

    from lake_core.graveler import Exported
    from lake_core.lake import Lake
    from lake_core.lake.gc.problem import Problem
    from lake_core.store import ObjectStore


def verify_lake(
    spark: SparkSession,
    lake: Lake,
    *,
    hashes: bool = True,
    full: bool = False,
    progress: Callable[[str, int], None] | None = None,
) -> list[Problem]:
    """List the problems of a lake as `lake.maintenance.verify` does, reading content in the executors.

    There is one task for each thousand objects, or 256 MB, that are read. Executors without the packages cramjam and
    google-crc32c read all objects but the ranges of trees, which the driver then reads.

    Raises what it raises, and SparkJobFailed.
    """
    return lake.maintenance.verify(hashes=hashes, full=full, progress=progress, run=run_in(spark))


def export_lake(
    spark: SparkSession,
    lake: Lake,
    target: str | PathLike[str] | ObjectStore,
    *,
    history: bool = True,
    rename: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Exported:
    """Export a lake as `lake.maintenance.export` does, copying objects in the executors.

    There is one task for each 64 objects, or 256 MB, that are copied. The driver writes the trees and the commits.

    Raises what it raises, and SparkJobFailed.
    """
    return lake.maintenance.export(
        target,
        history=history,
        rename=rename,
        storage_options=storage_options,
        progress=progress,
        run=run_in(spark),
    )
