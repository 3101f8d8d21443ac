"""The store in Azure Storage, over HTTP to Azurite."""

from __future__ import annotations

import uuid

import pytest

from lake_core.errors import InvalidKey
from lake_core.store import ObjectStore, open_store
from lake_core.testing import SharedObjectStoreSuite
from lake_core.testing.object_store_suite import ODD_KEYS
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds


class TestAzureBlobStore(SharedObjectStoreSuite):
    odd_keys = tuple(key for key in ODD_KEYS if "\\" not in key and not key.endswith("."))

    @pytest.fixture
    def store(self, azure_server: CloudServer) -> ObjectStore:
        return open_store(azure_server.url(uuid.uuid4().hex), storage_options=azure_server.storage_options)


@pytest.mark.parametrize("key", ["a\\b", "a./b", "a."])
def test_names_that_the_service_changes_are_refused(azure_server: CloudServer, key: str) -> None:
    store = open_store(azure_server.url(uuid.uuid4().hex), storage_options=azure_server.storage_options)
    for use in (store.get, store.head, lambda key: store.put(key, b""), lambda key: store.delete([key])):
        with pytest.raises(InvalidKey, match="which Azure Storage changes"):
            use(key)
    assert list(store.list()) == []
