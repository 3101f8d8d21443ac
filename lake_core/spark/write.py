"""Writing a DataFrame into a Delta table: executors write the files, the driver commits them once.

A task that failed or ran twice leaves at most unreferenced files: only the rows that reach the driver name files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lake_core.delta import DeltaTable, WriteResult
from lake_core.delta.action_fields import PARTITION_VALUES
from lake_core.delta.data_file import AddFile
from lake_core.delta.errors import SchemaMismatch, TableAlreadyExists
from lake_core.delta.row_writer import RowWriter
from lake_core.delta.schema import schema_from_json
from lake_core.delta.table import Txn, check_transaction, partition_predicate
from lake_core.spark.executor import batch_function, lake_error

Mode: TypeAlias = Literal["append", "overwrite", "error"]

ADD_ROWS = "path string, partitionValues map<string,string>, size bigint, modificationTime bigint, stats string, rows bigint"


def write_delta(
    df: DataFrame,
    table: DeltaTable | str,
    *,
    mode: Mode = "append",
    where: str | None = None,
    partition_by: Sequence[str] = (),
    txn: Txn | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Write a DataFrame's rows in one commit; the DataFrame is evaluated once.

    `mode`: `append`; `overwrite` (all rows, or with `where` those of the matching partitions); `error` (the table must
    never have been written to, unless `txn` says that this very write did it). A table named by URL is created if absent, partitioned by
    `partition_by`. With `txn`, a version that was recorded before makes the call a no-op, and Spark is not asked at all.
    Raises what `DeltaTable.append` and `overwrite` raise, TableAlreadyExists, and SparkJobFailed.
    """
    if mode not in ("append", "overwrite", "error"):
        raise ValueError(f"mode is 'append', 'overwrite' or 'error', not {mode!r}")
    if where is not None and mode != "overwrite":
        raise ValueError("where says what an overwrite replaces: it goes with mode='overwrite'")
    schema = arrow_schema(df)
    target = _target(table, schema, partition_by, storage_options, where=where, txn=txn)
    earlier = target.recorded(txn)
    if earlier is not None:
        return earlier
    if mode == "error" and not target.is_blank:
        raise TableAlreadyExists(f"a table stands at {target.store.url()}. Use mode 'append' or 'overwrite' to write into it")
    return write_into(df, target, overwrite=mode == "overwrite", where=where, txn=txn)


def write_into(df: DataFrame, target: DeltaTable, *, overwrite: bool, where: str | None, txn: Txn | None) -> WriteResult:
    """Append to, or overwrite, a table as its handle shows it. The marker was looked up before."""
    predicate = None if where is None else partition_predicate(where, target.schema, target.metadata.partition_columns)
    operation = target.overwrite_operation(where, predicate) if overwrite else target.append_operation()
    writer = target.row_writer(operation)
    writer.check_fits(arrow_schema(df))
    return target.commit(operation, write_files(df, writer), txn)


def arrow_schema(df: DataFrame) -> pa.Schema:
    """A DataFrame's schema in Arrow, with nullability and field metadata. Raises UnsupportedType."""
    return schema_from_json(json.loads(df.schema.json())).to_arrow()


def _target(
    table: DeltaTable | str,
    schema: pa.Schema,
    partition_by: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    *,
    where: str | None,
    txn: Txn | None,
) -> DeltaTable:
    if isinstance(table, DeltaTable):
        target = table
    elif DeltaTable.exists(table, storage_options=storage_options):
        target = DeltaTable.open(table, storage_options=storage_options)
    else:
        # A table that is created stays: what would be refused later is refused before.
        check_transaction(txn)
        if where is not None:
            partition_predicate(where, schema, partition_by)
        target = DeltaTable.create(table, schema, partition_by=partition_by, storage_options=storage_options, exist_ok=True)
    if partition_by and tuple(partition_by) != target.metadata.partition_columns:
        raise SchemaMismatch(
            f"the table at {target.store.url()} is partitioned by {list(target.metadata.partition_columns)}, not by {list(partition_by)}"
        )
    return target


def write_files(df: DataFrame, writer: RowWriter) -> list[AddFile]:
    """Write a DataFrame's rows into data files, in the executors. Raises what the writer raises, and SparkJobFailed."""
    # Under plain names: `mapInArrow` resolves columns by name, and stumbles over dots and backticks.
    plain = df.toDF(*(f"c{index}" for index in range(len(df.columns))))
    result = plain.mapInArrow(batch_function(_write_partition(writer, df.columns)), ADD_ROWS)
    try:
        return add_files(result.toArrow())
    except PySparkException as error:
        raise lake_error(error) from error


def _write_partition(writer: RowWriter, names: Sequence[str]) -> Any:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield add_rows(writer.write(pa.Table.from_batches([batch]).rename_columns(list(names)) for batch in batches))

    return write


def add_rows(files: Sequence[AddFile]) -> pa.RecordBatch:
    """Data files as the rows of `ADD_ROWS`, on their way from an executor to the driver."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([add.path for add in files], pa.string()),
            pa.array([list(add.partition_values.items()) for add in files], PARTITION_VALUES),
            pa.array([add.size for add in files], pa.int64()),
            pa.array([add.modification_time for add in files], pa.int64()),
            pa.array([add.stats for add in files], pa.string()),
            pa.array([add.rows for add in files], pa.int64()),
        ],
        names=["path", "partitionValues", "size", "modificationTime", "stats", "rows"],
    )


def add_files(rows: pa.Table) -> list[AddFile]:
    """The data files that executors report."""
    return [
        AddFile(row["path"], dict(row["partitionValues"]), row["size"], row["modificationTime"], row["stats"], row["rows"])
        for row in rows.to_pylist()
    ]
