"""The lake and the clients of the tests of pages."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.store import open_store
from lake_core.store.read_only import ReadOnlyStore
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.ui.lakes import add_hostile_values, create_lake

BASE = "http://127.0.0.1:7117"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a lake that no test changes."""
    root = tmp_path_factory.mktemp("ui") / "lake"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        create_lake(root)
    return root


@pytest.fixture
def lake(built: Path) -> Lake:
    """Open it as `lake ui` does."""
    return Lake.open(ReadOnlyStore(open_store(str(built), read_only=True)))


@pytest.fixture
def client(lake: Lake) -> TestClient:
    """Return a client of pages that only read."""
    return TestClient(create_app(lake, PageSettings(dagster_url="http://dagster:3000")), base_url=BASE)


@pytest.fixture
def own_lake(built: Path, tmp_path: Path) -> Lake:
    """Return a copy of the lake that the test may change."""
    shutil.copytree(built, tmp_path / "lake")
    return Lake.open(str(tmp_path / "lake"))


@pytest.fixture
def writer(own_lake: Lake) -> TestClient:
    """Return a client of pages that write."""
    return TestClient(create_app(own_lake, PageSettings(writes=True)), base_url=BASE, headers={"Origin": BASE})


@pytest.fixture
def hostile_lake(own_lake: Lake) -> Lake:
    add_hostile_values(own_lake)
    return own_lake
