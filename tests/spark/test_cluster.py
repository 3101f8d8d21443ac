"""A cluster: executors of other processes, with a Python that lacks this package, over S3, and some of them die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.spark.cluster import ROOT
from tests.spark.cluster_job import ESSENTIALS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("cluster")]

_KINDS = ["classic", "connect"]


def run_job(folder: Path, kind: str, *steps: str) -> dict[str, Any]:
    """Run steps of the job on a cluster of their own, and return what they report."""
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "PYSPARK_PYTHON")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.cluster_job", kind, str(folder), *steps],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what the job has started
    assert process.returncode == 0, errors[-5000:]
    report: dict[str, Any] = json.loads(output.splitlines()[-1])
    return report


def check_survival(attempt: dict[str, Any]) -> None:
    """Check that work in whose middle an executor was killed was done once and whole."""
    assert attempt["outcome"] == "finished"
    assert attempt["unseen"], "a reader saw a part of it"
    assert attempt["after"] is True
    assert attempt["again"] is True


@pytest.mark.extended
@pytest.mark.timeout(240)
def test_every_kind_of_work_is_done_on_a_cluster_and_survives_an_executor(tmp_path: Path) -> None:
    report = run_job(tmp_path, "classic", "essentials")["essentials"]
    check_survival(report.pop("merge"))
    assert report == dict.fromkeys(ESSENTIALS, True)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", _KINDS)
def test_everything_that_lean_executors_do_is_done_on_a_cluster(tmp_path: Path, kind: str) -> None:
    report = run_job(tmp_path, kind, "executors", "everything", "landing")
    everything, merged, remaining = report["everything"], list(range(25)), list(range(3, 25))
    arrays = everything.pop("arrays and pools")
    assert everything.pop("maintenance of a lake")[:2] == [0, 0]
    assert report["executors"] == 2
    assert report["landing"] == [[0, 1], [0, 1, 2, 3]]
    assert everything == {
        "modules": ["fsspec", "numpy", "pyarrow"],
        **{f"write {table}": 20 for table in ("plain", "vectors")},
        **{f"{work} {table}": merged for work in ("merge", "update") for table in ("plain", "vectors")},
        **{f"{work} {table}": remaining for work in ("delete", "optimize") for table in ("plain", "vectors")},
        **{f"{work} plain": remaining for work in ("overwrite", "read")},
        "filtered plain": 11,
        "source": 7,
        "source write": [90, 91],
        "session of a lake": list(range(5)),
    }
    assert arrays["plain chunks"] == arrays["packed chunks"] == 2
    assert arrays["xarray"] == [[1.5, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -9.0]]
    assert arrays["pool"] == ["{k:2,v:5.5}", "{k:2,v:2.5}", "{k:1,v:1.5}", "{k:1,v:4.5}"]


@pytest.mark.exhaustive
@pytest.mark.timeout(240)
def test_a_program_that_was_submitted_keeps_its_master_and_its_python(tmp_path: Path) -> None:
    master, python = run_job(tmp_path, "classic", "submitted")["submitted"]
    assert master.startswith("spark://")
    assert python == str(tmp_path / "python")


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("victim", ["executors", "workers"])
def test_every_kind_of_work_survives_one_that_is_killed_in_its_middle(tmp_path: Path, kind: str, victim: str) -> None:
    attempts = run_job(tmp_path, kind, f"killed_{victim}")[f"killed_{victim}"]
    assert set(ESSENTIALS) < set(attempts)
    for attempt in attempts.values():
        check_survival(attempt)


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_write_that_kills_each_executor_fails_and_can_be_tried_again(tmp_path: Path, kind: str) -> None:
    report = run_job(tmp_path, kind, "killed_each_time")["killed_each_time"]
    name, message = report["failure"]
    assert name == "SparkJobFailed"
    assert "executor" in message
    assert not report["skipped"]
    assert report["rows"] == [[float(number), number / 2] for number in range(22)]
