"""Servers of catalogs, each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from tests.catalog.hive_metastore import HiveMetastore
from tests.catalog.unity_server import UnityServer

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test-key", "AWS_SECRET_ACCESS_KEY": "test-secret-never-shown"}


@pytest.fixture(scope="session")
def glue_url() -> Iterator[str]:
    """moto's Glue, with credentials for it in the environment."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    with HiveMetastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture
def unity() -> Iterator[UnityServer]:
    with UnityServer() as server:
        yield server
