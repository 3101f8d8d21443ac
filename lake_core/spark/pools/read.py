"""Reads pools as rows. The driver divides the data objects into tasks, and executors read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lake_core.pool import DataObject, Pool, PoolLake
from lake_core.pool.arrow.fuse import InexactInteger, widen_columns
from lake_core.pool.chosen_shape import choose_shape
from lake_core.pool.fused_type import fused_column_type
from lake_core.pool.key_range import KeyRange
from lake_core.pool.zng.writer import encode_values
from lake_core.pool.zson.reader import parse_type
from lake_core.pool.zson.type_text import format_type
from lake_core.spark.executor import BatchFunction, batch_function
from lake_core.spark.pools.columns import arrow_schema_of, spark_schema_of, to_batch
from lake_core.spark.pools.parts import EncodedPart, Part, plan_tasks
from lake_core.spark.runner import run_in

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lake_core.pool.arrow.columns import Column
    from lake_core.pool.types import Type
    from lake_core.pool.value import Value
    from lake_core.store import ObjectStore

_BYTES_PER_TASK: Final = 32 << 20
"""About how many bytes of data objects a task reads. As rows, they take several times as much memory."""


def read_pool(
    spark: SparkSession,
    pool: Pool | str | os.PathLike[str] | ObjectStore,
    name: str | None = None,
    *,
    branch: str = "main",
    commit: str | None = None,
    start: Any = None,
    stop: Any = None,
    shape: str | None = None,
    truncate_times: bool = False,
    storage_options: Mapping[str, object] | None = None,
) -> DataFrame:
    """Return the records of a pool as rows of one schema. The state to read is fixed now: later commits are not read.

    Fields that a record lacks are null. If a field has several types, the column has their common type, or else JSON
    text. A first job of Spark finds the types. The rows have no order. Each task reads a range of keys of its own, if
    the pool's data objects allow it.

    Args:
        spark: A session, classic or of Connect.
        pool: A pool, or the location of its lake as `PoolLake.open` takes it.
        name: The pool's name, if `pool` is a location.
        branch: The branch.
        commit: The id of a commit, to read an earlier state.
        start: The smallest key to read. See `Pool.scan`.
        stop: The key to stop before.
        shape: The only type of records to read: its name, or a text such as `{ts:time,level:string}`.
        truncate_times: Truncate times to microseconds. Otherwise a time with nanoseconds is an error.
        storage_options: The storage options of the location.

    Raises:
        NotALake, NoSuchPool, NoSuchBranch, NoSuchCommit: The lake, pool, branch or commit does not exist.
        NoSuchShape: No record has the shape.
        InvalidColumns: The names of fields differ only in case.
        InvalidValue: A bound is not a key.
        DamagedLake: A commit cannot be read.
        SparkJobFailed: A data object cannot be read.
    """
    opened = open_pool(pool, name, storage_options)
    key_range = KeyRange.of(start, stop)
    objects = opened.scan(branch, commit, start=key_range.start, stop=key_range.stop).objects
    return read_objects(spark, opened, objects, [key_range], shape=shape, truncate_times=truncate_times)


def read_objects(
    spark: SparkSession,
    pool: Pool,
    objects: Sequence[DataObject],
    ranges: Sequence[KeyRange],
    *,
    values: Sequence[Value] = (),
    shape: str | None = None,
    truncate_times: bool = False,
) -> DataFrame:
    """Return the records of data objects as rows of one schema, as `read_pool` does.

    Args:
        spark: A session, classic or of Connect.
        pool: The pool.
        objects: Data objects of the pool.
        ranges: The ranges of keys to read. They do not overlap.
        values: More values to return as rows.
        shape: As in `read_pool`.
        truncate_times: As in `read_pool`.

    Raises:
        NoSuchShape: No record has the shape.
        InvalidColumns: The names of fields differ only in case.
        SparkJobFailed: A data object cannot be read.
    """
    store = pool.store.data_root
    tasks: list[Sequence[Part]] = []
    for each in ranges:
        overlapping = [one for one in objects if one.count and each.overlaps(one.min, one.max)]
        tasks += plan_tasks(store, pool.config, overlapping, each, _BYTES_PER_TASK)
    if values:
        tasks.append([EncodedPart(encode_values(values))])
    rows = PoolRows(tuple(map(tuple, tasks)))
    types = _types(spark, rows)
    if shape is not None:
        types = choose_shape(shape, types)
        rows = PoolRows(rows.tasks, tuple(map(format_type, types)))
    common = _common_type(spark, rows, types)
    schema = spark_schema_of(common)
    if not rows.tasks:
        return spark.createDataFrame([], schema)
    reader = rows.reader(common, arrow_schema_of(common), truncate_times=truncate_times)
    return _numbers(spark, len(rows.tasks)).mapInArrow(batch_function(reader), schema)


def open_pool(
    pool: Pool | str | os.PathLike[str] | ObjectStore, name: str | None, storage_options: Mapping[str, object] | None
) -> Pool:
    """Return the pool itself, or open the pool with this name in the lake at a location.

    Raises NotALake, NoSuchPool.
    """
    if isinstance(pool, Pool):
        return pool
    if name is None:
        raise ValueError("a location can hold several pools: pass the name of one, or pass a Pool")
    return PoolLake.open(pool, storage_options=storage_options).pool(name)


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return the numbers of tasks, one in each partition. `range` distributes them in order."""
    return spark.range(0, count, 1, count)


def _types(spark: SparkSession, rows: PoolRows) -> list[Type]:
    """Return the distinct types of the values. Executors find them. Raises SparkJobFailed."""
    texts = dict.fromkeys(text for texts in run_in(spark)(rows.types_of_task, len(rows.tasks)) for text in texts)
    return [parse_type(text) for text in texts]


def _common_type(spark: SparkSession, rows: PoolRows, types: Sequence[Type]) -> Type:
    """Return the type that types are fused into. Types without a common one become JSON text.

    Raises SparkJobFailed.
    """
    rounded, exact = (fused_column_type(types, round_integers=round_integers) for round_integers in (True, False))
    if rounded == exact:
        return exact
    # Integers of 64 bits and floats occur in one field. Its type is a float if that holds all integers exactly.
    return rounded if all(run_in(spark)(rows.fits_task(rounded), len(rows.tasks))) else exact


@dataclass(frozen=True, slots=True)
class PoolRows:
    """The data that executors need to read parts of data objects."""

    tasks: tuple[tuple[Part, ...], ...]
    chosen: tuple[str, ...] | None = None
    """The types of the values that are read, as text. None means all types."""

    def types_of_task(self, task: int) -> list[str]:
        """Return the distinct types of the values of a task, as text. Raises DamagedLake."""
        return list(dict.fromkeys(format_type(shape.type) for part in self.tasks[task] for shape in part.shapes()))

    def fits_task(self, type: Type) -> Callable[[int], bool]:
        """Return a function that checks whether the fused type holds all integers of a task exactly."""
        text = format_type(type)

        def fits(task: int) -> bool:
            common = parse_type(text)
            try:
                for columns in self._columns(task):
                    widen_columns(columns, common)
            except InexactInteger:
                return False
            return True

        return fits

    def reader(self, type: Type, schema: pa.Schema, *, truncate_times: bool) -> BatchFunction:
        """Return a function that turns the numbers of tasks into rows of the fused type."""
        text = format_type(type)

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            common = parse_type(text)
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    for columns in self._columns(task):
                        for values in widen_columns(columns, common):
                            yield to_batch(values, common, schema, truncate_times=truncate_times)

        return read

    def _columns(self, task: int) -> Iterator[list[Column]]:
        chosen = None if self.chosen is None else [parse_type(text) for text in self.chosen]
        for part in self.tasks[task]:
            for columns in part.columns():
                selected = columns if chosen is None else [column for column in columns if column.type in chosen]
                if selected:
                    yield selected
