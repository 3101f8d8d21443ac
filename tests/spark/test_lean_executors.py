"""Executors whose Python has pyarrow, numpy and fsspec, and nothing else: no pandas, no SQL parser, not this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import fsspec
import numpy
import pyarrow
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lean")]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the three packages alone."""
    folder = tmp_path_factory.mktemp("lean")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    for module in (pyarrow, numpy, fsspec):
        assert module.__file__ is not None
        package = Path(module.__file__).parent
        for part in (package, package.with_name(f"{package.name}.libs")):  # the libraries of some stand beside them
            if part.exists():
                (packages / part.name).symlink_to(part)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def told(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the job saw."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_REMOTE")}
    environment["PYSPARK_PYTHON"] = str(python)
    folder = tmp_path_factory.mktemp("job")
    source = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.spark.lean_job import main; main({str(folder / 'data')!r})"
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_executors_are_lean(told: dict[str, Any]) -> None:
    assert told["modules"] == ["fsspec", "numpy", "pyarrow"]


@pytest.mark.parametrize("name", ["plain", "vectors"])
def test_operations_run_in_them(told: dict[str, Any], name: str) -> None:
    seen = {key.removesuffix(f" {name}"): value for key, value in told.items() if key.endswith(f" {name}")}
    rest = list(range(3, 25))
    assert seen == {
        "write": 20,
        "merge": list(range(25)),
        "update": list(range(25)),
        "delete": rest,
        "overwrite": rest,
        "optimize": rest,
        "filtered": 11,
        "read": rest,
    }


def test_a_session_of_a_lake_runs_in_them(told: dict[str, Any]) -> None:
    assert told["session of a lake"] == [0, 1, 2, 3, 4]


def test_a_data_source_is_planned_where_the_package_is(told: dict[str, Any]) -> None:
    """Spark plans Python data sources by the executors' Python, on the driver's machine."""
    assert "lake-orch is not installed for the Python that Spark plans with" in told["source"]
    assert "lake-orch is not installed for the Python that Spark plans with" in told["source write"]
