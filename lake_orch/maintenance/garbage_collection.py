"""Garbage collection of a lake, by this process or by Spark."""

from dataclasses import dataclass
from typing import Any

from lake_orch.dagster.spark_resource import SparkResource
from lake_orch.resources import LakeResource


@dataclass(frozen=True, slots=True)
class SparkCollector:
    """Spark for the garbage collection of a lake, if the lake is large."""

    spark: SparkResource
    above_commits: int
    """The number of commits that the lake retains from which Spark collects."""


def garbage_collection(lake: LakeResource, *, dry_run: bool, collector: SparkCollector | None = None) -> dict[str, Any]:
    """Delete objects that no branch, tag, session or retained commit of the lake reaches.

    Without a lake, collect each repository.
    """
    handle = lake.open()
    if collector is not None and len(handle.repository.refs().commit_ids()) >= collector.above_commits:
        from lake_core.spark import collect_lake

        result = collect_lake(collector.spark.session, handle, dry_run=dry_run)
    else:
        result = handle.maintenance.gc(dry_run=dry_run)
    return {
        "lake/reclaimed_files": len(result.keys),
        "lake/reclaimed_bytes": result.bytes,
        "lake/forgotten_commits": result.commits,
    }
