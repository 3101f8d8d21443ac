"""The store in Google Cloud Storage, over HTTP to fake-gcs-server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from lake_core.store import ObjectStore, open_store
from lake_core.testing import SharedObjectStoreSuite
from tests.clouds.fake_gcs import fake_gcs
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


class TestGCSStore(SharedObjectStoreSuite):
    @pytest.fixture
    def store(self, server: CloudServer) -> ObjectStore:
        return open_store(server.url(uuid.uuid4().hex), storage_options=server.storage_options)
