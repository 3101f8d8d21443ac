"""Deleting, listing, and what other clients and other services leave or answer."""

from __future__ import annotations

import unicodedata
import urllib.parse
import urllib.request

import pytest

from lake_core.errors import AccessDenied, StoreError, StoreUnavailable
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import assert_silent, methods, raw
from tests.store.s3_server import SECRET, S3Server


def test_delete_tells_the_key_that_failed(store: S3Store, s3_endpoint: S3Server) -> None:
    prefix = store.url("").removeprefix("s3://lake/")
    answer = "<DeleteResult><Error><Key>{}/{}</Key><Code>{}</Code><Message>{}</Message></Error></DeleteResult>"
    s3_endpoint.fault("answer", method="POST", code="200 OK", body=answer.format(prefix, "c", "AccessDenied", SECRET))
    with pytest.raises(AccessDenied) as caught:
        store.delete(["a", "b", "c"])
    assert caught.value.key == "c"
    assert_silent(caught.value)
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
    assert methods(s3_endpoint) == ["POST 200"] * 2 + ["DELETE 204"]


def test_folder_markers_and_foreign_names_are_not_listed(store: S3Store, s3_endpoint: S3Server, s3_url: str) -> None:
    root = "/" + s3_url.removeprefix("s3://")
    for name in ("/", "/folder/", "/.lake-tmp-probe-1"):
        raw(s3_endpoint, root + name, "PUT")
    raw(s3_endpoint, root + "-neighbour/x", "PUT")
    store.put("folder/y", b"")
    assert [meta.key for meta in store.list()] == ["a", "folder/y"]
    assert store.list_folders() == ["folder"]
    raw(s3_endpoint, root + "/empty/", "PUT")
    assert [meta.key for meta in store.list()] == ["a", "folder/y"]


@pytest.mark.parametrize("size", [0, 1])
def test_folder_marker_is_listed_behind_names_that_sort_before_its_slash(
    store: S3Store, s3_endpoint: S3Server, s3_url: str, size: int
) -> None:
    store.put("folder", b"x" * size)
    for key in ("folder-2/x", "folder/y"):
        store.put(key, b"")
    raw(s3_endpoint, "/" + s3_url.removeprefix("s3://") + "/folder/", "PUT")
    assert [meta.key for meta in store.list("folder")] == ["folder", "folder-2/x", "folder/y"]
    store.delete(["folder"])
    assert [meta.key for meta in store.list("folder")] == ["folder-2/x", "folder/y"]


@pytest.mark.parametrize("name", ["folder//x", "./x", "tab%09x"])
def test_foreign_name_that_cannot_be_a_key_is_named(
    store: S3Store, s3_endpoint: S3Server, s3_url: str, name: str
) -> None:
    """Nothing is silently left out of a listing: what a listing leaves out could be collected."""
    raw(s3_endpoint, "/" + s3_url.removeprefix("s3://") + "/" + name, "PUT")
    with pytest.raises(StoreError, match=r"a name that is not valid here, '.*x'.*Rename or delete it"):
        list(store.list())
    assert store.get("a") == b"first"


def test_foreign_normal_form_is_reached_by_its_own_name(store: S3Store, s3_endpoint: S3Server, s3_url: str) -> None:
    decomposed = unicodedata.normalize("NFD", "café/é")
    raw(s3_endpoint, "/" + s3_url.removeprefix("s3://") + "/" + urllib.parse.quote(decomposed), "PUT")
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


def test_lists_by_prefix_at_the_root_of_a_bucket(s3_endpoint: S3Server, s3_options: dict[str, object]) -> None:
    s3_endpoint.create_bucket("root")
    store = S3Store("root", storage_options=s3_options)
    keys = ["0", "0/0", "00/x", "1"]
    for key in keys:
        store.put(key, b"")
    assert [meta.key for meta in store.list("0")] == keys[:3]
    assert [meta.key for meta in store.list(start_after="/0")] == keys
