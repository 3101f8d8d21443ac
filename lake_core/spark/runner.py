"""Tasks of an operation in Spark's executors, one task a partition.

Results are returned as plain types: the package's classes are sent to the executors by value, and their instances from
there could not be unpickled in the driver.
"""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lake_core.spark.executor import JOB_ERRORS, batch_function, raise_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from lake_core.runner import Runner

T = TypeVar("T")
_INSTANCE = "\x00lake-orch:instance"


def run_in(spark: SparkSession) -> Runner:
    """Return a runner that carries out tasks in the executors of a session."""

    def run(task: Callable[[int], T], count: int) -> Iterable[T]:
        if not count:
            return []
        # `range` spreads numbers over its partitions in order: one number each, so that tasks are retried one by one.
        numbers = spark.range(0, count, 1, count)
        try:
            rows = numbers.mapInArrow(batch_function(_carry_out(task)), "number bigint, result binary").toArrow()
        except JOB_ERRORS as error:
            raise_ours(error)
        results = dict(zip(rows["number"].to_pylist(), rows["result"].to_pylist(), strict=True))
        return [unpacked(pickle.loads(results[number])) for number in range(count)]

    return run


def _carry_out(task: Callable[[int], Any]) -> Any:
    def carry_out(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(packed(task(number)))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([result], pa.binary())], names=["number", "result"]
                )

    return carry_out


def packed(value: Any) -> Any:
    """Convert a value with our dataclasses in it to plain types, to send it from an executor to the driver."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: packed(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return (_INSTANCE, type(value).__module__, type(value).__qualname__, fields)
    if isinstance(value, list | tuple):
        return type(value)(packed(item) for item in value)
    return value


def unpacked(value: Any) -> Any:
    """Return the value that was given to `packed`."""
    if isinstance(value, tuple) and len(value) == 4 and value[0] == _INSTANCE:
        _, module, name, fields = value
        return getattr(importlib.import_module(module), name)(**{key: unpacked(item) for key, item in fields.items()})
    if isinstance(value, list | tuple):
        return type(value)(unpacked(item) for item in value)
    return value
