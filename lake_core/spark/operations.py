"""Row operations and maintenance of Delta tables in Spark's executors.

They do what `DeltaTable` does in one process, for tables of any size. Plans, commits and results are the same;
executors read and write the data files, each a few at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.checkpoint_parts import PART_ROWS
from lake_core.delta.operations.delete import delete
from lake_core.delta.operations.optimize import optimize
from lake_core.delta.operations.update import update
from lake_core.spark.curve_sort import sort_in
from lake_core.spark.runner import run_in

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lake_core.delta.operation import Operation
    from lake_core.delta.operations.vacuum import Orphans, VacuumResult
    from lake_core.delta.parquet_options import WriterProperties
    from lake_core.delta.snapshot import Snapshot
    from lake_core.txn import Txn

Target: TypeAlias = DeltaTable | str


def delete_delta(
    spark: SparkSession,
    table: Target,
    where: str | None = None,
    *,
    deletion_vectors: bool | None = None,
    txn: Txn | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OperationResult:
    """Delete rows in the executors, as `DeltaTable.delete` does. Raises the same errors, and SparkJobFailed."""
    target = opened(table, storage_options)

    def plan(snapshot: Snapshot, now: int) -> Operation | None:
        return delete(snapshot, where, now, run_in(spark), deletion_vectors=deletion_vectors)

    return target.operate(plan, txn)


def update_delta(
    spark: SparkSession,
    table: Target,
    changes: Mapping[str, str],
    where: str | None = None,
    *,
    deletion_vectors: bool | None = None,
    txn: Txn | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OperationResult:
    """Update rows in the executors, as `DeltaTable.update` does. Raises the same errors, and SparkJobFailed."""
    target = opened(table, storage_options)

    def plan(snapshot: Snapshot, now: int) -> Operation | None:
        return update(snapshot, changes, where, now, run_in(spark), deletion_vectors=deletion_vectors)

    return target.operate(plan, txn)


def optimize_delta(
    spark: SparkSession,
    table: Target,
    where: str | None = None,
    *,
    target_size: int | None = None,
    zorder_by: Sequence[str] = (),
    purge: bool = False,
    full: bool = False,
    writer_properties: WriterProperties | None = None,
    txn: Txn | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OperationResult:
    """Compact files in the executors, as `DeltaTable.optimize` does.

    There is one task for each file that is written. Of a table that is sorted one task sorts a partition, unless it is
    written to more than four files: then tasks distribute the rows of its files over ranges of the curve, and others
    sort and write one range each.

    Raises the same errors as that method, and SparkJobFailed.
    """
    target = opened(table, storage_options)
    run = run_in(spark)

    def plan(snapshot: Any, now: int) -> Any:
        return optimize(
            snapshot,
            now,
            where=where,
            target_size=target_size,
            zorder_by=zorder_by,
            purge=purge,
            full=full,
            parquet=None if writer_properties is None else writer_properties.options(target.properties),
            run=run,
            sort_large=sort_in(spark),
        )

    return target.operate(plan, txn)


def vacuum_delta(
    spark: SparkSession,
    table: Target,
    retention: dt.timedelta | str | None = None,
    *,
    mode: Literal["full", "lite"] = "full",
    orphans: Orphans = "own",
    dry_run: bool = False,
    allow_unsafe: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> VacuumResult:
    """Delete files as `DeltaTable.vacuum` does, listing and deleting in the executors.

    There is one task for each 65,536 files that the log names, and for each thousand to delete. The files that the
    latest version needs are not sent to the driver.

    Raises the same errors as that method, and SparkJobFailed.
    """
    return opened(table, storage_options).vacuum(
        retention, mode=mode, orphans=orphans, dry_run=dry_run, allow_unsafe=allow_unsafe, run=run_in(spark)
    )


def checkpoint_delta(
    spark: SparkSession,
    table: Target,
    *,
    part_rows: int = PART_ROWS,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint as `DeltaTable.checkpoint` does, in parts that the executors write.

    There is one task for each `part_rows` (500,000) files and tombstones. Each reads the checkpoint before and the
    commits since, and keeps the files whose paths belong to its part: the driver holds none of them. A smaller table
    gets a single file. Readers use the parts only if all are there, so a job that fails changes nothing for them. The
    log is not cleaned. In a lake, the checkpoint is written to the folder of the table if the table is of the
    checked-out branch. Otherwise it is only for readers of the lake.

    Raises the same errors as that method, and SparkJobFailed. Of two jobs for one version at the same time, one raises
    CheckpointRace.
    """
    opened(table, storage_options).checkpoint(run=run_in(spark), part_rows=part_rows)


def convert_delta(
    spark: SparkSession,
    url: str,
    *,
    partition_by: pa.Schema | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DeltaTable:
    """Convert files as `DeltaTable.convert` does, and read them in the executors.

    Raises the same errors as that method, and SparkJobFailed.
    """
    return DeltaTable.convert(url, partition_by=partition_by, storage_options=storage_options, run=run_in(spark))


def opened(table: Target, storage_options: Mapping[str, Any] | None) -> DeltaTable:
    """Return the table itself, or open the one at a URL."""
    return table if isinstance(table, DeltaTable) else DeltaTable.open(table, storage_options=storage_options)
