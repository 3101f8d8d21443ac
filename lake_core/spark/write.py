"""Writes a DataFrame to a Delta table. Executors write the files, and the driver commits them once.

Only files whose names reach the driver are committed. So a task that failed or ran twice leaves at most unreferenced
files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.action_fields import PARTITION_VALUES
from lake_core.delta.data_file import AddFile
from lake_core.delta.errors import DeltaError, InvalidTransaction, SchemaMismatch, TableAlreadyExists
from lake_core.delta.schema import schema_from_json
from lake_core.expression import parse_predicate
from lake_core.spark.executor import batch_function, named_error, our_errors
from lake_core.spark.runner import run_in
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql import types as T

    from lake_core.delta.operations.write import SchemaMode
    from lake_core.delta.row_writer import RowWriter

_COLLATIONS = "__COLLATIONS"
_NULLABLE = ("nullable", "containsNull", "valueContainsNull")

WriteMode: TypeAlias = Literal["append", "overwrite", "error"]

FILE_ROWS = (
    "path string, partitionValues map<string,string>, size bigint, modificationTime bigint, stats string, rows bigint, "
    "change boolean, "
    "error string"
)
"""The rows that executors report: a data or change file that they wrote, or an error about rows that were refused."""


def write_delta(
    df: DataFrame,
    table: DeltaTable | str,
    *,
    mode: WriteMode = "append",
    where: str | None = None,
    dynamic: bool = False,
    schema_mode: SchemaMode | None = None,
    partition_by: Sequence[str] = (),
    txn: Txn | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OperationResult:
    """Write a DataFrame's rows in one commit. The DataFrame is evaluated once.

    Args:
        df: The rows.
        table: A handle, or the URL of a table. A table that does not exist at a URL is created.
        mode: `append`, `overwrite`, or `error`. With `error`, the table must never have been written, except by a write
            with the same `txn`.
        where: The rows that an overwrite replaces, as Spark SQL. The default is all rows.
        dynamic: Let an overwrite replace only the partitions that get rows.
        schema_mode: As in `DeltaTable.append` and `DeltaTable.overwrite`.
        partition_by: The partition columns of a table that is created, or overwritten with the schema mode `overwrite`.
        txn: If the table already has this transaction identifier, nothing is written, and Spark runs no job.
        storage_options: The options to open the table with.

    Raises:
        TableAlreadyExists: The mode is `error`, and the table has been written.
        SparkJobFailed: The job failed. Nothing is visible.
        DeltaError: See `DeltaTable.append` and `DeltaTable.overwrite`.
    """
    if mode not in ("append", "overwrite", "error"):
        raise ValueError(f"mode must be 'append', 'overwrite' or 'error', not {mode!r}")
    if (where is not None or dynamic) and mode != "overwrite":
        raise ValueError("where and dynamic select what an overwrite replaces: pass them only with mode='overwrite'")
    schema = arrow_schema(df)
    target = target_table(table, schema, partition_by, storage_options, schema_mode=schema_mode, where=where, txn=txn)
    earlier = target.recorded(txn)
    if earlier is not None:
        return earlier
    if mode == "error" and not target.is_blank:
        raise TableAlreadyExists(
            f"a table exists at {target.store.url()}: use mode 'append' or 'overwrite' to write to it"
        )
    if mode == "overwrite":
        columns = (partition_by or None) if schema_mode == "overwrite" else None
        write = target.plan_overwrite(
            schema, where=where, dynamic=dynamic, schema_mode=schema_mode, partition_by=columns
        )
    else:
        write = target.plan_append(schema, schema_mode)
    adds, changes = write_files(df, write.writer)
    return target.commit(write.operation(adds, changes, run_in(df.sparkSession)), txn)


def arrow_schema(df: DataFrame) -> pa.Schema:
    """Return a DataFrame's schema in Arrow, with field metadata. All columns are nullable. Raises UnsupportedType.

    A column that is not nullable in this plan, such as `lit(1)`, may contain nulls in the next run.
    """
    return arrow_schema_of(df.schema)


def arrow_schema_of(schema: T.StructType) -> pa.Schema:
    """Return a Spark schema in Arrow, with field metadata. All columns are nullable. Raises UnsupportedType."""
    return schema_from_json(json.loads(schema.json(), object_hook=_relaxed)).to_arrow()


def _relaxed(body: dict[str, Any]) -> dict[str, Any]:
    # A collation changes how Spark compares texts, not the texts themselves. A table would need a feature for it.
    return {
        key: True if key in _NULLABLE and isinstance(value, bool) else value
        for key, value in body.items()
        if key != _COLLATIONS
    }


def target_table(
    table: DeltaTable | str,
    schema: pa.Schema,
    partition_by: Sequence[str],
    storage_options: Mapping[str, Any] | None,
    *,
    schema_mode: SchemaMode | None,
    where: str | None,
    txn: Txn | None,
) -> DeltaTable:
    """Return the table to write rows of a schema to. A table that does not exist at a URL is created.

    Raises the same errors as `write_delta`.
    """
    if isinstance(table, DeltaTable):
        target = table
    elif DeltaTable.exists(table, storage_options=storage_options):
        target = DeltaTable.open(table, storage_options=storage_options)
    else:
        # A created table is not deleted if the write fails, so everything that could be refused is checked first.
        check_txn(txn, InvalidTransaction)
        if where is not None:
            parse_predicate(where, schema)
        target = DeltaTable.create(
            table, schema, partition_by=partition_by, storage_options=storage_options, exist_ok=True
        )
    if partition_by and schema_mode != "overwrite" and tuple(partition_by) != target.metadata.partition_columns:
        raise SchemaMismatch(
            f"the table at {target.store.url()} is partitioned by {list(target.metadata.partition_columns)}, "
            f"not by {list(partition_by)}"
        )
    return target


def write_files(df: DataFrame, writer: RowWriter) -> tuple[list[AddFile], list[AddFile]]:
    """Write a DataFrame's rows in the executors. Return the data files and the change data files.

    Raises the errors of the writer, and SparkJobFailed.
    """
    # Plain names are needed, because `mapInArrow` resolves columns by name, and fails for dots and backticks.
    plain = df.toDF(*(f"c{index}" for index in range(len(df.columns))))
    files = collect_files(plain.mapInArrow(batch_function(write_partition(writer, df.columns)), FILE_ROWS))
    writer.claim(files[0], df.columns)
    return files


def write_partition(writer: RowWriter, names: Sequence[str]) -> Any:
    """Return a function that writes batches with these columns to files, and yields rows of `FILE_ROWS`."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            files = writer_of_task(writer).write(
                pa.Table.from_batches([batch]).rename_columns(list(names)) for batch in batches
            )
        except DeltaError as error:
            # If it were raised here, Spark would run the task three more times, and wrap the error in a JVM trace.
            yield file_rows([], [], f"{type(error).__name__}: {error}")
        else:
            yield file_rows(*files)

    return write


def writer_of_task(writer: RowWriter) -> RowWriter:
    """Return the writer of the task of Spark that calls this."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return writer if task is None else writer.of_task(task.partitionId())


def collect_files(df: DataFrame) -> tuple[list[AddFile], list[AddFile]]:
    """Collect the data files and change data files from the executors' rows of `FILE_ROWS`.

    Raises the error of this package that made the job fail, or SparkJobFailed.
    """
    with our_errors():
        rows = df.toArrow().to_pylist()
    return files_of(rows)


def files_of(rows: Iterable[Mapping[str, Any]]) -> tuple[list[AddFile], list[AddFile]]:
    """Return the data files and change data files from rows of `FILE_ROWS`. Raises the error that a row contains."""
    files: tuple[list[AddFile], list[AddFile]] = ([], [])
    for row in rows:
        if row["error"] is not None:
            name, _, message = row["error"].partition(": ")
            raise named_error(name, message)
        values = dict(row["partitionValues"])
        files[row["change"]].append(
            AddFile(row["path"], values, row["size"], row["modificationTime"], row["stats"], row["rows"])
        )
    return files


def file_rows(adds: Sequence[AddFile], changes: Sequence[AddFile], error: str | None = None) -> pa.RecordBatch:
    """Encode data files and change data files, or an error, as rows of `FILE_ROWS` to send to the driver."""
    files = [*adds, *changes] if error is None else [AddFile("", {}, 0, 0, "", 0)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([file.path for file in files], pa.string()),
            pa.array([list(file.partition_values.items()) for file in files], PARTITION_VALUES),
            pa.array([file.size for file in files], pa.int64()),
            pa.array([file.modification_time for file in files], pa.int64()),
            pa.array([file.stats for file in files], pa.string()),
            pa.array([file.rows for file in files], pa.int64()),
            pa.array([number >= len(adds) for number in range(len(files))], pa.bool_()),
            pa.array([error] * len(files), pa.string()),
        ],
        names=["path", "partitionValues", "size", "modificationTime", "stats", "rows", "change", "error"],
    )
