"""Executors whose Python has only pyarrow, numpy and fsspec: no pandas, no SQL parser, not this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.lean_python import lean_python

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.xdist_group("lean")]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with only the three packages."""
    return lean_python(tmp_path_factory.mktemp("lean"))


def run_job(python: Path, folder: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Run a job whose executors have this interpreter, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
    environment["PYSPARK_PYTHON"] = str(python)
    source = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.spark.{module} import main; main(*{arguments!r})"
    )
    process = subprocess.run(
        [sys.executable, "-c", source], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert process.returncode == 0, process.stderr
    printed: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return printed


@pytest.fixture(scope="module")
def report(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the report of the job."""
    folder = tmp_path_factory.mktemp("job")
    return run_job(python, folder, "lean_job", str(folder / "data"))


def test_the_executors_are_lean(report: dict[str, Any]) -> None:
    assert report["modules"] == ["fsspec", "numpy", "pyarrow"]


@pytest.mark.parametrize("name", ["plain", "vectors"])
def test_operations_run_in_them(report: dict[str, Any], name: str) -> None:
    results = {key.removesuffix(f" {name}"): value for key, value in report.items() if key.endswith(f" {name}")}
    remaining = list(range(3, 25))
    others = {"overwrite": remaining, "filtered": 11, "read": remaining} if name == "plain" else {}
    assert results == {
        "write": 20,
        "merge": list(range(25)),
        "update": list(range(25)),
        "delete": remaining,
        "optimize": remaining,
        **others,
    }


def test_a_session_of_a_lake_runs_in_them(report: dict[str, Any]) -> None:
    assert report["session of a lake"] == [0, 1, 2, 3, 4]


def test_a_lake_is_maintained_in_them(report: dict[str, Any]) -> None:
    problems, collected, exported = report["maintenance of a lake"]
    assert (problems, collected) == (0, 0)
    assert exported > 3


def test_a_data_source_is_planned_where_the_package_is(report: dict[str, Any]) -> None:
    """Spark plans Python data sources by the executors' Python, on the driver's machine."""
    assert "lake-orch is not installed for the Python with which Spark plans queries" in report["source"]
    assert "lake-orch is not installed for the Python with which Spark plans queries" in report["source write"]


@pytest.mark.parametrize("kind", ["classic", pytest.param("connect", marks=pytest.mark.exhaustive)])
def test_arrays_and_pools_are_written_and_read_in_them(
    request: pytest.FixtureRequest, python: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "connect":
        results = run_job(python, tmp_path, "array_job", str(tmp_path / "repository"))
    else:
        results = dict(request.getfixturevalue("report")["arrays and pools"])
    message, chunks = results.pop("sharded")
    assert "need the package zarr" in message
    assert "the package zarr is missing" in message
    assert chunks == 0, "it is refused before anything is written"
    assert results == {
        "session": {"classic": "session", "connect": "connect"}[kind],
        "plain chunks": 2,
        "packed chunks": 2,
        "rows": [[0, "a", 1.5, 1.5], [0, "b", 0.0, 0.0], [1, "a", 0.0, 0.0], [1, "b", 2.0, 2.0]],
        "xarray": [[1.5, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -9.0]],
        "pool": ["{k:2,v:5.5}", "{k:2,v:2.5}", "{k:1,v:1.5}", "{k:1,v:4.5}"],
    }
