"""Stores in the server of the tests, and what that server received."""

from __future__ import annotations

import traceback
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

from lake_core.backoff import Backoff
from lake_core.store import ObjectStore
from lake_core.store.cloud.retry import RetryPolicy
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3_server import KEY, SECRET, S3Server

QUICK = RetryPolicy(attempts=3, conflict_seconds=0.5, backoff=Backoff(0.01, 0.05))


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


def connect(url: str, connected: S3Store, retry: RetryPolicy | None = None) -> S3Store:
    """Return a store that shares the connections of another one, which is known to honor conditions."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    store = S3Store(bucket, prefix, storage_options=connected.storage_options, retry=retry)
    store._clients, store._safety, store._clock = connected._clients, connected._safety, connected._clock
    return store


def raw(server: S3Server, url: str, method: str = "GET") -> bytes:
    with urllib.request.urlopen(
        urllib.request.Request(server.url + url, method=method, data=b"" if method == "PUT" else None)
    ) as answer:
        data: bytes = answer.read()
        return data


def methods(server: S3Server) -> list[str]:
    return [f"{method} {status}" for method, _, status in (line.split(" ") for line in server.requests())]


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def assert_silent(error: BaseException) -> None:
    for cause in _chain(error):
        for text in (str(cause), repr(cause), repr(cause.args), "".join(traceback.format_exception(cause))):
            assert SECRET not in text
            assert KEY not in text
    assert error.__cause__ is None
    assert error.__context__ is None
