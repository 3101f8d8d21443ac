"""The store in Google Cloud Storage, over HTTP to fake-gcs-server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lake_core.errors import AccessDenied, StoreError, StoreUnavailable
from lake_core.store import ObjectStore, open_store
from lake_core.store.cloud.gcs import GCSStore
from lake_core.store.cloud.retry import RetryPolicy
from lake_core.testing import SharedObjectStoreSuite
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds


class TestGCSStore(SharedObjectStoreSuite):
    @pytest.fixture
    def store(self, gcs_server: CloudServer) -> ObjectStore:
        return open_store(gcs_server.url(uuid.uuid4().hex), storage_options=gcs_server.storage_options)


SECRET = "never-shown-5b1d"


@pytest.mark.parametrize("content", [None, "no JSON " + SECRET, f'"{SECRET}"'])
def test_file_without_an_account_is_refused_at_once(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "account.json"
    if content is not None:
        file.write_text(content)
    store = GCSStore("lake", storage_options={"token": str(file), "endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(AccessDenied, match=r"no usable credentials in the file .*account\.json") as caught:
        store.get("a")
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_account_that_is_no_json_is_refused_without_showing_it() -> None:
    with pytest.raises(StoreError, match="service_account_key must be the JSON") as caught:
        GCSStore("lake", storage_options={"service_account_key": f'{{"private_key": "{SECRET}"'})
    assert caught.value.__context__ is None


def test_token_of_another_kind_is_refused() -> None:
    with pytest.raises(StoreError, match="token must be a path"):
        GCSStore("lake", storage_options={"token": 3})


def test_base_url_of_the_environment_is_an_endpoint_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    store = GCSStore("lake", storage_options={"token": "anon"}, retry=RetryPolicy(attempts=1))
    assert not store._is_own_endpoint()
    with pytest.raises(StoreUnavailable, match=r"at the endpoint http://127\.0\.0\.1:9"):
        store.check_conditional_puts()
