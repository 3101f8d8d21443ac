"""Maintenance of tables. No task breaks a reader of a retained version.

Data is rewritten by new commits, and only files past the retention are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lake_core.delta import DeltaTable
from lake_core.delta.health import TableHealth, table_health
from lake_core.delta.operations.vacuum import VacuumResult
from lake_core.delta.result import OperationResult
from lake_core.readable import readable_bytes
from lake_orch.assets.maintenance import Finding, HealthCheck, Maintenance, TaskContext, at_most, rewrite_dataset
from lake_orch.tags import VERSION
from lake_pipes.metadata import COMMIT


def _table(context: TaskContext) -> DeltaTable:
    table: DeltaTable = context.dataset()
    return table


def compaction(context: TaskContext) -> dict[str, Any]:
    """Merge small files, if they are a large enough part of the table."""
    return _rearranged(context, ())


def zorder(context: TaskContext) -> dict[str, Any]:
    """Sort the rows along a curve, so that filters on the columns skip files."""
    return _rearranged(context, context.target.zorder_by)


def _rearranged(context: TaskContext, zorder_by: Any) -> dict[str, Any]:
    before = table_health(_table(context), small_file=context.target.small_file)
    metadata: dict[str, Any] = {
        "lake/num_files": before.files,
        "dagster/size_bytes": before.bytes,
        "lake/small_files": before.small_files,
        "lake/small_file_ratio": before.small_file_ratio,
        VERSION: before.version,
    }
    # Which files of a clustered table are new, only its optimization finds out.
    due = bool(zorder_by) or before.is_clustered or before.small_file_ratio >= context.target.min_small_file_ratio
    metadata["lake/due"] = due
    if context.config.dry_run or not due or before.files == 0:
        return metadata
    message = f"Rearrange {context.target.path}"
    result, commit = rewrite_dataset(context, message, lambda table: _optimize(context, table, before.bytes, zorder_by))
    after = table_health(_table(context), small_file=context.target.small_file)
    metadata |= {
        "lake/num_files": after.files,
        "dagster/size_bytes": after.bytes,
        "lake/small_files": after.small_files,
        "lake/small_file_ratio": after.small_file_ratio,
        "lake/files_added": result.metrics.get("numAddedFiles", 0),
        "lake/files_removed": result.metrics.get("numRemovedFiles", 0),
        VERSION: after.version,
    }
    return metadata | ({COMMIT: commit} if commit else {})


def _optimize(context: TaskContext, table: DeltaTable, size: int, zorder_by: Any) -> OperationResult:
    where, target_size = context.config.where, context.target.target_size
    if context.spark is not None and size >= context.target.spark_above:
        from lake_core.spark import optimize_delta

        return optimize_delta(context.spark.session, table, where, target_size=target_size, zorder_by=zorder_by)
    return table.optimize(where, target_size=target_size, zorder_by=zorder_by)


def checkpoint(context: TaskContext) -> dict[str, Any]:
    """Write a checkpoint, if there are enough commits after the last one."""
    before = table_health(_table(context))
    due = before.uncheckpointed_commits >= context.target.max_uncheckpointed_commits
    metadata = {"lake/uncheckpointed_commits": before.uncheckpointed_commits, "lake/due": due, VERSION: before.version}
    if context.config.dry_run or not due:
        return metadata
    if context.spark is not None and before.files + before.tombstones >= context.target.spark_above_files:
        from lake_core.spark import checkpoint_delta

        checkpoint_delta(context.spark.session, _table(context))
    elif context.lake.is_lake():
        context.lake.open().maintenance.checkpoint(context.target.path, context.branch)
    else:
        _table(context).checkpoint()
    return metadata | {"lake/uncheckpointed_commits": table_health(_table(context)).uncheckpointed_commits}


def vacuum(context: TaskContext) -> dict[str, Any]:
    """Delete removed files past the retention.

    In a lake this only ends the retention: the lake's garbage collection deletes.
    """
    table, dry_run = _table(context), context.config.dry_run
    if not context.lake.is_lake():
        vacuumed = _vacuumed(context, table)
        reclaimed = {"lake/reclaimed_files": len(vacuumed.files), "lake/reclaimed_bytes": vacuumed.bytes or 0}
        return {**reclaimed, "lake/unknown_files": len(vacuumed.unknown), VERSION: table.version}
    before = table_health(table)
    metadata = {"lake/tombstones": before.tombstones, VERSION: before.version}
    if dry_run:
        return metadata
    with context.lake.open().session(context.branch, message=f"Vacuum {context.target.path}") as session:
        session.delta(context.target.path).vacuum(context.target.retention)
    return metadata


def _vacuumed(context: TaskContext, table: DeltaTable) -> VacuumResult:
    """Vacuum a table that is not in a lake, with Spark if it has many files."""
    retention, dry_run = context.target.retention, context.config.dry_run
    if context.spark is not None:
        health = table_health(table)
        if health.files + health.tombstones >= context.target.spark_above_files:
            from lake_core.spark import vacuum_delta

            return vacuum_delta(context.spark.session, table, retention, dry_run=dry_run)
    return table.vacuum(retention, dry_run=dry_run)


def log_cleanup(context: TaskContext) -> dict[str, Any]:
    """Delete log files that no retained version needs. A lake has none, because its history keeps them."""
    table = _table(context)
    before = table_health(table)
    deleted = [] if context.config.dry_run else table.clean_log()
    return {
        "lake/log_length": before.log_length - len(deleted),
        "lake/log_files_deleted": len(deleted),
        VERSION: before.version,
    }


def txn_expiry(context: TaskContext) -> dict[str, Any]:
    """Set how long the table keeps transaction identifiers. The next checkpoint drops older ones."""
    table, retention = _table(context), context.target.txn_retention
    metadata: dict[str, Any] = {"lake/markers": table_health(table).markers, VERSION: table.version}
    properties = {"delta.setTransactionRetentionDuration": f"interval {retention}"} if retention else {}
    if context.config.dry_run or not properties or properties.items() <= table.properties.items():
        return metadata
    if not context.lake.is_lake():
        table.set_properties(properties)
        return metadata | {VERSION: _table(context).version}
    message = f"Expire transaction identifiers of {context.target.path}"
    with context.lake.open().session(context.branch, message=message) as session:
        session.delta(context.target.path).set_properties(properties)
    return metadata | {VERSION: _table(context).version}


def _measured(health: TableHealth) -> Mapping[str, Any]:
    return {
        VERSION: health.version,
        "dagster/size_bytes": health.bytes,
        "lake/num_files": health.files,
        "lake/small_files": health.small_files,
        "lake/small_file_ratio": health.small_file_ratio,
        "lake/tombstones": health.tombstones,
        "lake/log_length": health.log_length,
        "lake/uncheckpointed_commits": health.uncheckpointed_commits,
        "lake/statistics_coverage": health.statistics_coverage,
    }


def _small_files(health: TableHealth, limits: Any) -> Finding:
    crowded = health.small_files >= limits.small_files and health.small_file_ratio > limits.small_file_ratio
    return Finding(not crowded, round(health.small_file_ratio, 4), limits.small_file_ratio)


def _coverage(health: TableHealth, limits: Any) -> Finding:
    coverage = round(health.statistics_coverage, 4)
    return Finding(coverage >= limits.statistics_coverage, coverage, limits.statistics_coverage)


TABLES = Maintenance(
    datasets="tables",
    kind="deltalake",
    settings=frozenset(
        {
            *("zorder_by", "target_size", "small_file", "min_small_file_ratio", "max_uncheckpointed_commits"),
            *("retention", "txn_retention", "spark_above", "spark_above_files"),
        }
    ),
    tasks={
        "compaction": compaction,
        "zorder": zorder,
        "checkpoint": checkpoint,
        "vacuum": vacuum,
        "log_cleanup": log_cleanup,
        "txn_expiry": txn_expiry,
    },
    default_tasks=("compaction", "checkpoint", "vacuum"),
    measure=lambda table, target: table_health(table, small_file=target.small_file),
    metadata=_measured,
    checks=(
        HealthCheck(
            "small_files",
            "run compaction",
            lambda limits, target: (
                f"The share of data files below {readable_bytes(target.small_file)} that could be merged. "
                f"Warns above {limits.small_file_ratio:.0%} of at least {limits.small_files} files"
            ),
            _small_files,
        ),
        HealthCheck(
            "tombstones",
            "set a shorter retention of removed files",
            lambda limits, _: f"Removed files that the log still lists. Warns above {limits.tombstones:,}",
            at_most("tombstones"),
        ),
        HealthCheck(
            "log_length",
            "run log_cleanup",
            lambda limits, _: f"Commits in the log. Warns above {limits.log_length:,}",
            at_most("log_length"),
        ),
        HealthCheck(
            "uncheckpointed_commits",
            "run checkpoint",
            lambda limits, _: (
                "Commits since the last checkpoint, which every reader replays. "
                f"Warns above {limits.uncheckpointed_commits:,}"
            ),
            at_most("uncheckpointed_commits"),
        ),
        HealthCheck(
            "statistics_coverage",
            "run compaction",
            lambda limits, _: (
                "The share of data files with statistics, by which filters skip files. "
                f"Warns below {limits.statistics_coverage:.0%}"
            ),
            _coverage,
        ),
    ),
    description="What the table {path} needs, measured only from its log.",
    link="lake/table",
    spark=True,
)
