"""Functions that travel to executors by value."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lake_core.pool.metadata import Record
from lake_core.pool.rows import value_of
from lake_core.spark import SparkJobFailed, write_delta
from lake_core.spark.executor import by_value
from lake_core.store.key import check_key

UNPICKLE = """
import pickle, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "lake_core":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
with open(sys.argv[1], "rb") as file:
    print(pickle.load(file)("a/b"))
"""


def run_without_the_package(function: Callable[[str], object], folder: Path) -> str:
    """Return what a process that lacks the package prints of a function's result for "a/b"."""
    payload = folder / "function.pickle"
    payload.write_bytes(by_value(function))
    process = subprocess.run(
        [sys.executable, "-c", UNPICKLE, payload], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_functions_with_a_cache_travel_without_the_package(tmp_path: Path) -> None:
    assert run_without_the_package(check_key, tmp_path) == "a/b\n"


def field_of_a_record(name: str) -> int:
    return Record(value_of({name: 7})).integer(name)


def test_functions_that_use_cached_properties_travel_without_the_package(tmp_path: Path) -> None:
    field_of_a_record.__module__ = "__main__"
    assert run_without_the_package(field_of_a_record, tmp_path) == "7\n"


def test_a_job_that_fails_in_the_jvm_is_an_error_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that Spark kept are gone, as they are when their executor is lost."""
    rows = spark.range(4).localCheckpoint()
    for kept in spark.sparkContext._jsc.getPersistentRDDs().values():  # type: ignore[attr-defined]
        kept.unpersist(True)
    with pytest.raises(SparkJobFailed, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
        write_delta(rows, str(tmp_path))
