"""PySpark over the formats, through public DataFrame and data source interfaces only: no extra jars, no JVM internals.

Reads are planned from the log in the driver; writes run in the executors and are committed once, in the driver.
"""

from __future__ import annotations

from lake_core.spark.data_source import register
from lake_core.spark.errors import InvalidOption, JavaTooOld, NoJava, SparkJobFailed, SparkServerFailed, UnreachableStore
from lake_core.spark.merge import merge_delta
from lake_core.spark.operations import convert_delta, delete_delta, optimize_delta, update_delta
from lake_core.spark.read import read_delta
from lake_core.spark.session import session
from lake_core.spark.write import write_delta

__all__ = [
    "InvalidOption",
    "JavaTooOld",
    "NoJava",
    "SparkJobFailed",
    "SparkServerFailed",
    "UnreachableStore",
    "convert_delta",
    "delete_delta",
    "merge_delta",
    "optimize_delta",
    "read_delta",
    "register",
    "session",
    "update_delta",
    "write_delta",
]
