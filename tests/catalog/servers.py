"""Servers of catalogs, as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from tests.catalog.hive_metastore import HiveMetastore
from tests.catalog.unity_server import UnityServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret-never-shown"}


@pytest.fixture(scope="session")
def glue_server() -> Iterator[str]:
    """moto's Glue."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def glue_url(glue_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, with credentials for it in the environment."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return glue_server


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """A Hive metastore."""
    with HiveMetastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture
def unity() -> Iterator[UnityServer]:
    """A server of Unity Catalog's API."""
    with UnityServer() as server:
        yield server
