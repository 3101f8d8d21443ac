"""The store in Azure Storage, over HTTP to Azurite."""

from __future__ import annotations

import uuid
from typing import ClassVar

import pytest

from lake_core.errors import InvalidKey, StoreError
from lake_core.store import ObjectMeta, ObjectStore, open_store
from lake_core.store.cloud.azure import AzureBlobStore
from lake_core.testing import SharedObjectStoreSuite
from lake_core.testing.object_store_listing import ODD_KEYS
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


def test_last_bytes_of_an_object_that_was_replaced_meanwhile(azure_server: CloudServer) -> None:
    class Overtaken(AzureBlobStore):
        contents: ClassVar = [b"longer than before"]

        def _head(self, key: str) -> ObjectMeta:
            meta = super()._head(key)
            if self.contents:
                self.put(key, self.contents.pop())
            return meta

    prefix = uuid.uuid4().hex
    open_store(azure_server.url(prefix), storage_options=azure_server.storage_options).put("a", b"short")
    store = Overtaken("lake", prefix, storage_options=azure_server.storage_options)
    assert store.get("a", -3) == b"ore"


def test_credentials_of_the_options_outrank_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    store = AzureBlobStore("lake", storage_options={"account_name": "account", "sas_token": "?sv=1&sig=abc"})
    assert store._credential() == ("sas_token", "?sv=1&sig=abc")
    named = AzureBlobStore("lake", storage_options={"account_name": "account", "client_id": "c", "tenant_id": "t"})
    assert named._credential()[1] is None


def test_account_key_of_the_environment_does_not_replace_the_options(
    azure_server: CloudServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    store = open_store(azure_server.url(uuid.uuid4().hex), storage_options=azure_server.storage_options)
    store.put("a", b"")
    assert store.exists("a")


def test_connection_string_with_a_signature_names_the_account_by_its_endpoint() -> None:
    connection = "BlobEndpoint=https://account.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=abc"
    store = AzureBlobStore("lake", storage_options={"connection_string": connection})
    assert store._value("account_name") == "account"
    assert store._value("sas_token") == "sv=1&sig=abc"


def test_adlfs_reads_with_the_same_endpoint_and_identity() -> None:
    signed = {"account_name": "account", "endpoint": "https://proxy/account", "sas_token": "?sv=1&sig=abc"}
    assert AzureBlobStore("lake", storage_options=signed).storage_options == {
        "connection_string": (
            "DefaultEndpointsProtocol=https;AccountName=account;SharedAccessSignature=sv=1&sig=abc;"
            "BlobEndpoint=https://proxy/account"
        ),
        "anon": False,
    }
    assert AzureBlobStore("lake", storage_options={"account_name": "account"}).storage_options["anon"] is False
    anonymous = {"account_name": "account", "anon": True}
    assert AzureBlobStore("lake", storage_options=anonymous).storage_options == anonymous


def test_use_emulator_must_be_a_flag() -> None:
    with pytest.raises(StoreError, match="use_emulator must be True or False"):
        AzureBlobStore("lake", storage_options={"use_emulator": "false"})
