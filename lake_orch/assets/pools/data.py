"""Conversion of Python values to records of a pool, and loading of a pool by the annotation of a parameter."""

from __future__ import annotations

import collections.abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.pandas_frames import to_frame
from lake_core.pool import Pool, Scan
from lake_core.pool.arrow.fuse import InexactInteger, widen_columns
from lake_core.pool.arrow.table import to_table
from lake_core.pool.chosen_shape import choose_shape
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import InvalidJson, InvalidType, InvalidValue
from lake_core.pool.fused_type import fused_column_type
from lake_core.pool.key_range import KeyRange
from lake_core.pool.ndjson import lines_of_objects, read_ndjson
from lake_core.pool.rows import batches_of_rows
from lake_core.pool.types import Type
from lake_core.pool.value import Value
from lake_core.pool.value_batch import batches_of_values
from lake_orch.assets.pools.times import with_times
from lake_orch.assets.tables.data.handler import annotation_text
from lake_orch.assets.tables.rows import is_spark
from lake_orch.errors import InvalidDefinition, UnsupportedData

if TYPE_CHECKING:
    from lake_orch.assets.spark_source import SparkSource

_RETURNED = "an iterable of dicts, Arrow data, a pandas, polars or PySpark DataFrame, or lines of JSON as one text"
_LOADED = (
    "pyarrow.Table, pyarrow.RecordBatchReader, pandas.DataFrame, polars.DataFrame, pyspark.sql.DataFrame, "
    "collections.abc.Iterator, lake_core.pool.Scan, lake_core.pool.Pool"
)


def holds_records(value: object) -> bool:
    """Return whether a value is a list or a stream of records, and nothing else by its type."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(record, Mapping | Value) for record in value)
    return isinstance(value, collections.abc.Iterator)


def is_type_of_records(annotation: object) -> bool:
    """Return whether an annotated type is one of records alone. Columns of any type can be those of records."""
    return annotation in (collections.abc.Iterator, collections.abc.Iterable, Pool, Scan)


def rows_of(value: Any, subject: str, times: Sequence[str] = ()) -> Any:
    """Return the value of an asset as rows that a pool can store.

    A lazy value stays lazy: it is read while the rows are written.

    Args:
        value: The value that the asset returned.
        subject: The name of the value in errors.
        times: The fields whose texts are converted to times if they have the format of RFC 3339.

    Raises:
        UnsupportedData: The value, or one of its elements, is of a type that does not contain records.
    """
    if isinstance(value, Mapping):
        raise UnsupportedData(f"{subject} is one dict: return a list with the record in it")
    if isinstance(value, str):
        # `splitlines` would also split at other characters, which texts in JSON may contain.
        return with_times(read_ndjson(lines_of_objects(value.split("\n"))), times)
    is_arrow = hasattr(value, "__arrow_c_stream__") or isinstance(value, pa.RecordBatch)
    if isinstance(value, bytes | pa.Schema) or not (isinstance(value, Iterable) or is_arrow):
        raise UnsupportedData(f"{subject} is a {_name(value)}: return {_RETURNED}")
    rows = value if is_arrow else _checked(value, subject)
    return with_times((value for batch in batches_of_rows(rows) for value in batch.values()), times) if times else rows


def write_objects(
    value: Any, pool: Pool, ranges: Sequence[KeyRange], subject: str, times: Sequence[str] = ()
) -> list[DataObject]:
    """Store the value of an asset as data objects of a pool, in Spark's executors if it is a DataFrame of Spark.

    The caller commits them. Takes and raises what `rows_of` does, and OutsideRange for records outside the ranges.
    """
    if is_spark(value):
        from lake_core.spark.pools.write import write_pool_objects

        return write_pool_objects(value, pool, ranges, name=subject)
    with named_errors(subject):
        return pool.write_objects(rows_of(value, subject, times), ranges, name=subject)


@contextmanager
def named_errors(subject: str) -> Iterator[None]:
    """Raise UnsupportedData for records that cannot be stored in a pool.

    `subject` is the name of the records in the error.
    """
    try:
        yield
    except (InvalidValue, InvalidType, InvalidJson) as error:
        raise UnsupportedData(f"{subject} cannot be stored in a pool: {error}. Nothing was written") from None


def _checked(records: Iterable[Any], subject: str) -> Iterator[Any]:
    """Yield the records. Raises UnsupportedData for one that is neither a mapping nor a value of a pool."""
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping | Value):
            raise UnsupportedData(f"record {number} of {subject} is a {_name(record)}: return {_RETURNED}")
        yield record


def _name(value: object) -> str:
    """Return the name of a value's type, with its module."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@dataclass(frozen=True, slots=True)
class PoolSlice:
    """The part of a pool that an input loads."""

    pool: Pool
    objects: Sequence[DataObject]
    ranges: Sequence[KeyRange]
    """The ranges of keys to load. They do not overlap."""
    columns: tuple[str, ...] | None = None
    shape: str | None = None
    values: Sequence[Value] = ()
    """Values to load besides those of the data objects."""

    def scans(self) -> list[Scan]:
        """Return one scan of the data objects for each range of keys."""
        return [Scan(self.pool.store, self.pool.config, self.objects, each) for each in self.ranges]

    def types(self) -> list[Type]:
        """Return the distinct types of the values to load. Raises NoSuchShape, DamagedLake."""
        stored = dict.fromkeys(shape.type for scan in self.scans() for shape in scan.shapes())
        types = list(stored | dict.fromkeys(value.type for value in self.values))
        return types if self.shape is None else choose_shape(self.shape, types)

    @property
    def is_empty(self) -> bool:
        """Return whether there are neither data objects nor values to load."""
        return not self.objects and not self.values

    def records(self) -> Iterator[Value]:
        """Yield the values to load, one by one. Raises NoSuchShape, DamagedLake."""
        chosen = None if self.shape is None else set(self.types())
        for values in (*(scan.values() for scan in self.scans()), self.values):
            for value in values:
                if chosen is None or value.type in chosen:
                    yield value

    def table(self, subject: str) -> pa.Table:
        """Read the values into one table. Raises InvalidDefinition, NoSuchShape, DamagedLake."""
        if self.is_empty:
            # An empty table has the columns of the whole pool.
            return (
                replace(self, objects=self.pool.objects()).table(subject).slice(0, 0)
                if self.pool.objects()
                else pa.table({})
            )
        types = self.types()
        rounded, exact = (fused_column_type(types, round_integers=round_integers) for round_integers in (True, False))
        try:
            table = self._table_of(rounded)
        except InexactInteger:
            table = self._table_of(exact)
        return self._selected(table, subject)

    def _table_of(self, type: Type) -> pa.Table:
        """Read the values into a table of one type, to which all of them are widened. Raises InexactInteger."""
        if self.shape is None and not self.values:
            return pa.concat_tables([scan.as_type(type).to_table() for scan in self.scans()])
        batches = (batch.columns() for batch in batches_of_values(self.records()))
        return to_table(type, [array for columns in batches for array in widen_columns(columns, type)])

    def _selected(self, table: pa.Table, subject: str) -> pa.Table:
        """Return the table with only the chosen columns. Raises InvalidDefinition for a column that it lacks."""
        if self.columns is None:
            return table
        unknown = [name for name in self.columns if name not in table.column_names]
        if unknown:
            raise InvalidDefinition(
                f"{subject} asks for the column {unknown[0]!r}; the columns are {', '.join(table.column_names)}"
            )
        return table.select(list(self.columns))

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Yield the values as dicts, each with only its own fields. Raises NoSuchShape, DamagedLake."""
        for batch in batches_of_values(self.records()):
            rows: list[Any] = [None] * len(batch)
            for column in batch.columns():
                for row, record in zip(column.rows.tolist(), column.values.to_pylist(), strict=True):
                    rows[row] = record
            for record in rows:
                chosen = (
                    record if self.columns is None or not isinstance(record, Mapping) else _picked(record, self.columns)
                )
                yield chosen


def _picked(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a record with these names, without those that it lacks."""
    return {name: record[name] for name in names if name in record}


def load(part: PoolSlice, annotation: object, spark: SparkSource | None, subject: str) -> Any:
    """Load records as the type that a parameter is annotated with.

    Raises:
        UnsupportedData: The annotation is missing, or is not one of the types that can be loaded.
        InvalidDefinition: A column or a resource is missing.
        NoSuchShape: No record has the shape.
    """
    if annotation is pa.Table:
        return part.table(subject)
    if annotation is pa.RecordBatchReader:
        return part.table(subject).to_reader()
    if annotation in (collections.abc.Iterator, collections.abc.Iterable):
        return part.dicts()
    if annotation is Pool:
        return part.pool
    if annotation is Scan and len(part.ranges) == 1 and not part.values and part.shape is None:
        return part.scans()[0]
    module = getattr(annotation, "__module__", "")
    if getattr(annotation, "__name__", "") == "DataFrame":
        if module.startswith("pandas"):
            return to_frame(part.table(subject))
        if module.startswith("polars"):
            import polars as pl

            return pl.from_arrow(part.table(subject))
        if module.startswith("pyspark"):
            return _spark_frame(part, spark, subject)
    raise UnsupportedData(f"{subject} {annotation_text(annotation)}: annotate the parameter as one of {_LOADED}")


def _spark_frame(part: PoolSlice, spark: SparkSource | None, subject: str) -> Any:
    """Return a DataFrame of the values. It has no rows, but the columns of the whole pool, if there are none."""
    from lake_core.spark.pools.read import read_objects

    if spark is None:
        raise InvalidDefinition(
            f"{subject} is annotated as a DataFrame of Spark: give the PoolIOManager a SparkResource (spark=…)"
        )
    objects = part.pool.objects() if part.is_empty else part.objects
    frame = read_objects(spark.session, part.pool, objects, part.ranges, values=part.values, shape=part.shape)
    if part.is_empty:
        frame = frame.limit(0)
    return frame if part.columns is None else frame.select(*(f"`{name.replace('`', '``')}`" for name in part.columns))
