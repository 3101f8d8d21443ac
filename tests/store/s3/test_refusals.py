"""Requests that the service refuses: what the error tells, and which secrets it does not."""

from __future__ import annotations

import logging

import pytest

from lake_core.errors import AccessDenied, InvalidKey, NotFound, PreconditionFailed, StoreError, StoreUnavailable
from lake_core.store import open_store
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import VERBS, assert_silent, methods
from tests.store.s3_server import KEY, SECRET, S3Server


@pytest.mark.parametrize(
    "code",
    [
        "403 AccessDenied",
        "403 InvalidAccessKeyId",
        "403 SignatureDoesNotMatch",
        "400 ExpiredToken",
        "400 InvalidToken",
        "401 Who",
    ],
)
def test_refusals_name_the_key_and_no_secret(
    store: S3Store, s3_endpoint: S3Server, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for verb, (method, use) in VERBS.items():
        if method == "HEAD" and code.startswith("400"):
            # An answer to HEAD has no body, so that the code does not come through.
            continue
        s3_endpoint.clear()
        s3_endpoint.fault(
            "answer", method=method, code=code, message=f"key {KEY} and secret {SECRET} are no good", times=1000
        )
        with pytest.raises(AccessDenied) as caught:
            use(store)
        assert_silent(caught.value)
        if method != "HEAD":
            assert code.split(" ")[1] in str(caught.value)
        if verb not in ("list", "list_folders"):
            assert repr(caught.value.key) in str(caught.value)
        # It was not tried again.
        assert len(methods(s3_endpoint)) <= 2
    for record in caplog.records:
        if record.name.startswith("lake_core"):
            assert SECRET not in record.getMessage()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("503 SlowDown", StoreUnavailable),
        ("400 MalformedXML", StoreError),
        ("404 NoSuchBucket", NotFound),
        ("301 PermanentRedirect", StoreError),
        ("409 ConditionalRequestConflict", StoreUnavailable),
        ("501 NotImplemented", StoreError),
        ("404 NoSuchKey", PreconditionFailed),
    ],
)
def test_no_error_holds_a_secret(store: S3Store, s3_endpoint: S3Server, code: str, kind: type[StoreError]) -> None:
    s3_endpoint.fault("answer", code=code, message=f"key {KEY} and secret {SECRET}", times=1000)
    with pytest.raises(StoreError) as caught:
        store.put("a", b"", if_match="x")
    assert type(caught.value) is kind
    assert caught.value.key == "a"
    assert_silent(caught.value)


def test_lost_connections_hold_no_secret(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("drop_before", method="GET", times=100)
    with pytest.raises(StoreUnavailable) as caught:
        store.get("a")
    assert_silent(caught.value)


def test_missing_bucket_is_named(s3_options: dict[str, object]) -> None:
    with pytest.raises(NotFound, match="the bucket 'no-such-bucket' does not exist"):
        open_store("s3://no-such-bucket/x", storage_options=s3_options)
    store = S3Store("no-such-bucket", storage_options=s3_options)
    for use in (
        lambda: store.get("a"),
        lambda: list(store.list()),
        lambda: store.put("a", b"", if_absent=True),
        lambda: store.delete(["a", "b"]),
    ):
        with pytest.raises(NotFound, match="the bucket 'no-such-bucket' does not exist"):
            use()


def test_key_that_is_too_long_with_the_prefix(s3_options: dict[str, object]) -> None:
    store = S3Store("lake", "p" * 200, storage_options=s3_options)
    key = "/".join(["x" * 200] * 4)
    store.put(key, b"")
    for use in (store.get, store.head, lambda key: store.put(key, b""), lambda key: store.delete([key])):
        with pytest.raises(InvalidKey, match="with the store's prefix"):
            use(key + "/" + "y" * 30)


def test_no_part_of_the_store_shows_a_secret(store: S3Store) -> None:
    for name, value in vars(store).items():
        assert name == "_options" or SECRET not in repr(value)


@pytest.mark.parametrize(
    "code",
    [
        "409 BlobArchived",
        "409 BlobImmutableDueToPolicy",
        "409 SnapshotsPresent",
        "412 LeaseIdMissing",
        "403 InvalidObjectState",
    ],
)
def test_what_the_object_does_not_permit_is_neither_waited_for_nor_a_lost_race(
    store: S3Store, s3_endpoint: S3Server, code: str
) -> None:
    s3_endpoint.fault("answer", code=code, times=100)
    with pytest.raises(StoreError, match=code.partition(" ")[2]) as caught:
        store.put("a", b"second", if_match=store.head("a").etag)
    assert type(caught.value) is StoreError
    assert methods(s3_endpoint)[-1] == f"PUT {code[:3]}"
