"""Tests in an environment of Airflow: `make test-airflow`. Without Airflow, there is nothing to collect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.airflow.pages import dags_of_pages

if TYPE_CHECKING:
    from tests.airflow.standalone import Standalone

collect_ignore_glob = [] if find_spec("airflow") else ["*.py"]
if not find_spec("playwright"):  # as beside the oldest Airflow, which no test looks at in a browser
    collect_ignore_glob.append("test_browser.py")

DAGS = Path(__file__).parent / "dags"
FLIGHTS = Path(__file__).parents[2] / "example_pipelines" / "airflow_flights" / "dags"


@pytest.fixture(scope="session", autouse=True)
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a home of Airflow with a database, before anything imports Airflow."""
    home = tmp_path_factory.mktemp("airflow")
    (home / "landing").mkdir()
    os.environ.update(
        {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # Tests change a DAG, and run it at once.
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
                [
                    {"name": name, "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": kwargs}
                    for name, kwargs in (
                        ("tests", {"path": str(DAGS)}),
                        ("flights", {"path": str(FLIGHTS)}),
                        ("pages", {"path": str(dags_of_pages(home))}),
                    )
                ]
            ),
            "LAKE_LANDING": str(home / "landing"),
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "LAKE_TEST_HOME": str(home),
            "AIRFLOW_CONN_LAKE_DEFAULT": json.dumps({"conn_type": "lake", "host": str(home / "lake")}),
        }
    )
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
    return home


@pytest.fixture
def lake_root(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a lake, and the connection that names it."""
    from lake_core import Lake

    root = tmp_path / "lake"
    Lake.create(str(root))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps({"conn_type": "lake", "host": str(root)}))
    monkeypatch.setenv("LAKE_TEST_HOME", str(tmp_path))
    return root


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Start the processes of Airflow, with a lake for each scene."""
    from lake_core import Lake
    from tests.airflow.scenes import FOLLOWED, SCENES, connection_of, root_of
    from tests.airflow.standalone import Standalone, connection

    home = tmp_path_factory.mktemp("standalone")
    for scene in SCENES:
        Lake.create(str(root_of(home, scene)))
    connections = {f"AIRFLOW_CONN_{connection_of(scene).upper()}": connection(root_of(home, scene)) for scene in SCENES}
    airflow = Standalone(home, {"LAKE_TEST_HOME": str(home), **connections})
    try:
        airflow.wait_until_up([*SCENES, *FOLLOWED.values()])
        yield airflow
    finally:
        airflow.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs the newest Airflow, and end with what needs its processes, in one worker.

    Nothing may import Airflow yet: it has no home here. The items are those of the whole run, which may be one without
    Airflow.
    """
    items.sort(key=lambda item: "airflow" in getattr(item, "fixturenames", ()))
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        shared = next((name for name in ("airflow", "told") if name in fixtures), None)
        if shared is not None:
            item.add_marker(pytest.mark.xdist_group(shared))
    newest = [item for item in items if item.get_closest_marker("newest")]
    if newest and tuple(map(int, version("apache-airflow").split(".")[:2])) < (3, 2):
        config.hook.pytest_deselected(items=newest)
        items[:] = [item for item in items if item not in newest]
