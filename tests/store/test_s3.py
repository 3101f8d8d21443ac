"""The store in S3, over real HTTP."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
import unicodedata
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest

from lake_core.backoff import Backoff
from lake_core.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidKey,
    InvalidUrl,
    LakeError,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
)
from lake_core.store import ObjectStore, open_store
from lake_core.store.cloud.retry import RetryPolicy
from lake_core.store.cloud.s3 import S3Store
from lake_core.testing import SharedObjectStoreSuite
from tests.store.s3_server import KEY, PAGE, SECRET, S3Server

QUICK = RetryPolicy(attempts=3, conflict_seconds=0.5, backoff=Backoff(0.01, 0.05))


@pytest.fixture(scope="module")
def connected(s3_endpoint: S3Server) -> S3Store:
    store = S3Store("lake", "connected", storage_options=s3_endpoint.storage_options(), retry=QUICK)
    store.check_conditional_puts()
    return store


def _connect(url: str, connected: S3Store, retry: RetryPolicy | None = None) -> S3Store:
    """Return a store that shares the connections of another one, which is known to honor conditions."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    store = S3Store(bucket, prefix, storage_options=connected.storage_options, retry=retry)
    store._clients, store._safety, store._clock = connected._clients, connected._safety, connected._clock
    return store


class TestS3Store(SharedObjectStoreSuite):
    many = PAGE + 3

    @pytest.fixture
    def store(self, s3_url: str, connected: S3Store) -> Iterator[ObjectStore]:
        return _connect(s3_url, connected)

    # Thousands of requests to the server take their time.

    @pytest.mark.extended
    def test_lists_in_the_order_of_bytes(self, store: ObjectStore) -> None:
        super().test_lists_in_the_order_of_bytes(store)

    @pytest.mark.extended
    def test_lists_more_than_a_page(self, store: ObjectStore) -> None:
        super().test_lists_more_than_a_page(store)


@pytest.fixture
def store(s3_url: str, s3_endpoint: S3Server, connected: S3Store) -> S3Store:
    """Open a store with quick retries that is already checked, and clear the server's record."""
    store = _connect(s3_url, connected, QUICK)
    store.put("a", b"first")
    s3_endpoint.clear()
    return store


def _raw(server: S3Server, url: str, method: str = "GET") -> bytes:
    with urllib.request.urlopen(
        urllib.request.Request(server.url + url, method=method, data=b"" if method == "PUT" else None)
    ) as answer:
        data: bytes = answer.read()
        return data


def _methods(server: S3Server) -> list[str]:
    return [f"{method} {status}" for method, _, status in (line.split(" ") for line in server.requests())]


# Conflicts and overload


@pytest.mark.parametrize("conditions", [{"if_absent": True}, {"if_match": ""}])
def test_conflict_is_tried_again_on_the_same_key(
    store: S3Store, s3_endpoint: S3Server, conditions: dict[str, object]
) -> None:
    key = "new" if "if_absent" in conditions else "a"
    if "if_match" in conditions:
        conditions = {"if_match": store.head("a").etag}
        s3_endpoint.clear()
    s3_endpoint.fault("answer", code="409 ConditionalRequestConflict", times=4)
    store.put(key, b"second", **conditions)  # type: ignore[arg-type]
    assert _methods(s3_endpoint) == ["PUT 409"] * 4 + ["PUT 200"]
    assert {line.split(" ")[1] for line in s3_endpoint.requests()} == {f"/{store.url(key).removeprefix('s3://')}"}
    assert store.get(key) == b"second"


def test_conflict_that_stays_is_no_answer(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("answer", code="409 ConditionalRequestConflict", times=10**6)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="ConditionalRequestConflict") as caught:
        store.put("new", b"", if_absent=True)
    assert 0.5 <= time.monotonic() - start < 5
    assert caught.value.key == "new"
    assert not store.exists("new")


VERBS: dict[str, tuple[str, Callable[[ObjectStore], object]]] = {
    "get": ("GET", lambda store: store.get("a")),
    "get_many": ("GET", lambda store: store.get_many(["a", "a"])),
    "put": ("PUT", lambda store: store.put("b", b"")),
    "if_absent": ("PUT", lambda store: store.put("c", b"", if_absent=True)),
    "if_match": ("PUT", lambda store: store.put("a", b"first", if_match=store.head("a").etag)),
    "head": ("HEAD", lambda store: store.head("a")),
    "list": ("GET", lambda store: list(store.list())),
    "list_folders": ("GET", lambda store: store.list_folders()),
    "delete": ("DELETE", lambda store: store.delete(["b"])),
    "delete_many": ("POST", lambda store: store.delete(["b", "c"])),
}


@pytest.mark.parametrize(
    "code", ["503 SlowDown", "500 InternalError", "503 ServiceUnavailable", "429 TooManyRequests", "502 BadGateway"]
)
def test_overload_is_waited_for(store: S3Store, s3_endpoint: S3Server, code: str) -> None:
    for method, use in VERBS.values():
        s3_endpoint.clear()
        s3_endpoint.fault("answer", method=method, code=code, times=2)
        use(store)
        assert _methods(s3_endpoint).count(f"{method} {code[:3]}") == 2


def test_overload_that_stays_is_no_answer(store: S3Store, s3_endpoint: S3Server) -> None:
    for method, use in VERBS.values():
        s3_endpoint.clear()
        s3_endpoint.fault("answer", method=method, code="500 InternalError", times=1000)
        with pytest.raises(StoreUnavailable):
            use(store)
        assert _methods(s3_endpoint).count(f"{method} 500") in (3, 6)


# Lost answers


@pytest.mark.parametrize("kind", ["drop_before", "drop_after"])
def test_lost_connection_is_made_again(store: S3Store, s3_endpoint: S3Server, kind: str) -> None:
    for method, use in VERBS.values():
        s3_endpoint.clear()
        s3_endpoint.fault(kind, method=method)
        use(store)
        # The request was repeated by this package, not also by the client.
        assert sum(line.startswith(method) for line in _methods(s3_endpoint)) in (2, 3)


@pytest.mark.parametrize("kind", ["drop_after", "hang_after"])
def test_put_whose_answer_was_lost_knows_its_own_object(
    s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server, kind: str
) -> None:
    options = {**s3_options, "config_kwargs": {"connect_timeout": 0.5, "read_timeout": 0.5}}
    store = open_store(s3_url, storage_options=options)
    s3_endpoint.fault(kind, seconds=2, key="/a")
    created = store.put("a", b"first", if_absent=True)
    assert created.etag == store.head("a").etag
    s3_endpoint.fault(kind, seconds=2, key="/a")
    replaced = store.put("a", b"second", if_match=created.etag)
    assert replaced.etag == store.head("a").etag != created.etag
    assert store.get("a") == b"second"
    answers = [line.split(" ")[2] for line in s3_endpoint.requests() if line.startswith("PUT") and "/a " in line]
    assert answers == ["200", "412"] * 2


def test_put_whose_answer_was_lost_and_whose_object_was_replaced_since(
    s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server
) -> None:
    """The outcome is unknown, so the error must not say that nothing was written."""
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    slow = S3Store(bucket, prefix, storage_options=s3_options, retry=RetryPolicy(backoff=Backoff(1.5, 5.0)))
    other = open_store(s3_url, storage_options=s3_options)
    begin = slow.put("a", b"begin")
    cases: list[tuple[str, bool, str | None, type[StoreError]]] = [
        ("a", False, begin.etag, StoreUnavailable),
        ("b", True, None, AlreadyExists),
    ]
    for key, if_absent, if_match, error in cases:
        s3_endpoint.clear()
        s3_endpoint.fault("drop_after", key=f"/{key}")
        with ThreadPoolExecutor(1) as pool:
            put = pool.submit(slow.put, key, b"mine", if_absent=if_absent, if_match=if_match)
            while not other.exists(key) or other.get(key) == b"begin":
                time.sleep(0.01)
            other.put(key, b"other")
            with pytest.raises(error) as caught:
                put.result()
        assert type(caught.value) is error
        assert other.get(key) == b"other"


def test_racing_writers_with_lost_answers_lose_nothing(store: S3Store, s3_endpoint: S3Server) -> None:
    """Each increment counts once, whatever is dropped or in conflict."""
    store.put("count", b"0")
    for kind, code in (
        ("drop_after", ""),
        ("answer", "409 ConditionalRequestConflict"),
        ("drop_before", ""),
        ("answer", "503 SlowDown"),
    ):
        s3_endpoint.fault(kind, code=code, times=6, key="/count")
    unknown = []

    def count(_: int) -> None:
        for _ in range(4):
            while True:
                now = store.get("count")
                try:
                    store.put("count", b"%d" % (int(now) + 1), if_match=now.etag)
                except PreconditionFailed:
                    continue
                except StoreUnavailable:
                    unknown.append(1)
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert 16 - len(unknown) <= int(store.get("count")) <= 16


def test_body_that_ends_early_is_asked_for_again(store: S3Store, s3_endpoint: S3Server) -> None:
    data = os.urandom(300_000)
    store.put("big", data)
    s3_endpoint.fault("cut", method="GET", times=2)
    assert store.get("big") == data
    s3_endpoint.fault("cut", method="GET", times=100)
    with pytest.raises(StoreUnavailable):
        store.get("big")


def test_a_body_may_take_longer_than_the_time_to_wait_for_one(
    s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server
) -> None:
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    options = {**s3_options, "config_kwargs": {"connect_timeout": 0.5, "read_timeout": 0.5}}
    store = S3Store(bucket, prefix, storage_options=options, retry=RetryPolicy(attempts=1))
    store.put("a", b"x" * 100_000)
    s3_endpoint.fault("slow", method="GET", seconds=2)
    assert len(store.get("a")) == 100_000
    s3_endpoint.fault("hang_after", method="GET", seconds=2)
    with pytest.raises(StoreUnavailable):
        store.get("a")


def test_nobody_listens(s3_options: dict[str, object]) -> None:
    store = S3Store("lake", storage_options={**s3_options, "endpoint_url": "http://127.0.0.1:9"}, retry=QUICK)
    for use in (
        store.check_conditional_puts,
        lambda: store.get("a"),
        lambda: list(store.list()),
        lambda: store.put("a", b""),
    ):
        with pytest.raises(
            StoreUnavailable, match=r"at the endpoint http://127.0.0.1:9: check its host and port \(endpoint_url\)"
        ):
            use()


# Unsafe stores


def _has_objects(server: S3Server, url: str) -> bool:
    prefix = urllib.parse.quote(url.removeprefix("s3://lake/"))
    return b"<Key>" in _raw(server, f"/lake?list-type=2&prefix={prefix}")


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
    assert _methods(s3_endpoint)[-4:] == ["PUT 200", "PUT 412", "PUT 412", "DELETE 204"]
    assert not _has_objects(s3_endpoint, s3_url)
    s3_endpoint.clear()
    store.put("a", b"", if_absent=True)
    pickle.loads(pickle.dumps(store)).put("b", b"", if_absent=True)
    # Each process compares its clock with the server's once.
    assert _methods(s3_endpoint) == ["PUT 200", "HEAD 200"] * 2


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


# Refusals


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _assert_silent(error: BaseException) -> None:
    for cause in _chain(error):
        for text in (str(cause), repr(cause), repr(cause.args), "".join(traceback.format_exception(cause))):
            assert SECRET not in text
            assert KEY not in text
    assert error.__cause__ is None
    assert error.__context__ is None


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
        _assert_silent(caught.value)
        if method != "HEAD":
            assert code.split(" ")[1] in str(caught.value)
        if verb not in ("list", "list_folders"):
            assert repr(caught.value.key) in str(caught.value)
        # It was not tried again.
        assert len(_methods(s3_endpoint)) <= 2
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
    _assert_silent(caught.value)


ELSEWHERE = {"x-amz-bucket-region": "eu-central-1"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("code", ["301 PermanentRedirect", "307 TemporaryRedirect", "400 AuthorizationHeaderMalformed"])
def test_bucket_in_another_region_is_named_with_the_option_to_set(
    store: S3Store, s3_endpoint: S3Server, code: str, verb: str
) -> None:
    s3_endpoint.fault("answer", method="", code=code, headers=ELSEWHERE, times=100)
    with pytest.raises(
        StoreError, match=r"'lake' is in the region eu-central-1, .* to us-east-1: set region='eu-central-1'"
    ) as caught:
        VERBS[verb][1](store)
    assert type(caught.value) is StoreError
    _assert_silent(caught.value)


def test_region_is_asked_for_once_and_only_after_a_refusal(store: S3Store, s3_endpoint: S3Server) -> None:
    store.get("a")
    s3_endpoint.fault("answer", method="", code="301 PermanentRedirect", headers=ELSEWHERE, times=100)
    with pytest.raises(StoreError, match="eu-central-1"):
        store.get("a")
    assert _methods(s3_endpoint) == ["GET 200", "GET 301", "HEAD 301"]


def test_region_in_the_answer_is_not_asked_for(store: S3Store, s3_endpoint: S3Server) -> None:
    body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>"
    s3_endpoint.fault("answer", method="GET", code="400 AuthorizationHeaderMalformed", body=body)
    with pytest.raises(StoreError, match="set region='eu-central-1'"):
        store.get("a")
    assert _methods(s3_endpoint) == ["GET 400"]


def test_region_that_the_service_does_not_tell(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("answer", method="", code="301 PermanentRedirect", times=100)
    with pytest.raises(StoreError, match=r"'lake' with a redirect: it may be in another region\. Name its region"):
        store.get("a")


def test_malformed_credentials_are_no_matter_of_regions(store: S3Store, s3_endpoint: S3Server) -> None:
    body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>no key</Message><Region>us-east-1</Region></Error>"
    s3_endpoint.fault("answer", method="GET", code="400 AuthorizationHeaderMalformed", body=body)
    with pytest.raises(StoreError, match="with AuthorizationHeaderMalformed: no key"):
        store.get("a")


def test_region_is_asked_for_at_the_host_of_the_bucket() -> None:
    options: dict[str, object] = {"endpoint_url": "https://host:9000", "virtual_hosted_style_request": True}
    assert S3Store("lake", storage_options=options)._bucket_url() == "https://lake.host:9000"
    assert S3Store("lake", storage_options={"region": "eu-west-1"})._bucket_url() == (
        "https://s3.eu-west-1.amazonaws.com/lake"
    )


def test_refusal_behind_a_redirect_names_the_region(s3_endpoint: S3Server, s3_options: dict[str, object]) -> None:
    """The client follows a redirect to another host without a signature, which that host refuses."""

    class InTheCloud(S3Store):
        hosts = ("127.0.0.1",)

    store = InTheCloud("lake", "p", storage_options=s3_options, retry=QUICK)
    elsewhere = s3_endpoint.url.replace("127.0.0.1", "localhost") + "/lake/elsewhere"
    s3_endpoint.fault("answer", method="GET", key="elsewhere", code="403 AccessDenied", times=2)
    s3_endpoint.fault("answer", method="HEAD", code="403 AccessDenied", headers=ELSEWHERE, times=100)
    s3_endpoint.fault(
        "answer", method="", code="307 TemporaryRedirect", headers={**ELSEWHERE, "Location": elsewhere}, times=100
    )
    for _ in range(2):
        with pytest.raises(AccessDenied, match="'lake' is in the region eu-central-1"):
            store.get("a")
    with pytest.raises(StoreError, match="'lake' is in the region eu-central-1"):
        store.put("a", b"")
    assert _methods(s3_endpoint) == ["GET 307", "GET 403", "HEAD 403", "GET 307", "GET 403", "PUT 307"]


def test_other_bad_requests_without_a_body_are_no_matter_of_regions(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("answer", method="HEAD", code="400 ExpiredToken", times=100)
    with pytest.raises(StoreError, match="refused a request for 'a': 400"):
        store.head("a")


def test_lost_connections_hold_no_secret(store: S3Store, s3_endpoint: S3Server) -> None:
    s3_endpoint.fault("drop_before", method="GET", times=100)
    with pytest.raises(StoreUnavailable) as caught:
        store.get("a")
    _assert_silent(caught.value)


def test_no_credentials(s3_url: str, s3_endpoint: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    store = open_store(
        s3_url, storage_options={"endpoint_url": s3_endpoint.url, "client_kwargs": {"region_name": "us-east-1"}}
    )
    with pytest.raises(AccessDenied, match="no usable credentials"):
        store.get("a")


def test_wrong_options_are_named_without_their_values(s3_options: dict[str, object]) -> None:
    for options in (
        {"no_such_option": 1},
        {"config_kwargs": {"no_such_option": 1}},
        {"client_kwargs": {"no_such_option": 1}},
        {"username": "x"},
    ):
        with pytest.raises(StoreError) as caught:
            S3Store("lake", storage_options={**s3_options, **options}, retry=QUICK).get("a")
        _assert_silent(caught.value)
        assert "no_such_option" in str(caught.value) or "username" in str(caught.value)


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


# Deleting


def test_delete_tells_the_key_that_failed(store: S3Store, s3_endpoint: S3Server) -> None:
    prefix = store.url("").removeprefix("s3://lake/")
    answer = "<DeleteResult><Error><Key>{}/{}</Key><Code>{}</Code><Message>{}</Message></Error></DeleteResult>"
    s3_endpoint.fault("answer", method="POST", code="200 OK", body=answer.format(prefix, "c", "AccessDenied", SECRET))
    with pytest.raises(AccessDenied) as caught:
        store.delete(["a", "b", "c"])
    assert caught.value.key == "c"
    _assert_silent(caught.value)
    s3_endpoint.fault(
        "answer", method="POST", code="200 OK", body=answer.format(prefix, "a", "InternalError", ""), times=2
    )
    store.delete(["a", "b"])
    assert not store.exists("a")
    s3_endpoint.fault(
        "answer", method="POST", code="200 OK", body=answer.format(prefix, "b", "SlowDown", ""), times=100
    )
    with pytest.raises(StoreUnavailable) as unavailable:
        store.delete(["a", "b"])
    assert unavailable.value.key == "b"


@pytest.mark.parametrize("code", ["501 NotImplemented", "400 MissingContentMD5", "405 MethodNotAllowed"])
def test_store_that_takes_no_batches(store: S3Store, s3_endpoint: S3Server, code: str) -> None:
    store.put("b", b"")
    s3_endpoint.fault("answer", method="POST", code=code, times=100)
    store.delete(["a", "b", "absent"])
    assert list(store.list()) == []


def test_deletes_a_thousand_at_a_time(store: S3Store, s3_endpoint: S3Server) -> None:
    store.delete([f"absent/{i}" for i in range(2001)])
    assert _methods(s3_endpoint) == ["POST 200"] * 2 + ["DELETE 204"]


# What others left, and what other stores do


def test_folder_markers_and_foreign_names_are_not_listed(store: S3Store, s3_endpoint: S3Server, s3_url: str) -> None:
    root = "/" + s3_url.removeprefix("s3://")
    for name in ("/", "/folder/", "/.lake-tmp-probe-1"):
        _raw(s3_endpoint, root + name, "PUT")
    _raw(s3_endpoint, root + "-neighbour/x", "PUT")
    store.put("folder/y", b"")
    assert [meta.key for meta in store.list()] == ["a", "folder/y"]
    assert store.list_folders() == ["folder"]
    _raw(s3_endpoint, root + "/empty/", "PUT")
    assert [meta.key for meta in store.list()] == ["a", "folder/y"]


@pytest.mark.parametrize("size", [0, 1])
def test_folder_marker_is_listed_behind_names_that_sort_before_its_slash(
    store: S3Store, s3_endpoint: S3Server, s3_url: str, size: int
) -> None:
    store.put("folder", b"x" * size)
    for key in ("folder-2/x", "folder/y"):
        store.put(key, b"")
    _raw(s3_endpoint, "/" + s3_url.removeprefix("s3://") + "/folder/", "PUT")
    assert [meta.key for meta in store.list("folder")] == ["folder", "folder-2/x", "folder/y"]
    store.delete(["folder"])
    assert [meta.key for meta in store.list("folder")] == ["folder-2/x", "folder/y"]


@pytest.mark.parametrize("name", ["folder//x", "./x", "tab%09x"])
def test_foreign_name_that_cannot_be_a_key_is_named(
    store: S3Store, s3_endpoint: S3Server, s3_url: str, name: str
) -> None:
    """Nothing is silently left out of a listing: what a listing leaves out could be collected."""
    _raw(s3_endpoint, "/" + s3_url.removeprefix("s3://") + "/" + name, "PUT")
    with pytest.raises(StoreError, match=r"a name that is not valid here, '.*x'.*Rename or delete it"):
        list(store.list())
    assert store.get("a") == b"first"


def test_foreign_normal_form_is_reached_by_its_own_name(store: S3Store, s3_endpoint: S3Server, s3_url: str) -> None:
    decomposed = unicodedata.normalize("NFD", "café/é")
    _raw(s3_endpoint, "/" + s3_url.removeprefix("s3://") + "/" + urllib.parse.quote(decomposed), "PUT")
    assert [meta.key for meta in store.list("caf")] == [decomposed]
    assert store.get(decomposed) == b""
    assert [bytes(got) for got in store.get_many(["a", decomposed])] == [b"first", b""]
    store.put(decomposed, b"ours", if_absent=True)
    assert store.get(decomposed) == b"ours"
    assert [meta.key for meta in store.list(decomposed.partition("/")[0])] == [decomposed, "café/é"]
    store.delete([decomposed])
    assert [meta.key for meta in store.list("caf")] == ["café/é"]


def test_listing_out_of_order_is_refused(store: S3Store, s3_endpoint: S3Server) -> None:
    prefix = store.url("").removeprefix("s3://lake/")
    item = (
        "<Contents><Key>{}/{}</Key><Size>0</Size><ETag>e</ETag>"
        "<LastModified>2024-01-01T00:00:00Z</LastModified></Contents>"
    )
    body = (
        "<ListBucketResult><IsTruncated>false</IsTruncated>"
        + item.format(prefix, "b")
        + item.format(prefix, "a")
        + "</ListBucketResult>"
    )
    s3_endpoint.fault("answer", method="GET", code="200 OK", body=body)
    with pytest.raises(StoreError, match="not in the order of keys"):
        list(store.list())


def test_last_bytes_of_an_empty_object_may_be_a_range_that_is_none(store: S3Store, s3_endpoint: S3Server) -> None:
    store.put("a", b"")
    headers = {"Content-Range": "bytes 0--1/0", "ETag": '"e"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    s3_endpoint.fault("answer", method="GET", code="206 PartialContent", headers=headers)
    got = store.get("a", -3)
    assert (bytes(got), got.size) == (b"", 0)


def test_store_that_ignores_ranges(store: S3Store, s3_endpoint: S3Server) -> None:
    store.put("a", b"0123456789")
    s3_endpoint.fault("ignore_range", method="GET", times=100)
    for start, end in ((2, 5), (-3, None), (4, None), (20, 30)):
        got = store.get("a", start, end)
        assert (bytes(got), got.size) == (b"0123456789"[start:end], 10)


def test_metadata_of_the_options_stays(s3_url: str, s3_options: dict[str, object]) -> None:
    store = open_store(s3_url, storage_options={**s3_options, "s3_additional_kwargs": {"Metadata": {"team": "lake"}}})
    store.put("a", b"", if_absent=True)
    assert isinstance(store, S3Store)
    metadata = obstore.get(store._client(), store._path("a"), options={"head": True}).attributes
    assert {"team", "lake-put"} <= metadata.keys()
    assert metadata["team"] == "lake"


# Processes and threads


def _in_a_forked_child(use: Callable[[], object]) -> str:
    """Return the message of the error that `use` raises in a child, or the text that it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(use())
        except LakeError as error:
            text = str(error)
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.02)
    with os.fdopen(reader) as output:
        return output.read()


def test_forked_child_is_told_how_to_start_processes(store: S3Store) -> None:
    message = _in_a_forked_child(lambda: store.get("a"))
    assert "start processes with the method 'spawn' or 'forkserver'" in message


def test_child_that_was_forked_before_the_first_request_works(s3_url: str, s3_options: dict[str, object]) -> None:
    program = """
import ast, os, sys
from lake_core.store import open_store
child = os.fork()
store = open_store(sys.argv[1], storage_options=ast.literal_eval(sys.argv[2]))
store.put(f"from-{bool(child)}", b"")
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(*(meta.key for meta in store.list()))
"""
    run = subprocess.run(
        [sys.executable, "-c", program, s3_url, repr(s3_options)], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "from-False from-True\n", run.stderr


def test_get_many_runs_side_by_side_and_leaves_no_threads(store: S3Store, s3_endpoint: S3Server) -> None:
    for i in range(8):
        store.put(f"k/{i}", b"%d" % i)
    s3_endpoint.fault("hang_after", method="GET", seconds=0.3, times=8)
    start = time.monotonic()
    assert store.get_many([f"k/{i}" for i in range(8)]) == [b"%d" % i for i in range(8)]
    assert time.monotonic() - start < 1.5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lake-request")]


def test_pickled_store_carries_no_connection(store: S3Store) -> None:
    pickled = pickle.dumps(store)
    assert len(pickled) < 2000
    assert pickle.loads(pickled).get("a") == b"first"
    assert SECRET not in repr(store)


def test_lists_by_prefix_at_the_root_of_a_bucket(s3_endpoint: S3Server, s3_options: dict[str, object]) -> None:
    s3_endpoint.create_bucket("root")
    store = S3Store("root", storage_options=s3_options)
    keys = ["0", "0/0", "00/x", "1"]
    for key in keys:
        store.put(key, b"")
    assert [meta.key for meta in store.list("0")] == keys[:3]
    assert [meta.key for meta in store.list(start_after="/0")] == keys


def test_endpoint_of_the_options_outranks_that_of_the_environment(
    s3_url: str, s3_options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    store = open_store(s3_url, storage_options=s3_options)
    store.put("a", b"")
    assert store.exists("a")


@pytest.mark.parametrize(
    "config",
    ["[default]\nendpoint_url = {}\n", "[default]\nservices = here\n[services here]\ns3 =\n  endpoint_url = {}\n"],
)
def test_endpoint_of_the_profile_is_asked(
    s3_url: str,
    s3_options: dict[str, object],
    s3_endpoint: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: str,
) -> None:
    (tmp_path / "config").write_text(config.format(s3_endpoint.url))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {name: value for name, value in s3_options.items() if name != "endpoint_url"}
    s3_endpoint.fault("ignore_conditions", times=100)
    with pytest.raises(UnsafeStore):
        open_store(s3_url, storage_options=options)


@pytest.mark.parametrize("etag", ["", "*", "a\nb", '"a", "b"'])
def test_what_is_no_tag_matches_no_object(store: S3Store, etag: str) -> None:
    with pytest.raises(PreconditionFailed):
        store.put("a", b"second", if_match=etag)
    assert store.get("a") == b"first"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", "localhost:9000", "http://"])
def test_endpoint_that_is_no_url_is_refused(s3_options: dict[str, object], endpoint: str) -> None:
    with pytest.raises(InvalidUrl, match="endpoint_url must be http"):
        S3Store("lake", storage_options={**s3_options, "endpoint_url": endpoint})


@pytest.mark.parametrize("name", ["key", "secret", "token"])
def test_credential_with_a_line_break_is_refused(s3_options: dict[str, object], name: str) -> None:
    with pytest.raises(StoreError, match=f"{name} must not hold a line break") as caught:
        S3Store("lake", storage_options={**s3_options, name: f"{SECRET}\n"})
    _assert_silent(caught.value)


def test_panic_of_the_client_is_an_error_of_ours(s3_url: str, s3_options: dict[str, object]) -> None:
    store = open_store(s3_url, storage_options={**s3_options, "endpoint_url": "http://not a host"}, read_only=True)
    with pytest.raises(StoreError):
        store.get("a")


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
    assert _methods(s3_endpoint)[-1] == f"PUT {code[:3]}"


def test_role_of_the_options_needs_no_other_credentials(
    s3_options: dict[str, object], s3_endpoint: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    role = {
        "role_arn": "arn:aws:iam::123456789012:role/lake",
        "web_identity_token_file": str(tmp_path / "token"),
        "sts_endpoint": s3_endpoint.url,
    }
    options = {name: value for name, value in s3_options.items() if name not in ("key", "secret")}
    store = S3Store("lake", storage_options={**options, **role}, retry=QUICK)
    assert "S3Store" in repr(store._client())
    assert role.keys().isdisjoint(store.storage_options)
