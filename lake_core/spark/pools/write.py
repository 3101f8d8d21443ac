"""Writes rows to pools. Executors sort them and write data objects, and the driver commits the objects once.

Only objects whose names reach the driver are committed. So a task that failed or ran twice leaves at most unreferenced
data objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lake_core.clock import system_clock
from lake_core.errors import LakeError
from lake_core.pool import Commit, DataObject, Pool
from lake_core.pool.arrow.arrow_type import inferred_type
from lake_core.pool.arrow.table import struct_array
from lake_core.pool.arrow.type_key import TYPE_KEY
from lake_core.pool.errors import InvalidZson
from lake_core.pool.fused_type import column_type
from lake_core.pool.key_range import KeyRange
from lake_core.pool.ksuid import new_ksuid
from lake_core.pool.metadata import Record
from lake_core.pool.object_sorter import write_unsorted
from lake_core.pool.replace import checked
from lake_core.pool.types import Field, RecordType, Type
from lake_core.pool.value_batch import ValueBatch
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.writer import encode_values
from lake_core.pool.zson.reader import parse_type
from lake_core.pool.zson.type_text import format_type
from lake_core.spark.errors import InvalidColumns
from lake_core.spark.executor import batch_function, named_error, our_errors
from lake_core.spark.pools.columns import arrow_schema_of
from lake_core.spark.pools.read import open_pool
from lake_core.spark.write import arrow_schema

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lake_core.pool.config import PoolConfig
    from lake_core.store import ObjectStore

_SORTED_BYTES: Final = 64 << 20
"""The most bytes of values that an executor sorts at once. They take about three times as much memory."""
_WRITTEN: Final = "object binary, error string"
"""The rows that executors report: a data object that they wrote, or an error."""


def load_pool(
    df: DataFrame,
    pool: Pool | str | os.PathLike[str] | ObjectStore,
    name: str | None = None,
    *,
    branch: str = "main",
    author: str = "",
    message: str = "",
    meta: Any = None,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Commit | None:
    """Load rows into a pool in one commit. Return None if there are no rows, or the branch already has the `txn`.

    Spark partitions the rows by ranges of keys, and evaluates the DataFrame twice for that. Executors sort them, and
    write data objects whose keys hardly overlap. Columns that `read_pool` returned keep their Zed types. Other columns
    get the Zed types closest to theirs.

    Args:
        df: The rows, of classic Spark or of Connect.
        pool: A pool, or the location of its lake as `PoolLake.open` takes it.
        name: The pool's name, if `pool` is a location.
        branch: The branch.
        author: The author of the commit.
        message: The message of the commit. The default describes the load.
        meta: Any other value to keep with the commit.
        txn: The id of an application and the version of its write. If the branch already has that version or a later
            one, no job is run.
        storage_options: The storage options of the location.

    Raises:
        NotALake, NoSuchPool, NoSuchBranch: The lake, pool or branch does not exist.
        InvalidColumns: The DataFrame lacks the pool's key, or has a column without a Zed type.
        InvalidValue: A value does not fit the Zed type of its column.
        WriteConflict: Other writers moved the branch first in every attempt.
        SparkJobFailed: The job failed. After this error, as after all others, nothing is visible.
    """
    opened = open_pool(pool, name, storage_options)
    opened.tip(branch)
    if txn is not None and opened.has_marker(txn, branch):
        return None
    objects = write_pool_objects(df, opened)
    return opened.add_objects(objects, branch, author=author, message=message, meta=meta, txn=txn) if objects else None


def write_pool_objects(
    df: DataFrame, pool: Pool, ranges: Sequence[KeyRange] = (KeyRange(),), *, name: str = "the DataFrame"
) -> list[DataObject]:
    """Write rows as data objects of a pool. Commit them with its `add_objects` or `replace`.

    Args:
        df: The rows.
        pool: The pool.
        ranges: The ranges of keys that the rows may have.
        name: The name of the rows in errors.

    Raises:
        InvalidColumns: The DataFrame lacks the pool's key, or has a column without a Zed type.
        InvalidValue: A value does not fit the Zed type of its column.
        OutsideRange: The key of a row is outside of all ranges.
        SparkJobFailed: The job failed.
    """
    type = _record_type(df)
    for path in pool.config.keys:
        _check_key(df.schema, path, pool)
    # Plain names are needed, because `mapInArrow` resolves columns by name, and fails for dots and backticks.
    plain = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    keys = [_key_column(df.columns, path).asc_nulls_last() for path in pool.config.keys]
    writer = PoolObjectWriter(
        pool.store.data_root, pool.config, format_type(type), arrow_schema_of(type), tuple(ranges), name
    )
    written = (
        plain.repartitionByRange(*keys).sortWithinPartitions(*keys).mapInArrow(batch_function(writer.write), _WRITTEN)
    )
    with our_errors():
        rows = written.toArrow().to_pylist()
    return list(_data_objects(rows))


def _record_type(df: DataFrame) -> RecordType:
    """Return the type of a DataFrame's rows. Raises InvalidColumns."""
    fields = []
    for column, arrow in zip(df.schema, arrow_schema(df), strict=True):
        stated = _stated_type(column)
        if (
            stated is not None
            and arrow_schema_of(RecordType((Field(column.name, stated),))).field(0).type == arrow.type
        ):
            fields.append(Field(column.name, stated))
            continue
        if pa.types.is_timestamp(arrow.type) and arrow.type.tz is None:
            raise InvalidColumns(
                f"the column {column.name!r} has timestamps without a time zone: cast it to timestamp first"
            )
        try:
            fields.append(Field(column.name, inferred_type(arrow.type)))
        except LakeError as error:
            raise InvalidColumns(f"the column {column.name!r} cannot be stored in a pool: {error}") from None
    return RecordType(tuple(fields))


def _stated_type(column: T.StructField) -> Type | None:
    """Return the Zed type that `read_pool` stored in a column's metadata.

    Return None if there is no type, or if it contains a union.
    """
    text = (column.metadata or {}).get(TYPE_KEY.decode())
    try:
        type = parse_type(text) if isinstance(text, str) else None
    except InvalidZson:
        return None
    return type if type is not None and column_type(type) == type else None


def _check_key(schema: T.StructType, path: tuple[str, ...], pool: Pool) -> None:
    """Raise InvalidColumns if a DataFrame lacks a pool's key, or Spark cannot sort by it."""
    type: T.DataType = schema
    for part in path:
        if not isinstance(type, T.StructType) or part not in type.names:
            raise InvalidColumns(
                f"the DataFrame lacks {'.'.join(path)!r}, the key by which the pool {pool.config.name!r} is sorted; "
                f"its columns are {', '.join(schema.names)}: add the key, with null for rows without one"
            )
        type = type[part].dataType
    if isinstance(type, T.MapType | T.VariantType):
        raise InvalidColumns(
            f"Spark cannot sort by {'.'.join(path)!r}, the key of the pool {pool.config.name!r}: it holds maps"
        )


def _key_column(names: list[str], path: tuple[str, ...]) -> Column:
    column = F.col(f"c{names.index(path[0])}")
    for part in path[1:]:
        column = column.getField(part)
    return column


def _data_objects(rows: Iterable[Mapping[str, Any]]) -> Iterator[DataObject]:
    for row in rows:
        if row["error"] is not None:
            error, _, message = row["error"].partition(": ")
            raise named_error(error, message)
        for value in read_values(bytes(row["object"])):
            yield DataObject.from_record(Record(value))


@dataclass(frozen=True, slots=True)
class PoolObjectWriter:
    """Writes data objects, in Spark's executors."""

    store: ObjectStore
    config: PoolConfig
    type: str
    """The type of the rows, as text."""
    schema: pa.Schema
    """The columns of the rows."""
    ranges: tuple[KeyRange, ...]
    """The ranges of keys that rows may have."""
    name: str
    """The name of the rows in errors."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of batches, and yield rows of `_WRITTEN`."""
        try:
            values = self._values(batches)
            for each in write_unsorted(
                self.store, self.config, values, lambda: new_ksuid(system_clock()), most_bytes=_SORTED_BYTES
            ):
                yield _written(each, None)
        except LakeError as error:
            # If it were raised here, Spark would run the task three more times, and wrap the error in a JVM trace.
            yield _written(None, f"{type(error).__name__}: {error}")

    def _values(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ValueBatch]:
        record, check = parse_type(self.type), checked(self.config, self.ranges, self.name)
        for batch in batches:
            columns = [column.cast(type) for column, type in zip(batch.columns, self.schema.types, strict=True)]
            yield check(ValueBatch.of_column(record, struct_array(self.schema.names, columns, batch.num_rows)))


def _written(data_object: DataObject | None, error: str | None) -> pa.RecordBatch:
    data = None if data_object is None else encode_values([data_object.to_value()])
    return pa.RecordBatch.from_arrays(
        [pa.array([data], pa.binary()), pa.array([error], pa.string())], names=["object", "error"]
    )
