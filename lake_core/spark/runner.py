"""Runs the tasks of an operation in Spark's executors, one task in each partition.

Results are returned as plain types. The package's classes are sent to the executors by value, so the driver could not
unpickle their instances.
"""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lake_core.spark.executor import (
    BatchFunction,
    batch_function,
    installed_releases,
    named_function,
    our_errors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from lake_core.runner import Runner

T = TypeVar("T")
_INSTANCE = "\x00lake-orch:instance"


def run_in(spark: SparkSession) -> Runner:
    """Return a runner that runs tasks in the executors of a session."""

    def run(task: Callable[[int], T], count: int) -> Iterable[T]:
        if not count:
            return []
        rows = _results(spark, batch_function(_carry_out(task)), count)
        results = dict(zip(rows["number"].to_pylist(), rows["result"].to_pylist(), strict=True))
        return [unpacked(pickle.loads(results[number])) for number in range(count)]

    return run


def run_installed_in(spark: SparkSession) -> Runner:
    """Return a runner for tasks that need the installed package, such as those that ask the formats of datasets.

    They are pickled by name, and so are their results. Executors with other releases of it, or of a format, fail.
    """

    def run(task: Callable[[int], T], count: int) -> Iterable[T]:
        if not count:
            return []
        rows = _results(spark, named_function(task), count)
        results = dict(zip(rows["number"].to_pylist(), rows["result"].to_pylist(), strict=True))
        return [pickle.loads(results[number]) for number in range(count)]

    return run


def has_same_releases(spark: SparkSession) -> bool:
    """Return whether the executors have this package and its formats, of the driver's releases.

    One of the executors is asked.
    """
    function = batch_function(_compare_releases(installed_releases()))
    with our_errors():
        rows = spark.range(0, 1, 1, 1).mapInArrow(function, "are_same boolean").toArrow()
    return all(rows["are_same"].to_pylist())


def _compare_releases(releases: dict[str, str]) -> BatchFunction:
    def compare(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                # By its name, because the function itself is pickled with the driver's release.
                executor = importlib.import_module("lake_core.spark.executor")
            except ModuleNotFoundError:
                are_same = False
            else:
                are_same = executor.installed_releases() == releases
            yield pa.RecordBatch.from_arrays([pa.array([are_same])], names=["are_same"])

    return compare


def _results(spark: SparkSession, function: BatchFunction, count: int) -> pa.Table:
    # `range` spreads numbers over its partitions in order: one number each, so that tasks are retried one by one.
    numbers = spark.range(0, count, 1, count)
    with our_errors():
        return numbers.mapInArrow(function, "number bigint, result binary").toArrow()


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
    """Convert a value that contains dataclasses to plain types, to send it from an executor to the driver."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: packed(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return (_INSTANCE, type(value).__module__, type(value).__qualname__, fields)
    if isinstance(value, list | tuple):
        return type(value)(packed(item) for item in value)
    return value


def unpacked(value: Any) -> Any:
    """Return the value that was passed to `packed`."""
    if isinstance(value, tuple) and len(value) == 4 and value[0] == _INSTANCE:
        _, module, name, fields = value
        return getattr(importlib.import_module(module), name)(**{key: unpacked(item) for key, item in fields.items()})
    if isinstance(value, list | tuple):
        return type(value)(unpacked(item) for item in value)
    return value
