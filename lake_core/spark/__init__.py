"""PySpark over the formats, through public DataFrame and data source interfaces only: no extra jars, no JVM internals.

The driver plans reads from the log. The executors write files, and the driver commits them once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.spark.arrays.array_spec import ArraySpec
from lake_core.spark.data_source import register
from lake_core.spark.dataset import read_dataset
from lake_core.spark.errors import (
    ArrayChanged,
    DuplicateCells,
    InvalidArraySpec,
    InvalidColumns,
    InvalidCoordinates,
    InvalidOption,
    InvalidValues,
    JavaTooOld,
    MissingPackage,
    NoJava,
    SparkJobFailed,
    SparkServerFailed,
    UnknownCoordinates,
    UnreachableStore,
    UnsupportedArray,
)
from lake_core.spark.merge import merge_delta
from lake_core.spark.operations import (
    checkpoint_delta,
    convert_delta,
    delete_delta,
    optimize_delta,
    update_delta,
    vacuum_delta,
)
from lake_core.spark.read import read_delta
from lake_core.spark.session import session
from lake_core.spark.write import write_delta

if TYPE_CHECKING:
    from lake_core.spark.arrays.read import read_array
    from lake_core.spark.arrays.write import ArrayWriteResult, write_array
    from lake_core.spark.lakes import collect_lake, export_lake, verify_lake
    from lake_core.spark.pools.read import read_pool
    from lake_core.spark.pools.write import load_pool

__all__ = [
    "ArrayChanged",
    "ArraySpec",
    "ArrayWriteResult",
    "DuplicateCells",
    "InvalidArraySpec",
    "InvalidColumns",
    "InvalidCoordinates",
    "InvalidOption",
    "InvalidValues",
    "JavaTooOld",
    "MissingPackage",
    "NoJava",
    "SparkJobFailed",
    "SparkServerFailed",
    "UnknownCoordinates",
    "UnreachableStore",
    "UnsupportedArray",
    "checkpoint_delta",
    "collect_lake",
    "convert_delta",
    "delete_delta",
    "export_lake",
    "load_pool",
    "merge_delta",
    "optimize_delta",
    "read_array",
    "read_dataset",
    "read_delta",
    "read_pool",
    "register",
    "session",
    "update_delta",
    "vacuum_delta",
    "verify_lake",
    "write_array",
    "write_delta",
]


def __getattr__(name: str) -> object:
    # These are slow to import, and Spark plans a data source in a new process. Arrays also need optional packages.
    if name == "read_array":
        from lake_core.spark.arrays.read import read_array

        return read_array
    if name in ("write_array", "ArrayWriteResult"):
        from lake_core.spark.arrays import write

        return getattr(write, name)
    if name in ("collect_lake", "export_lake", "verify_lake"):
        from lake_core.spark import lakes

        return getattr(lakes, name)
    if name == "read_pool":
        from lake_core.spark.pools.read import read_pool

        return read_pool
    if name == "load_pool":
        from lake_core.spark.pools.write import load_pool

        return load_pool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
