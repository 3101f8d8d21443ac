"""The store in S3, over HTTP to MinIO, which checks signatures, regions and names as moto does not."""

from __future__ import annotations

import uuid

import pytest

from lake_core.errors import AccessDenied, NotFound, StoreError
from lake_core.store import ObjectStore, open_store
from lake_core.testing import SharedObjectStoreSuite
from tests.clouds.minio import SECRET
from tests.clouds.servers import CloudServer

pytestmark = pytest.mark.clouds

OTHER_SECRET = "never-shown-either-77a1"


class TestMinioStore(SharedObjectStoreSuite):
    dots_before_a_space = False

    @pytest.fixture
    def store(self, minio_server: CloudServer) -> ObjectStore:
        return open_store(minio_server.url(uuid.uuid4().hex), storage_options=minio_server.storage_options)


def _open(server: CloudServer, **options: object) -> ObjectStore:
    """Open a location of its own, without a look at whether conditions are honored."""
    url = server.url(uuid.uuid4().hex)
    return open_store(url, storage_options={**server.storage_options, **options}, read_only=True)


@pytest.mark.parametrize(
    ("options", "code"),
    [({"secret": OTHER_SECRET}, "SignatureDoesNotMatch"), ({"key": "nobody"}, "InvalidAccessKeyId")],
    ids=["secret", "key"],
)
def test_wrong_credentials_are_refused_without_showing_them(
    minio_server: CloudServer, options: dict[str, object], code: str
) -> None:
    with pytest.raises(AccessDenied, match=code) as caught:
        _open(minio_server, **options).get("a")
    assert OTHER_SECRET not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_request_without_credentials_is_refused(minio_server: CloudServer) -> None:
    options = {name: value for name, value in minio_server.storage_options.items() if name not in ("key", "secret")}
    store = open_store(minio_server.url("a"), storage_options={**options, "anon": True}, read_only=True)
    with pytest.raises(AccessDenied, match="AccessDenied"):
        store.get("a")


def test_bucket_that_is_missing_is_named(minio_server: CloudServer) -> None:
    with pytest.raises(NotFound, match="the bucket 'no-such-bucket' does not exist"):
        open_store("s3://no-such-bucket/a", storage_options=minio_server.storage_options)


@pytest.mark.parametrize("key", [". ", "a/.. /b"])
def test_name_that_the_service_refuses_is_shown(minio_server: CloudServer, key: str) -> None:
    store = open_store(minio_server.url(uuid.uuid4().hex), storage_options=minio_server.storage_options)
    with pytest.raises(StoreError, match="Resource name contains bad components") as caught:
        store.put(key, b"")
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize("verb", ["get", "head", "list", "list_folders"])
def test_region_of_the_bucket_is_named_with_the_option_to_set(minio_server: CloudServer, verb: str) -> None:
    store = _open(minio_server, client_kwargs={"region_name": "eu-west-1"})
    with pytest.raises(
        StoreError, match="'lake' is in the region us-east-1, but the request went to eu-west-1: set region"
    ):
        getattr(store, verb)("a") if verb in ("get", "head") else list(getattr(store, verb)(""))


def test_key_of_the_environment_does_not_replace_that_of_the_options(
    minio_server: CloudServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OTHER_SECRET)
    store = open_store(minio_server.url(uuid.uuid4().hex), storage_options=minio_server.storage_options)
    store.put("a", b"")
    assert store.exists("a")


def test_environment_alone_is_enough(minio_server: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in minio_server.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(minio_server.url(uuid.uuid4().hex))
    store.put("a", b"", if_absent=True)
    assert store.exists("a")
