"""From a location to a store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lake_core.errors import InvalidUrl, LakeError
from lake_core.store import LocalStore, MemoryStore, open_store


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    locations: dict[str | Path, Path] = {
        str(tmp_path / "a"): tmp_path / "a",
        tmp_path / "a": tmp_path / "a",
        "relative/b/": tmp_path / "relative/b",
        ".": tmp_path,
        "~/a": tmp_path / "home/a",
        f"file://{tmp_path}/a": tmp_path / "a",
        f"FILE://{tmp_path}/a/": tmp_path / "a",
        f"file:{tmp_path}/a": tmp_path / "a",
        f"file://{tmp_path}/a%20b+c?d#e": tmp_path / "a%20b+c?d#e",
        "name@host:x": tmp_path / "name@host:x",
    }
    for location, root in locations.items():
        store = open_store(location)
        assert isinstance(store, LocalStore)
        assert store.root == str(root), location
        assert open_store(store.url()).url() == store.url() == f"file://{root}"
        assert store.storage_options == {}
    assert list(tmp_path.iterdir()) == []


def test_memory() -> None:
    store = open_store("memory://a/b")
    assert isinstance(store, MemoryStore)
    assert store.url("c") == "memory://a/b/c"
    with pytest.raises(InvalidUrl):
        open_store("memory://")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("gs://bucket/a/b/", "GCSStore('gs://bucket/a/b')"),
        ("gcs://bucket", "GCSStore('gs://bucket')"),
        ("az://container/a", "AzureBlobStore('az://container/a')"),
        ("abfs://container/a", "AzureBlobStore('az://container/a')"),
        ("abfss://container@account.dfs.core.windows.net/a", "AzureBlobStore('az://container/a')"),
        ("wasbs://container@account.blob.core.windows.net/a", "AzureBlobStore('az://container/a')"),
    ],
)
def test_clouds_are_opened_by_their_urls(url: str, shown: str) -> None:
    store = open_store(url, read_only=True)
    assert repr(store) == shown
    if "@" in url:
        assert store.storage_options["account_name"] == "account"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("gs://b/x", "must be gs://bucket/prefix, but the bucket of this one is not valid"),
        ("az://UPPER/x", "must be az://container/prefix, but the container of this one is not valid"),
        ("abfss://c@acct.dfs.core.windows.net/x", "must be az://container/prefix"),
        (Path("gs://bucket/x"), "this pathlib.Path was made from a gs:// URL"),
    ],
)
def test_locations_in_clouds_that_are_wrong_say_what_is_right(url: str | Path, reason: str) -> None:
    with pytest.raises(InvalidUrl, match=re.escape(reason)):
        open_store(url)


@pytest.mark.parametrize("scheme", ["https", "hdfs", "S4", "adl"])
def test_unknown_scheme_names_the_known_ones(scheme: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        open_store(f"{scheme}://somewhere/x")
    for supported in ("file://", "memory://", "s3://", "gs://", "az://", "abfss://", repr(scheme.lower())):
        assert supported in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("dbfs:/x", "scheme 'dbfs'. Databricks' file system is not supported: pass the s3:// URL"),
        ("dbfs://x", "Databricks' file system is not supported"),
        ("adl://acct.azuredatalakestore.net/x", "scheme 'adl'. Data Lake Storage Gen1 is not supported"),
        ("gs:/bucket/x", "two slashes"),
        ("hdfs:/x", "HDFS is not supported"),
        ("s3n://bucket/x", "pass an s3:// URL"),
        ("odd:/x", "scheme 'odd'. This kind of location is unknown"),
        ("S3:/bucket", "two slashes"),
    ],
)
def test_locations_of_other_kinds_are_not_taken_for_folders(
    url: str | os.PathLike[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidUrl, match=re.escape(reason)) as raised:
        open_store(url)
    assert "Supported are paths and file://, memory://, s3://, s3a://" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["C:/data/lake", "c:/x", "a/b:/c", "./odd:/x"])
def test_drives_and_folders_with_colons_are_paths(path: str) -> None:
    assert isinstance(open_store(path), LocalStore)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAID:hunter2@bucket/prefix",
        "s3a://hunter2@bucket",
        "s3://AKIAID:hunter2/with/slash@bucket/prefix",
        "s3://AKIAID:hunter2",
        "https://user:hunter2@host/x",
        "gs://user:hunter2@host/x",
        "file://user:hunter2@host/x",
        "memory://user:hunter2@name",
        "simplecache::s3://AKIAID:hunter2@bucket/prefix",
        Path("s3://AKIAID:hunter2@bucket/prefix"),
        "s3:/AKIAID:hunter2@bucket",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str | os.PathLike[str]) -> None:
    with pytest.raises(InvalidUrl) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert "AKIAID" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_credentials_in_an_endpoint_are_refused_and_not_repeated() -> None:
    for options in (
        {"endpoint_url": "http://me:hunter2@host"},
        {"client_kwargs": {"endpoint_url": "http://me:hunter2@host"}},
    ):
        with pytest.raises(InvalidUrl) as caught:
            open_store("s3://bucket", storage_options=options)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3://",
        "s3:///x",
        "s3://b",
        "s3://bucket//x",
        "s3://bucket/a/../b",
        "s3://bu cket/x",
        "file://relative",
        "s3://fast--eun1-az1--x-s3",
        "a/s3://b",
        Path("s3://bucket/x"),
        Path("memory://x"),
        b"bytes",
    ],
)
def test_what_is_no_location(url: str) -> None:
    with pytest.raises(InvalidUrl):
        open_store(url)


def test_s3_urls_without_a_network() -> None:
    """AWS is known to be good: it is not asked at opening."""
    for url, shown in {
        "s3://bucket": "s3://bucket",
        "s3a://bucket/a/b c/": "s3://bucket/a/b c",
        "S3://bucket/%41": "s3://bucket/%41",
    }.items():
        store = open_store(url, storage_options={"key": "KEY-1", "secret": "SECRET-1"})
        assert store.url() == shown
        assert store.url("x/y") == f"{shown}/x/y"
        assert repr(store) == f"S3Store({shown!r})"
        assert store.storage_options == {"key": "KEY-1", "secret": "SECRET-1"}


def _python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_obstore_is_imported_only_for_clouds() -> None:
    program = """
import sys
import lake_core.store
lake_core.store.open_store("memory://a"), lake_core.store.open_store("/tmp")
print([name for name in ("obstore", "botocore", "s3fs") if name in sys.modules])
lake_core.store.S3Store
print([name for name in ("obstore", "s3fs") if name in sys.modules])
"""
    assert _python(program) == "[]\n['obstore']\n"


def test_missing_obstore_says_what_to_install() -> None:
    program = """
import sys
sys.modules["obstore"] = None
from lake_core.errors import LakeError
from lake_core.store import open_store
try:
    open_store("s3://bucket")
except LakeError as error:
    print(error)
"""
    assert "lake-orch[s3]" in _python(program)
    assert issubclass(InvalidUrl, LakeError)
