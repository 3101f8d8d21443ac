"""Maintenance of pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lake_core.pool.errors import DeleteConflict
from lake_orch.assets.maintenance import (
    HealthCheck,
    Maintenance,
    TaskContext,
    at_most,
    check_least,
    retention_of,
    rewrite_dataset,
)
from lake_orch.assets.pools.settings import POOL_COMMIT
from lake_pipes.metadata import COMMIT

if TYPE_CHECKING:
    from lake_core.pool import Pool

_RETENTION = "8 days"
"""It is longer than any load takes, because nothing protects the objects of a running load."""


@dataclass(frozen=True, slots=True)
class PoolHealth:
    """The health of a pool at the last commit of main."""

    commit: str
    objects: int
    records: int
    bytes: int
    """The size of the data objects."""
    mergeable_objects: int
    """Data objects that could be merged: those that overlap, and small neighbors."""


def pool_health(pool: Pool) -> PoolHealth:
    """Measure a pool. Raises the errors of reading its last commit."""
    from lake_core.pool.compact import runs_to_compact

    objects = pool.objects()
    runs = runs_to_compact(objects, pool.config, datetime.now(UTC), timedelta(0))
    return PoolHealth(
        commit=pool.tip(),
        objects=len(objects),
        records=sum(each.count for each in objects),
        bytes=sum(each.size for each in objects),
        mergeable_objects=sum(map(len, runs)),
    )


def _pool(context: TaskContext) -> Pool:
    pool: Pool = context.dataset()
    return pool


def pool_compaction(context: TaskContext) -> dict[str, Any]:
    """Merge data objects that overlap or are small, if there are many.

    Readers open every data object that may hold their keys.
    """
    before = pool_health(_pool(context))
    due = before.mergeable_objects >= context.target.max_mergeable_objects
    if context.config.dry_run or not due:
        return {**_objects(before), "lake/due": due}
    message = f"Compact {context.target.path}"
    _, commit = rewrite_dataset(context, message, lambda pool: pool.compact(message=message), DeleteConflict)
    after = _objects(pool_health(_pool(context)))
    return {**after, "lake/files_before": before.objects, "lake/due": due} | ({COMMIT: commit} if commit else {})


def pool_vacuum(context: TaskContext) -> dict[str, Any]:
    """Delete data objects and cached snapshots past the retention that no branch needs.

    In a lake this only ends the retention.
    """
    retention, dry_run = retention_of(context.target, _RETENTION), context.config.dry_run
    metadata: dict[str, Any] = {"lake/older_than": (datetime.now(UTC) - retention).isoformat(timespec="seconds")}
    if not context.lake.is_lake():
        result = _pool(context).vacuum(retention, dry_run=dry_run)
        snapshots = sum(key.endswith(".snap.zng") for key in result.keys)
        counts = {
            "lake/reclaimed_files": len(result.keys),
            "lake/reclaimed_bytes": result.bytes,
            "lake/reclaimed_snapshots": snapshots,
        }
        return {**metadata, **counts, "lake/due": bool(result.keys)}
    # This raises if the pool is missing, also in a dry run.
    _pool(context)
    if not dry_run:
        with context.lake.open().session(context.branch, message=f"Vacuum {context.target.path}") as session:
            session.pool(context.target.path).vacuum(retention)
    return metadata


def _objects(health: PoolHealth) -> dict[str, Any]:
    return {
        "lake/num_files": health.objects,
        "dagster/size_bytes": health.bytes,
        "lake/mergeable_objects": health.mergeable_objects,
        POOL_COMMIT: health.commit,
    }


def _measured(health: PoolHealth) -> Mapping[str, Any]:
    return {
        POOL_COMMIT: health.commit,
        "dagster/row_count": health.records,
        "dagster/size_bytes": health.bytes,
        "lake/num_files": health.objects,
        "lake/mergeable_objects": health.mergeable_objects,
    }


def _check(target: Any) -> None:
    retention_of(target, _RETENTION)
    check_least(target, "max_mergeable_objects", 2)


POOLS = Maintenance(
    datasets="pools",
    kind="zed",
    settings=frozenset({"retention", "max_mergeable_objects"}),
    tasks={"pool_compaction": pool_compaction, "pool_vacuum": pool_vacuum},
    default_tasks=("pool_compaction", "pool_vacuum"),
    measure=lambda pool, _: pool_health(pool),
    metadata=_measured,
    checks=(
        HealthCheck(
            "mergeable_objects",
            "run pool_compaction",
            lambda limits, _: (
                "Data objects that overlap, or small neighbors, which could be merged. "
                f"Warns above {limits.mergeable_objects:,}"
            ),
            at_most("mergeable_objects"),
        ),
    ),
    description="What the pool {path} needs, measured only from its last commit.",
    link="lake/pool",
    check=_check,
)
