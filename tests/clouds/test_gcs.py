"""The store in Google Cloud Storage, over HTTP to fake-gcs-server."""

from __future__ import annotations

import uuid

import pytest

from lake_core.store import ObjectStore, open_store
from lake_core.testing import SharedObjectStoreSuite
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds


class TestGCSStore(SharedObjectStoreSuite):
    @pytest.fixture
    def store(self, gcs_server: CloudServer) -> ObjectStore:
        return open_store(gcs_server.url(uuid.uuid4().hex), storage_options=gcs_server.storage_options)
