"""Stores that ignore conditions are found out before the first write."""

from __future__ import annotations

import pickle
import urllib.parse
import urllib.request

import pytest

from lake_core.errors import AccessDenied, UnsafeStore
from lake_core.store import open_store
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import QUICK, methods, raw
from tests.store.s3_server import S3Server


def _has_objects(server: S3Server, url: str) -> bool:
    prefix = urllib.parse.quote(url.removeprefix("s3://lake/"))
    return b"<Key>" in raw(server, f"/lake?list-type=2&prefix={prefix}")


@pytest.mark.parametrize(
    "fault",
    [{"kind": "ignore_conditions"}, {"kind": "ignore_if_match"}, {"kind": "answer", "code": "501 NotImplemented"}],
)
def test_store_that_ignores_conditions_is_refused(
    s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server, fault: dict[str, str]
) -> None:
    s3_endpoint.fault(times=1000, **fault)  # type: ignore[arg-type]
    with pytest.raises(UnsafeStore, match="ignores conditional puts"):
        open_store(s3_url, storage_options=s3_options)
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    store = S3Store(bucket, prefix, storage_options=s3_options)
    for _ in range(2):
        with pytest.raises(UnsafeStore):
            store.put("a", b"")
    assert not _has_objects(s3_endpoint, s3_url)


def test_safe_store_is_asked_once_and_nothing_is_left(
    s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server
) -> None:
    store = open_store(s3_url, storage_options=s3_options)
    assert methods(s3_endpoint)[-4:] == ["PUT 200", "PUT 412", "PUT 412", "DELETE 204"]
    assert not _has_objects(s3_endpoint, s3_url)
    s3_endpoint.clear()
    store.put("a", b"", if_absent=True)
    pickle.loads(pickle.dumps(store)).put("b", b"", if_absent=True)
    # Each process compares its clock with the server's once.
    assert methods(s3_endpoint) == ["PUT 200", "HEAD 200"] * 2


def test_probe_survives_faults(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("drop_after")
    s3_endpoint.fault("answer", code="503 SlowDown")
    open_store(s3_url, storage_options=s3_options).put("a", b"", if_absent=True)
    s3_endpoint.clear()


def test_who_may_only_read_can_open(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    open_store(s3_url, storage_options=s3_options).put("x/a", b"hello")
    s3_endpoint.fault("answer", code="403 AccessDenied", times=2)
    store = open_store(s3_url, storage_options=s3_options)
    assert store.get("x/a") == b"hello"
    with pytest.raises(AccessDenied):
        store.put("x/b", b"", if_absent=True)
    s3_endpoint.clear()
    # Now it may: the probe is put beside the key, because permissions may be limited to that prefix.
    store.put("x/b", b"", if_absent=True)
    assert [line.split("/")[3] for line in s3_endpoint.requests() if "lake-tmp-probe" in line] == ["x"] * 4
    store.put("x/c", b"")
    assert sum("lake-tmp-probe" in line for line in s3_endpoint.requests()) == 4


def test_aws_is_not_asked() -> None:
    """No network is needed to find that the endpoint is AWS."""
    store = S3Store(
        "bucket",
        storage_options={"key": "k", "secret": "s", "client_kwargs": {"region_name": "eu-west-1"}},
        retry=QUICK,
    )
    store.check_conditional_puts()
    store._ensure_safe("")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_endpoint_of_the_environment_is_asked(
    s3_url: str,
    s3_options: dict[str, object],
    s3_endpoint: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, s3_endpoint.url)
    options = {name: value for name, value in s3_options.items() if name != "endpoint_url"}
    s3_endpoint.fault("ignore_conditions", times=100)
    with pytest.raises(UnsafeStore):
        open_store(s3_url, storage_options=options)
