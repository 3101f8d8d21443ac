"""The servers, one of each for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.clouds.azurite import azurite
from tests.clouds.fake_gcs import fake_gcs
from tests.clouds.minio import minio
from tests.clouds.servers import CloudServer

# Otherwise gcsfs asks Google itself what kind each bucket is, whatever its endpoint. It reads this when it is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(params=["azure_server", "gcs_server", "minio_server"])
def cloud_server(request: pytest.FixtureRequest) -> CloudServer:
    """Each of the servers in turn."""
    server: CloudServer = request.getfixturevalue(request.param)
    return server
