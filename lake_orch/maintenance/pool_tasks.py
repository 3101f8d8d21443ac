"""Maintenance tasks of pools."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lake_core.pool.errors import DeleteConflict
from lake_orch.assets.pools.settings import POOL_COMMIT
from lake_orch.maintenance.health import PoolHealth, pool_health
from lake_orch.maintenance.tasks import Task, TaskContext, rewrite_in_lake, until_undisturbed
from lake_pipes.metadata import COMMIT


def pool_compaction(context: TaskContext) -> dict[str, Any]:
    """Merge data objects that overlap or are small, if there are many.

    Readers open every data object that may hold their keys.
    """
    before = pool_health(context.pool())
    due = before.mergeable_objects >= context.target.max_mergeable_objects
    if context.config.dry_run or not due:
        return {**_objects(before), "lake/due": due}
    commit = _compact(context)
    after = _objects(pool_health(context.pool()))
    return {**after, "lake/files_before": before.objects, "lake/due": due} | ({COMMIT: commit} if commit else {})


def _compact(context: TaskContext) -> str | None:
    """Compact in a separate commit. Concurrent deletions take precedence."""
    message = f"Compact {context.target.path}"
    if context.lake.is_lake():
        _, commit = rewrite_in_lake(
            context, message, lambda session: session.pool(context.target.path).compact(message=message)
        )
        return commit
    until_undisturbed(lambda: context.pool().compact(message=message), DeleteConflict)
    return None


def pool_vacuum(context: TaskContext) -> dict[str, Any]:
    """Delete data objects and cached snapshots past the retention that no branch needs.

    In a lake this only ends the retention.
    """
    retention, dry_run = context.target.pool_retention, context.config.dry_run
    metadata: dict[str, Any] = {"lake/older_than": (datetime.now(UTC) - retention).isoformat(timespec="seconds")}
    if not context.lake.is_lake():
        result = context.pool().vacuum(retention, dry_run=dry_run)
        snapshots = sum(key.endswith(".snap.zng") for key in result.keys)
        counts = {
            "lake/reclaimed_files": len(result.keys),
            "lake/reclaimed_bytes": result.bytes,
            "lake/reclaimed_snapshots": snapshots,
        }
        return {**metadata, **counts, "lake/due": bool(result.keys)}
    # This raises if the pool is missing, also in a dry run.
    context.pool()
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


POOL_TASKS: Mapping[str, Task] = {"pool_compaction": pool_compaction, "pool_vacuum": pool_vacuum}
