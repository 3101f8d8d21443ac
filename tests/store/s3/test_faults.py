"""Conflicts, overload, and answers that are lost, late or cut short."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lake_core.backoff import Backoff
from lake_core.errors import AlreadyExists, PreconditionFailed, StoreError, StoreUnavailable
from lake_core.store import open_store
from lake_core.store.cloud.retry import RetryPolicy
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import QUICK, VERBS, methods
from tests.store.s3_server import S3Server


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
    assert methods(s3_endpoint) == ["PUT 409"] * 4 + ["PUT 200"]
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


@pytest.mark.parametrize(
    "code", ["503 SlowDown", "500 InternalError", "503 ServiceUnavailable", "429 TooManyRequests", "502 BadGateway"]
)
def test_overload_is_waited_for(store: S3Store, s3_endpoint: S3Server, code: str) -> None:
    for method, use in VERBS.values():
        s3_endpoint.clear()
        s3_endpoint.fault("answer", method=method, code=code, times=2)
        use(store)
        assert methods(s3_endpoint).count(f"{method} {code[:3]}") == 2


def test_overload_that_stays_is_no_answer(store: S3Store, s3_endpoint: S3Server) -> None:
    for method, use in VERBS.values():
        s3_endpoint.clear()
        s3_endpoint.fault("answer", method=method, code="500 InternalError", times=1000)
        with pytest.raises(StoreUnavailable):
            use(store)
        assert methods(s3_endpoint).count(f"{method} 500") in (3, 6)


@pytest.mark.parametrize("kind", ["drop_before", "drop_after"])
def test_lost_connection_is_made_again(store: S3Store, s3_endpoint: S3Server, kind: str) -> None:
    for method, use in VERBS.values():
        s3_endpoint.clear()
        s3_endpoint.fault(kind, method=method)
        use(store)
        # The request was repeated by this package, not also by the client.
        assert sum(line.startswith(method) for line in methods(s3_endpoint)) in (2, 3)


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


@pytest.mark.parametrize("etag", ["", "*", "a\nb", '"a", "b"'])
def test_what_is_no_tag_matches_no_object(store: S3Store, etag: str) -> None:
    with pytest.raises(PreconditionFailed):
        store.put("a", b"second", if_match=etag)
    assert store.get("a") == b"first"


def test_panic_of_the_client_is_an_error_of_ours(s3_url: str, s3_options: dict[str, object]) -> None:
    store = open_store(s3_url, storage_options={**s3_options, "endpoint_url": "http://not a host"}, read_only=True)
    with pytest.raises(StoreError):
        store.get("a")
