"""Which Python types hold records of any shape, how each becomes values of a pool, and how a pool is loaded as each."""

from __future__ import annotations

import collections.abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lake_core.pool import Pool, Scan
from lake_core.pool.arrow.fuse import InexactInteger, widen_columns
from lake_core.pool.arrow.table import to_table
from lake_core.pool.chosen_shape import choose_shape
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import InvalidJson, InvalidType, InvalidValue
from lake_core.pool.fused_type import fused_without_unions
from lake_core.pool.key_range import KeyRange
from lake_core.pool.ndjson import read_ndjson
from lake_core.pool.rows import batches_of_rows
from lake_core.pool.types import Type
from lake_core.pool.value import Value
from lake_core.pool.value_batch import batches_of_values
from lake_orch.errors import InvalidDefinition, UnsupportedData
from lake_orch.pools.times import with_times
from lake_orch.spark.resource import SparkResource

_RETURNED = "an iterable of dicts, Arrow data, a pandas, polars or PySpark DataFrame, or lines of JSON as one text"
_LOADED = (
    "pyarrow.Table, pyarrow.RecordBatchReader, pandas.DataFrame, polars.DataFrame, pyspark.sql.DataFrame, "
    "collections.abc.Iterator, lake_core.pool.Scan, lake_core.pool.Pool"
)


def rows_of(value: Any, subject: str, times: Sequence[str] = ()) -> Any:
    """Return what an asset has returned as rows that a pool takes; what is lazy is read as they are.

    Args:
        value: What it has returned.
        subject: What errors call it.
        times: Fields whose texts become times, where they are such.

    Raises:
        UnsupportedData: The type is none of those that hold records.
    """
    if isinstance(value, Mapping):
        raise UnsupportedData(f"{subject} is one dict: return a list with the record in it")
    if isinstance(value, str):
        return with_times(read_ndjson(value.splitlines()), times)
    is_arrow = hasattr(value, "__arrow_c_stream__") or isinstance(value, pa.RecordBatch)
    if isinstance(value, bytes | pa.Schema) or not (isinstance(value, Iterable) or is_arrow):
        raise UnsupportedData(f"{subject} is a {_name(value)}: return {_RETURNED}")
    rows = value if is_arrow else _checked(value, subject)
    return with_times((value for batch in batches_of_rows(rows) for value in batch.values()), times) if times else rows


@contextmanager
def named_errors(subject: str) -> Iterator[None]:
    """Raise UnsupportedData for records that have no form as values. `subject`: what the error calls them."""
    try:
        yield
    except (InvalidValue, InvalidType, InvalidJson) as error:
        raise UnsupportedData(f"{subject} cannot be stored in a pool: {error}. Nothing was written") from None


def _checked(records: Iterable[Any], subject: str) -> Iterator[Any]:
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping | Value):
            raise UnsupportedData(f"record {number} of {subject} is a {_name(record)}: return {_RETURNED}")
        yield record


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


@dataclass(frozen=True, slots=True)
class PoolSlice:
    """What an input is to be loaded from."""

    pool: Pool
    objects: Sequence[DataObject]
    ranges: Sequence[KeyRange]
    """The ranges of keys that are asked for, which do not overlap."""
    columns: tuple[str, ...] | None = None
    shape: str | None = None
    values: Sequence[Value] = ()
    """Values that are asked for besides those of the data objects."""

    def scans(self) -> list[Scan]:
        """Return scans that together read the data objects."""
        return [Scan(self.pool.store, self.pool.config, self.objects, each) for each in self.ranges]

    def types(self) -> list[Type]:
        """Return the distinct types of what is asked for. Raises NoSuchShape, DamagedLake."""
        stored = dict.fromkeys(shape.type for scan in self.scans() for shape in scan.shapes())
        types = list(stored | dict.fromkeys(value.type for value in self.values))
        return types if self.shape is None else choose_shape(self.shape, types)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read from."""
        return not self.objects and not self.values

    def records(self) -> Iterator[Value]:
        """Yield what is asked for, value by value. Raises NoSuchShape, DamagedLake."""
        chosen = None if self.shape is None else set(self.types())
        for values in (*(scan.values() for scan in self.scans()), self.values):
            for value in values:
                if chosen is None or value.type in chosen:
                    yield value

    def table(self, subject: str) -> pa.Table:
        """Return what is asked for as one table. Raises InvalidDefinition, NoSuchShape, DamagedLake."""
        if self.is_empty:
            # Nothing has the columns of what there is.
            return (
                replace(self, objects=self.pool.objects()).table(subject).slice(0, 0)
                if self.pool.objects()
                else pa.table({})
            )
        types = self.types()
        rounded, exact = (
            fused_without_unions(types, round_integers=round_integers) for round_integers in (True, False)
        )
        try:
            table = self._table_of(rounded)
        except InexactInteger:
            table = self._table_of(exact)
        return self._selected(table, subject)

    def _table_of(self, type: Type) -> pa.Table:
        """Return what is asked for as values of a type that they widen to. Raises InexactInteger."""
        if self.shape is None and not self.values:
            return pa.concat_tables([scan.as_type(type).to_table() for scan in self.scans()])
        batches = (batch.columns() for batch in batches_of_values(self.records()))
        return to_table(type, [array for columns in batches for array in widen_columns(columns, type)])

    def _selected(self, table: pa.Table, subject: str) -> pa.Table:
        if self.columns is None:
            return table
        unknown = [name for name in self.columns if name not in table.column_names]
        if unknown:
            raise InvalidDefinition(
                f"{subject} asks for the column {unknown[0]!r}; there are {', '.join(table.column_names)}"
            )
        return table.select(list(self.columns))

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Yield what is asked for, each record with its own fields alone. Raises NoSuchShape, DamagedLake."""
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
    return {name: record[name] for name in names if name in record}


def load(part: PoolSlice, annotation: object, spark: SparkResource | None, subject: str) -> Any:
    """Load records as the type that a parameter is annotated with.

    Raises:
        UnsupportedData: The annotation is missing, or stands for none of the types.
        InvalidDefinition: A column is not there, or a resource is missing.
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
            return part.table(subject).to_pandas()
        if module.startswith("polars"):
            import polars as pl

            return pl.from_arrow(part.table(subject))
        if module.startswith("pyspark"):
            return _spark_frame(part, spark, subject)
    raise UnsupportedData(f"{subject} is annotated as {annotation!r}: annotate the parameter as one of {_LOADED}")


def _spark_frame(part: PoolSlice, spark: SparkResource | None, subject: str) -> Any:
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
