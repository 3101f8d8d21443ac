"""Rows into pools: executors sort them and write data objects, the driver commits these once.

A task that failed or ran twice leaves at most data objects that no commit names: only the rows that reach the driver
name objects.
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
from lake_core.pool.arrow.table import TYPE_KEY, struct_array
from lake_core.pool.errors import InvalidZson
from lake_core.pool.fused_type import without_unions
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
from lake_core.spark.executor import JOB_ERRORS, batch_function, named_error, raise_ours
from lake_core.spark.pools.columns import arrow_schema_of
from lake_core.spark.pools.read import open_pool
from lake_core.spark.write import arrow_schema

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lake_core.pool.config import PoolConfig
    from lake_core.store import ObjectStore

_SORTED_BYTES: Final = 64 << 20
"""How many bytes of values an executor sorts at once, at most: they take about three times as much memory."""
_WRITTEN: Final = "object binary, error string"
"""The rows that executors report: a data object that they wrote, or why they wrote none."""


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
    """Load rows into a pool, in one commit. Return None if there are no rows, or the branch has the `txn` already.

    Spark partitions the rows by ranges of keys, for which it evaluates the DataFrame twice. Executors sort them, and
    write data objects whose keys hardly overlap. Columns that `read_pool` has returned get their former Zed types.
    Other columns get the Zed types closest to theirs.

    Args:
        df: The rows, of classic Spark or of Connect.
        pool: A pool, or the location of its lake as `PoolLake.open` takes it.
        name: The pool's name, where a location is given.
        branch: The branch.
        author: Who loads.
        message: Why; by default, what was loaded.
        meta: Anything else to keep with the commit.
        txn: An application and the version of its write. Where the branch has that version or a later one already,
            Spark is not asked.
        storage_options: Those of the location.

    Raises:
        NotALake, NoSuchPool, NoSuchBranch: There is nothing to load into.
        InvalidColumns: The DataFrame lacks the pool's key, or has a column without a Zed type.
        InvalidValue: A value does not fit the Zed type of its column.
        WriteConflict: Other writers moved the branch first, each time.
        SparkJobFailed: The job failed. Nothing of it is visible, as after all of these errors.
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
    """Write rows as data objects of a pool, which its `add_objects` or `replace` commits.

    Args:
        df: The rows.
        pool: The pool.
        ranges: The ranges of keys that the rows may have.
        name: What errors call the rows.

    Raises:
        InvalidColumns: The DataFrame lacks the pool's key, or has a column without a Zed type.
        InvalidValue: A value does not fit the Zed type of its column.
        OutsideRange: A row has a key that is in none of the ranges.
        SparkJobFailed: The job failed.
    """
    type = _record_type(df)
    for path in pool.config.keys:
        _check_key(df.schema, path, pool)
    # Under plain names: `mapInArrow` resolves columns by name, and stumbles over dots and backticks.
    plain = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    keys = [_key_column(df.columns, path).asc_nulls_last() for path in pool.config.keys]
    writer = PoolObjectWriter(
        pool.store.data_root, pool.config, format_type(type), arrow_schema_of(type), tuple(ranges), name
    )
    written = (
        plain.repartitionByRange(*keys).sortWithinPartitions(*keys).mapInArrow(batch_function(writer.write), _WRITTEN)
    )
    try:
        rows = written.toArrow().to_pylist()
    except JOB_ERRORS as error:
        raise_ours(error)
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
    """Return the Zed type that `read_pool` noted for a column; None where there is none, or it holds a union."""
    text = (column.metadata or {}).get(TYPE_KEY.decode())
    try:
        type = parse_type(text) if isinstance(text, str) else None
    except InvalidZson:
        return None
    return type if type is not None and without_unions(type) == type else None


def _check_key(schema: T.StructType, path: tuple[str, ...], pool: Pool) -> None:
    """Raise InvalidColumns where a DataFrame lacks a pool's key, or Spark cannot sort by it."""
    type: T.DataType = schema
    for part in path:
        if not isinstance(type, T.StructType) or part not in type.names:
            raise InvalidColumns(
                f"the DataFrame lacks {'.'.join(path)!r}, the key by which the pool {pool.config.name!r} is sorted; "
                "its columns are "
                f"{', '.join(schema.names)}: add it, as null where there is none"
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
    """Its columns."""
    ranges: tuple[KeyRange, ...]
    """The ranges of keys that rows may have."""
    name: str
    """What errors call the rows."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of batches, and yield rows of `_WRITTEN`."""
        try:
            values = self._values(batches)
            for each in write_unsorted(
                self.store, self.config, values, lambda: new_ksuid(system_clock()), most_bytes=_SORTED_BYTES
            ):
                yield _written(each, None)
        except LakeError as error:
            # Raised here, it would be tried again three times, and arrive inside the JVM's trace.
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
