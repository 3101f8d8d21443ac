"""Functions that travel to executors by value."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lake_core.pool.metadata import Record
from lake_core.pool.rows import value_of
from lake_core.spark import SparkJobFailed, write_delta
from lake_core.spark.errors import UnreachableStore
from lake_core.spark.executor import by_value, named_function
from lake_core.store import key
from lake_core.store.key import check_key, is_key

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


def test_functions_travel_with_the_globals_that_they_have_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_without_the_package(is_key, tmp_path)
    monkeypatch.setattr(key, "_MAX_KEY", 1)
    monkeypatch.setattr(key, "check_key", str.upper)
    assert run_without_the_package(is_key, tmp_path) == "False\n"


def test_functions_without_a_module_travel(tmp_path: Path) -> None:
    namespace: dict[str, Callable[[str], object]] = {}
    exec("def upper(text): return text.upper()", {}, namespace)
    namespace["upper"].__module__ = None  # type: ignore[assignment]
    assert run_without_the_package(namespace["upper"], tmp_path) == "A/B\n"


def field_of_a_record(name: str) -> int:
    return Record(value_of({name: 7})).integer(name)


def test_functions_that_use_cached_properties_travel_without_the_package(tmp_path: Path) -> None:
    field_of_a_record.__module__ = "__main__"
    assert run_without_the_package(field_of_a_record, tmp_path) == "7\n"


def double(number: int) -> int:
    return 2 * number


def test_a_task_that_needs_the_package_runs_only_with_the_same_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    function = named_function(double)
    numbers = pa.RecordBatch.from_arrays([pa.array([3, 4])], names=["number"])
    results = [pickle.loads(batch.column(1)[0].as_py()) for batch in function(iter([numbers]))]
    assert results == [6, 8]
    monkeypatch.setattr("lake_core.spark.executor.installed_releases", lambda: {"delta": "0"})
    with pytest.raises(RuntimeError, match="other releases"):
        next(function(iter([numbers])))
    with pytest.raises(UnreachableStore):
        named_function(lambda number: number)


def test_a_job_that_fails_in_the_jvm_is_an_error_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that Spark kept are gone, as they are when their executor is lost."""
    rows = spark.range(4).localCheckpoint()
    for kept in spark.sparkContext._jsc.getPersistentRDDs().values():  # type: ignore[attr-defined]
        kept.unpersist(True)
    with pytest.raises(SparkJobFailed, match="CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"):
        write_delta(rows, str(tmp_path))
