"""Reads a Delta table as a DataFrame. The driver selects files by the log, and executors read the rows.

If Hadoop can open the files (local ones), Spark's own Parquet scan reads them. Otherwise a Python data source does.
Partition values always come from the log, never from a path.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lake_core.delta import DeltaTable
from lake_core.delta.data_file_reader import data_file_missing
from lake_core.delta.path import locate_all
from lake_core.delta.scan import Scan, plan_read
from lake_core.delta.schema import schema_to_json
from lake_core.delta.skipping import partition_table
from lake_core.expression import quote_identifier
from lake_core.expression.spark_sql import literal
from lake_core.spark.predicate import filtered
from lake_core.spark.source import read_with_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.delta.commit_time import Instant
    from lake_core.delta.table_view import Location

_MANY_PARTITIONS = 16
"""Up to this number, a union with one scan for each partition is planned faster than a join on the file's name.

It also prunes better.
"""

_STRICT = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Files that name no version of Spark follow the calendar of the format.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""These options override the session's settings: a file that cannot be read is an error, and rows are never missing."""

_GLOB = re.compile(r"([\[\]{}*?\\])")
_UNREADABLE = re.compile(r":|(?:^|/)[_.][^/]*$")
_URI_QUOTED = re.compile(
    r"[^A-Za-z0-9;/@&=+$,:_\-!.~'()*\u0080-\U0010ffff]|[\u0080-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
)
"""The characters that Java's URIs quote in a path: ASCII except those listed, and spaces and controls beyond ASCII."""


def read_delta(
    spark: SparkSession,
    table: DeltaTable | str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    timestamp: Instant | None = None,
    allowed_roots: Sequence[Location] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the rows of a table at one version as a DataFrame. The version is fixed now: later commits are not read.

    If a file is deleted before Spark reads it, the job fails.

    Args:
        spark: The session.
        table: A handle, or the URL of a table.
        columns: The columns to read.
        where: A predicate in Spark SQL that selects rows. A timestamp without a zone is UTC.
        version: As in `DeltaTable.open`.
        timestamp: As in `DeltaTable.open`.
        allowed_roots: As in `DeltaTable.open`. They are added to the roots of a handle.
        storage_options: As in `DeltaTable.open`.

    Raises:
        SchemaMismatch: The table lacks one of the columns.
        InvalidExpression: `where` is not valid.
        DataFileMissing: A file is already missing.
        DeltaError: See `DeltaTable.open`.
    """
    if not isinstance(table, DeltaTable):
        opened = DeltaTable.open(
            table, version=version, timestamp=timestamp, allowed_roots=allowed_roots, storage_options=storage_options
        )
    elif timestamp is not None or version not in (None, table.version) or allowed_roots:
        roots = [*table.snapshot.allowed_roots, *allowed_roots]
        at = table.version if version is None and timestamp is None else version
        opened = DeltaTable.open(
            table.store, version=at, timestamp=timestamp, allowed_roots=roots, storage_options=storage_options
        )
    else:
        opened = table
    scan = plan_read(opened.snapshot, columns, where)
    frame = _read_files(spark, scan)
    if scan.predicate is not None:
        frame = filtered(frame, scan.predicate)
    return frame.select(*map(quote_identifier, scan.schema.names))


def _read_files(spark: SparkSession, scan: Scan) -> DataFrame:
    spark_schema = T.StructType.fromJson(json.loads(scan.snapshot.metadata.schema_string))
    schema = T.StructType([spark_schema[name] for name in scan.read_schema.names])
    keys, elsewhere = locate_all(scan.files["path"], scan.snapshot.roots)
    if not keys:
        return spark.createDataFrame([], schema)
    urls = [elsewhere.get(row, scan.snapshot.store).url(key) for row, key in enumerate(keys)]
    hadoop_reads = all(url.startswith("file://") for url in urls) and not any(_UNREADABLE.search(key) for key in keys)
    # A session with case-sensitive names would read null if a file spells a column differently from the table. Hadoop's
    # configuration passes the schema to the scan, and replaces `${…}` in it, so such columns would be null, too.
    deleted = "deletionVector" in scan.files.column_names and scan.files["deletionVector"].null_count < len(scan.files)
    exact_names = spark.conf.get("spark.sql.caseSensitive") == "true"
    if (
        not hadoop_reads
        or deleted
        or exact_names
        or "${" in schema.json()
        or scan.snapshot.metadata.column_mapping.mode == "id"
    ):
        return read_with_source(spark, scan, schema)
    return _native(spark, scan, [url.removeprefix("file://") for url in urls], schema)


def _native(spark: SparkSession, scan: Scan, paths: Sequence[str], schema: T.StructType) -> DataFrame:
    partition_columns = [name for name in scan.snapshot.partition_columns if name in scan.read_schema.names]
    data = T.StructType([child for child in schema if child.name not in partition_columns])
    physical = scan.snapshot.metadata.column_mapping.physical_schema(data.names)
    named = T.StructType.fromJson(json.loads(schema_to_json(physical)))

    def files(chosen: Sequence[str]) -> DataFrame:
        try:
            frame = (
                spark.read.options(**_STRICT)
                .schema(named)
                .parquet(*("file://" + _GLOB.sub(r"\\\1", path) for path in chosen))
            )
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise data_file_missing(scan.snapshot.version, str(error).splitlines()[0]) from error
        return frame if named == data else _renamed(frame, named, data)

    if not partition_columns:
        return files(paths)
    values = partition_table(scan.files, scan.snapshot.metadata, partition_columns)
    groups = values.append_column("\x00row", pa.array(range(len(values)), pa.int64()))
    distinct = groups.group_by(partition_columns).aggregate([("\x00row", "list")])
    if len(distinct) <= _MANY_PARTITIONS:
        branches = []
        for group in range(len(distinct)):
            rows = distinct["\x00row_list"][group].as_py()
            branch = files([paths[row] for row in rows])
            for name in partition_columns:
                branch = branch.withColumn(name, _partition_value(distinct[name][group]).cast(schema[name].dataType))
            branches.append(branch.select(*map(quote_identifier, schema.names)))
        return reduce(DataFrame.unionAll, branches)
    return _joined(spark, files(paths), values, paths, partition_columns, schema)


def _renamed(frame: DataFrame, physical: T.StructType, logical: T.StructType) -> DataFrame:
    """Rename the columns to the table's names. Nested columns are cast, which matches their fields by position."""
    columns = []
    for old, new in zip(physical, logical, strict=True):
        column = F.col(quote_identifier(old.name))
        columns.append((column if old.dataType == new.dataType else column.cast(new.dataType)).alias(new.name))
    return frame.select(*columns, frame.metadataColumn("_metadata").alias("_metadata"))


def _joined(
    spark: SparkSession,
    frame: DataFrame,
    values: pa.Table,
    paths: Sequence[str],
    partition_columns: Sequence[str],
    schema: T.StructType,
) -> DataFrame:
    # Spark writes a local file's URI with one slash or with three, so the table has both. A file that matches neither
    # is an error, not null.
    names = [f"{prefix}{_URI_QUOTED.sub(_percent, path)}" for prefix in ("file:", "file://") for path in paths]
    # No column of the table has a name with this prefix.
    column_prefix = f"lake_{uuid.uuid4().hex}"
    lookup = pa.table({f"{column_prefix}_file": names, f"{column_prefix}_hit": pa.repeat(True, len(names))})
    renamed = {f"{column_prefix}_{index}": name for index, name in enumerate(partition_columns)}
    for short, name in renamed.items():
        lookup = lookup.append_column(
            short, pa.chunked_array([*values[name].chunks, *values[name].chunks], values[name].type)
        )
    keyed = frame.withColumn(f"{column_prefix}_path", frame.metadataColumn("_metadata").getField("file_path"))
    joined = keyed.join(
        F.broadcast(spark.createDataFrame(lookup)),
        F.col(f"{column_prefix}_path") == F.col(f"{column_prefix}_file"),
        "left",
    )
    no_values = F.raise_error(F.concat(F.lit("no partition values for the data file "), F.col(f"{column_prefix}_path")))
    for short, name in renamed.items():
        kind = schema[name].dataType
        joined = joined.withColumn(
            name, F.when(F.col(f"{column_prefix}_hit"), F.col(short)).otherwise(no_values.cast(kind)).cast(kind)
        )
    return joined.select(*map(quote_identifier, schema.names))


def _partition_value(scalar: pa.Scalar) -> Column:
    value = scalar.as_py()
    # Spark would convert Python's dates and datetimes by the session's zone and the Julian calendar.
    if isinstance(value, dt.date):
        return F.expr(literal(scalar))
    return F.lit(bytearray(value) if isinstance(value, bytes) else value)


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())
