"""Maintenance of lakes in Spark's executors.

Each function does what the method of `lake.maintenance` does in one process, with the same results. What changes the
lake's refs runs in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lake_core.lake.gc.remainder_task import RemainderTask
from lake_core.runner import run_in_turn
from lake_core.spark.runner import has_same_releases, run_in, run_installed_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta
    from os import PathLike

    from pyspark.sql import SparkSession

    from lake_core.graveler import Exported
    from lake_core.lake import Lake
    from lake_core.lake.gc.collect import Collection
    from lake_core.lake.gc.problem import Problem
    from lake_core.runner import Runner
    from lake_core.store import ObjectStore

T = TypeVar("T")


def verify_lake(
    spark: SparkSession,
    lake: Lake,
    *,
    hashes: bool = True,
    full: bool = False,
    progress: Callable[[str, int], None] | None = None,
) -> list[Problem]:
    """List the problems of a lake as `lake.maintenance.verify` does, reading content in the executors.

    There is one task for each thousand objects, or 256 MB, that are read, and for each 32 old states that are compared
    with the next. Executors without the driver's releases of this package and its formats compare none: the driver
    does. Executors without the packages cramjam and google-crc32c read all objects but the ranges of trees, which the
    driver then reads.

    Raises what it raises, and SparkJobFailed.
    """
    return lake.maintenance.verify(hashes=hashes, full=full, progress=progress, run=_runner(spark))


def collect_lake(
    spark: SparkSession,
    lake: Lake,
    *,
    dry_run: bool = False,
    history: timedelta | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Collection:
    """Collect garbage as `lake.maintenance.gc` does, comparing old states and deleting objects in the executors.

    There is one task for each 32 states that are compared with the next, and for each thousand objects to delete.
    Executors without the driver's releases of this package and its formats compare none: the driver does. The driver
    lists the lake's objects.

    Raises what it raises, and SparkJobFailed.
    """
    return lake.maintenance.gc(dry_run=dry_run, history=history, progress=progress, run=_runner(spark))


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


def _runner(spark: SparkSession) -> Runner:
    """Return a runner whose tasks that need the installed package run where it is."""
    by_value = run_in(spark)
    installed: list[Runner] = []

    def run(task: Callable[[int], T], count: int) -> Iterable[T]:
        needs_package = isinstance(task, RemainderTask)
        if not needs_package:
            return by_value(task, count)
        if not installed:
            installed.append(run_installed_in(spark) if has_same_releases(spark) else run_in_turn)
        return installed[0](task, count)

    return run
