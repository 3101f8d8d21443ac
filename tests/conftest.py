"""What every test shares: one Spark session, one run of the demo, the case collection and the order of the suite."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.s3 import s3_endpoint, s3_options, s3_url  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.skip_rule", "tests.outcomes", "tests.examples", "tests.seeds"]

ROOT = Path(__file__).parent.parent
DEMO_SECONDS = 1800
"""How long the demo may take on a machine that has other work."""


# `make` exports the demo's lake; tests have lakes of their own.
os.environ.pop("LAKE_ROOT", None)

# A shell ignores SIGINT in what it starts in the background, and so do its children. Dagster takes SIGTERM for SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is started once for many tests: those stay in one of several processes.
_SHARED = ("spark", "demo")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs Java or takes long, and keep together what shares a fixture that is slow to start.

    As soon as an item is collected: later hooks deselect by these markers, and xdist reads the groups before a conftest
    can set them there.
    """
    if item.get_closest_marker("histories"):
        item.add_marker(pytest.mark.stress)
    shared = next((name for name in _SHARED if name in getattr(item, "fixturenames", ())), None)
    if shared is not None:
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group(shared))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests by their duration.

    One process runs quick tests first. Several processes begin with the longest ones, to end at about the same time.
    """
    sign = -1 if hasattr(config, "workerinput") else 1
    items.sort(key=lambda item: sign * _weight(item))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking, again and again, the thousands of tests that stay until the end."""
    gc.collect()
    gc.freeze()


def _weight(item: pytest.Item) -> int:
    """How long a test takes, roughly, with what it shares."""
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        return 4 - _SHARED.index(group.args[0]) if group.args[0] in _SHARED else 2
    return 1 if item.get_closest_marker("spark") or item.get_closest_marker("browser") else 0


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Leave flushes to the operating system: no test cuts the power, and what a killed process wrote stays readable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(autouse=True)
def _no_storage_of_an_earlier_instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Dagster's current storage of definitions' state be none where its instance is gone.

    Dagster resets it when an instance is left. Where the collector leaves two in another order than they were entered,
    at the beginning of a test or in its middle, what stays current belongs to an instance that is gone, and every later
    `materialize` fails.
    """
    if "dagster" not in sys.modules:
        yield
        return
    from dagster._core.errors import DagsterInvariantViolationError
    from dagster._core.storage.defs_state.base import DefsStateStorage, set_defs_state_storage

    current: Callable[[], DefsStateStorage | None] = DefsStateStorage.get

    def living() -> DefsStateStorage | None:
        storage = current()
        if storage is None or not storage.has_instance:
            return storage
        try:
            return storage if storage._instance else None
        except DagsterInvariantViolationError:
            return None

    monkeypatch.setattr(DefsStateStorage, "get", staticmethod(living))
    with set_defs_state_storage(None):
        yield


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of reference tables; where it is absent, tests that need it are skipped (even in CI, and said so)."""
    from tests.skip_rule import CASES, NO_CASES

    if not CASES.is_dir():
        pytest.skip(NO_CASES)
    return CASES


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the whole run: two cores, tasks retried, cheap to start."""
    from lake_core.spark import session

    spark = session(
        app_name="tests",
        master="local[2,2]",  # the last 2: a task may fail once, else no retry is ever tested
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield spark
    spark.stop()


@dataclass(frozen=True)
class Demo:
    """What `make demo` left: its exit code, what it printed, and where its tables and runs are."""

    exit_code: int
    output: str
    environment: dict[str, str]

    @property
    def lake(self) -> str:
        return self.environment["LAKE_ROOT"]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo, run once in a process of its own, with a lake and a Dagster instance of its own."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "home").mkdir()
    shutil.copy(ROOT / ".dagster" / "dagster.yaml", folder / "home")
    locations = {
        "LAKE_ROOT": str(folder / "lake"),
        "LAKE_LANDING": str(folder / "landing"),
        "DAGSTER_HOME": str(folder / "home"),
    }
    environment = {**os.environ, **locations}
    command = [sys.executable, "-m", "example_pipelines.flights.demo"]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEMO_SECONDS,
    )
    return Demo(ended.returncode, ended.stdout, environment)


@pytest.fixture(scope="module")
def toy_formats() -> Iterator[None]:
    """Forget which formats are installed, for a module that puts others on the path, and again after it."""
    from lake_orch.assets.maintenance import maintenance_of
    from tests.lake.lakes import forget_formats

    forget_formats()
    maintenance_of.cache_clear()
    yield
    forget_formats()
    maintenance_of.cache_clear()
