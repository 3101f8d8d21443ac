"""Maintenance tasks on a table, arrays or a lake. Each is a function that returns its results as numbers for plots.

No task breaks a reader of a retained version: data is rewritten by new commits, and only files past the retention are
deleted.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lake_core.delta import DeltaTable
from lake_core.delta.errors import TableNotFound
from lake_core.delta.operations.vacuum import VacuumResult
from lake_core.delta.result import OperationResult
from lake_core.lake.errors import Conflict
from lake_core.lake.session.write_session import WriteSession
from lake_orch.dagster.spark_resource import SparkResource
from lake_orch.maintenance.health import table_health
from lake_orch.maintenance.target import MaintenanceConfig, MaintenanceTarget
from lake_orch.resources import LakeResource
from lake_orch.tags import VERSION
from lake_pipes.metadata import COMMIT

if TYPE_CHECKING:
    from lake_core.icechunk import Repository
    from lake_core.pool import Pool

T = TypeVar("T")

_TRIES = 5
"""The most attempts to plan a rewrite again after a conflict with a concurrent writer."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The dataset that a task maintains, a table, a pool or arrays, with the configuration of the run."""

    lake: LakeResource
    target: MaintenanceTarget
    config: MaintenanceConfig
    branch: str
    """The branch that the run is based on."""
    spark: SparkResource | None = None

    def table(self) -> DeltaTable:
        """Open the table. Raises TableNotFound."""
        table = self.lake.find_table(self.target.path, ref=self.branch if self.lake.is_lake() else None)
        if table is None:
            raise TableNotFound(f"no table at {self.target.path!r} on branch {self.branch!r}: materialize it first")
        return table

    def repository(self) -> "Repository":
        """Open the repository of the arrays. Raises RepositoryNotFound."""
        return self.lake.read_repository(self.target.path, None, ref=self.branch if self.lake.is_lake() else None)

    def pool(self) -> "Pool":
        """Open the current state of the pool. Raises NoSuchPool."""
        return self.lake.read_pool(self.target.path, None, ref=self.branch if self.lake.is_lake() else None)


Task: TypeAlias = Callable[[TaskContext], dict[str, Any]]
"""A task on one table, repository or pool, which returns metadata.

It must obey `context.config.dry_run`. `"lake/due": False` means that there was nothing to do. Then no observation is
reported. Its docstring is shown in the UI. Add a new task to `TABLE_TASKS`, `ARRAY_TASKS` or `POOL_TASKS`: the assets,
schedules and components take their tasks from there.
"""


def compaction(context: TaskContext) -> dict[str, Any]:
    """Merge small files, if they are a large enough part of the table."""
    return _rearranged(context, ())


def zorder(context: TaskContext) -> dict[str, Any]:
    """Sort the rows along a curve, so that filters on the columns skip files."""
    return _rearranged(context, context.target.zorder_by)


def _rearranged(context: TaskContext, zorder_by: Any) -> dict[str, Any]:
    before = table_health(context.table(), small_file=context.target.small_file)
    metadata: dict[str, Any] = {
        "lake/num_files": before.files,
        "dagster/size_bytes": before.bytes,
        "lake/small_files": before.small_files,
        "lake/small_file_ratio": before.small_file_ratio,
        VERSION: before.version,
    }
    due = bool(zorder_by) or before.small_file_ratio >= context.target.min_small_file_ratio
    metadata["lake/due"] = due
    if context.config.dry_run or not due or before.files == 0:
        return metadata
    result, commit = _optimized(context, before.bytes, zorder_by)
    after = table_health(context.table(), small_file=context.target.small_file)
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


def _optimized(context: TaskContext, size: int, zorder_by: Any) -> tuple[OperationResult, str | None]:
    """Rewrite the table's files in a separate commit. Concurrent writers of the same files take precedence."""
    if not context.lake.is_lake():
        return _optimize(context, context.table(), size, zorder_by), None
    message = f"Rearrange {context.target.path}"
    return rewrite_in_lake(
        context, message, lambda session: _optimize(context, session.delta(context.target.path), size, zorder_by)
    )


def rewrite_in_lake(context: TaskContext, message: str, rewrite: Callable[[WriteSession], T]) -> tuple[T, str | None]:
    """Rewrite data of a lake in a separate commit. Concurrent writers of the same data take precedence.

    Args:
        context: The dataset to rewrite, and the branch.
        message: The message of the commit.
        rewrite: Rewrites the data in a session. It is called again after a conflict.

    Returns:
        The result of `rewrite`, and the id of the commit, or None if nothing changed.
    """
    lake = context.lake.open()

    def attempt() -> tuple[T, str | None]:
        with lake.session(context.branch, message=message, metadata={"dagster/task": "maintenance"}) as session:
            result = rewrite(session)
        return result, session.publish().commit

    return until_undisturbed(attempt, Conflict)


def until_undisturbed(attempt: Callable[[], T], conflict: type[Exception]) -> T:
    """Return the result of an attempt. After a conflict with a concurrent writer, try again, at most `_TRIES` times."""
    for _ in range(_TRIES - 1):
        with suppress(conflict):
            return attempt()
    return attempt()


def _optimize(context: TaskContext, table: DeltaTable, size: int, zorder_by: Any) -> OperationResult:
    where, target_size = context.config.where, context.target.target_size
    if context.spark is not None and size >= context.target.spark_above:
        from lake_core.spark import optimize_delta

        return optimize_delta(context.spark.session, table, where, target_size=target_size, zorder_by=zorder_by)
    return table.optimize(where, target_size=target_size, zorder_by=zorder_by)


def checkpoint(context: TaskContext) -> dict[str, Any]:
    """Write a checkpoint, if there are enough commits after the last one."""
    before = table_health(context.table())
    due = before.uncheckpointed_commits >= context.target.max_uncheckpointed_commits
    metadata = {"lake/uncheckpointed_commits": before.uncheckpointed_commits, "lake/due": due, VERSION: before.version}
    if context.config.dry_run or not due:
        return metadata
    if context.spark is not None and before.files + before.tombstones >= context.target.spark_above_files:
        from lake_core.spark import checkpoint_delta

        checkpoint_delta(context.spark.session, context.table())
    elif context.lake.is_lake():
        context.lake.open().maintenance.checkpoint(context.target.path, context.branch)
    else:
        context.table().checkpoint()
    return metadata | {"lake/uncheckpointed_commits": table_health(context.table()).uncheckpointed_commits}


def vacuum(context: TaskContext) -> dict[str, Any]:
    """Delete removed files past the retention.

    In a lake this only ends the retention: the lake's garbage collection deletes.
    """
    table, dry_run = context.table(), context.config.dry_run
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
    table = context.table()
    before = table_health(table)
    deleted = [] if context.config.dry_run else table.clean_log()
    return {
        "lake/log_length": before.log_length - len(deleted),
        "lake/log_files_deleted": len(deleted),
        VERSION: before.version,
    }


def txn_expiry(context: TaskContext) -> dict[str, Any]:
    """Set how long the table keeps transaction identifiers. The next checkpoint drops older ones."""
    table, retention = context.table(), context.target.txn_retention
    metadata: dict[str, Any] = {"lake/markers": table_health(table).markers, VERSION: table.version}
    properties = {"delta.setTransactionRetentionDuration": f"interval {retention}"} if retention else {}
    if context.config.dry_run or not properties or properties.items() <= table.properties.items():
        return metadata
    if not context.lake.is_lake():
        table.set_properties(properties)
        return metadata | {VERSION: context.table().version}
    message = f"Expire transaction identifiers of {context.target.path}"
    with context.lake.open().session(context.branch, message=message) as session:
        session.delta(context.target.path).set_properties(properties)
    return metadata | {VERSION: context.table().version}


TABLE_TASKS: Mapping[str, Task] = {
    "compaction": compaction,
    "zorder": zorder,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
    "log_cleanup": log_cleanup,
    "txn_expiry": txn_expiry,
}


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
