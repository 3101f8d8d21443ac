"""Open the store at a location."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lake_core.errors import CredentialsInUrl, InvalidUrl
from lake_core.store.local import LocalStore
from lake_core.store.memory import MemoryStore
from lake_core.store.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake_core.store.cloud.azure import AzureBlobStore
    from lake_core.store.cloud.gcs import GCSStore
    from lake_core.store.cloud.s3 import S3Store

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://(.*)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/")
"""A location that is not a path. A single letter is a drive of Windows."""
# pathlib changes URLs: Path("s3://bucket") is "s3:/bucket".
_MANGLED = re.compile(r"(memory|s3|s3a|gs|gcs|az|azure|abfs|abfss|wasb|wasbs):/(?!/)")
_AZURE_ACCOUNT = re.compile(r"([^@/]+)@([a-z0-9]{3,24})\.(?:blob|dfs)(\.[a-z0-9.\-]+)")
"""container@account.dfs.core.windows.net, of abfss:// and wasbs:// URLs."""
_UNSUPPORTED = {
    "adl": "Data Lake Storage Gen1 is not supported: it was retired",
    "dbfs": "Databricks' file system is not supported: pass the s3:// URL that it stands for",
    "hdfs": "HDFS is not supported",
    "s3n": "Hadoop's old name for S3 is not supported: pass an s3:// URL",
}
"""Kinds of storage that callers may expect, by scheme."""


def open_store(
    url: str | os.PathLike[str], *, storage_options: Mapping[str, object] | None = None, read_only: bool = False
) -> ObjectStore:
    """Open the store at a location.

    - a path (a leading `~` is the home folder), a `pathlib.Path`, `file:///path`: a file system
    - `memory://name`: memory of this process; all stores of the same name share it
    - `s3://bucket/prefix`, `s3a://…`: S3 and services with its protocol
    - `gs://bucket/prefix`, `gcs://…`: Google Cloud Storage
    - `az://container/prefix`, `abfs://…`, `abfss://container@account.dfs.core.windows.net/prefix`: Azure Storage

    URLs are used unchanged, as by fsspec: nothing is percent-decoded, and `?` and `#` are part of the name. The root
    folder of a file system need not exist yet. A location that begins with another `name:/` is not a path, except for
    drives of Windows.

    An endpoint that is not the cloud's own is tested for conditional puts when it is opened, with an object that is
    deleted afterwards. With `read_only`, the test is made only before the first put.

    `storage_options` are those of s3fs, gcsfs, adlfs or obstore. File systems and memory need none.

    Raises InvalidUrl for a scheme that is not supported, a missing bucket, or credentials in the URL (pass them in
    `storage_options`; the message does not repeat them). For clouds also UnsafeStore, AccessDenied, StoreUnavailable;
    NotFound if there is no such bucket.
    """
    text = os.fspath(url)
    if not isinstance(text, str):
        raise InvalidUrl(f"the location of a store must be a str or a path, not {type(text).__name__}")
    if isinstance(url, Path):
        if mangled := _MANGLED.match(text):
            scheme = mangled.group(1)
            raise InvalidUrl(
                f"this pathlib.Path was made from a {scheme}:// URL, which pathlib damages: pass the URL as str"
            )
        if (other := _SCHEME.match(text)) and not text.startswith("file:"):
            raise _unsupported(other.group(1))
        return _open_path(text)
    if text.startswith("file:/") and not text.startswith("file://"):
        return _open_path(text[len("file:") :])
    match = _URL.fullmatch(text)
    if match is None:
        if mangled := _MANGLED.match(text):
            raise _unsupported(mangled.group(1))
        if "://" in text:
            raise InvalidUrl(f"the location is neither a path nor a supported kind of URL. {_supported()}")
        if other := _SCHEME.match(text):
            raise _unsupported(other.group(1))
        return _open_path(text)
    scheme, location = match.group(1).lower(), match.group(2)
    if scheme not in _OPENERS:
        # This comes before the check for credentials, because in abfss://container@account the first part is not one.
        raise _unsupported(scheme)
    authority = location.partition("/")[0]
    if "@" in authority and not (scheme in _AZURE and _AZURE_ACCOUNT.fullmatch(authority)):
        raise CredentialsInUrl(f"a {scheme}:// URL must not hold credentials: pass them in storage_options")
    return _OPENERS[scheme](location, storage_options or {}, read_only)


def store_at(
    location: str | os.PathLike[str] | ObjectStore,
    storage_options: Mapping[str, object] | None = None,
    *,
    read_only: bool = False,
) -> ObjectStore:
    """Return a store unchanged, or open the store at a location.

    Arguments and errors are those of `open_store`.
    """
    if isinstance(location, ObjectStore):
        return location
    return open_store(location, storage_options=storage_options, read_only=read_only)


def _open_path(path: str) -> LocalStore:
    if not path:
        raise InvalidUrl("the location is empty")
    return LocalStore(os.path.expanduser(path) if path == "~" or path.startswith("~/") else path)


def _open_file(location: str, storage_options: Mapping[str, object], read_only: bool) -> ObjectStore:
    if location.partition("/")[0]:
        raise InvalidUrl("a file:// URL must hold an absolute path: file:///path")
    return _open_path(location)


def _open_memory(location: str, storage_options: Mapping[str, object], read_only: bool) -> ObjectStore:
    return MemoryStore(location)


def _open_s3(location: str, storage_options: Mapping[str, object], read_only: bool) -> ObjectStore:
    # Importing obstore takes time, and it is an optional install.
    from lake_core.store.cloud.s3 import S3Store

    return _checked(S3Store, location, storage_options, read_only)


def _open_gcs(location: str, storage_options: Mapping[str, object], read_only: bool) -> ObjectStore:
    from lake_core.store.cloud.gcs import GCSStore

    return _checked(GCSStore, location, storage_options, read_only)


def _open_azure(location: str, storage_options: Mapping[str, object], read_only: bool) -> ObjectStore:
    from lake_core.store.cloud.azure import AzureBlobStore

    authority, slash, prefix = location.partition("/")
    if match := _AZURE_ACCOUNT.fullmatch(authority):
        container, account, suffix = match.groups()
        location = f"{container}{slash}{prefix}"
        storage_options = {"account_name": account, **storage_options}
        if suffix != ".core.windows.net":
            storage_options = {"account_host": f"{account}.blob{suffix}", **storage_options}
    return _checked(AzureBlobStore, location, storage_options, read_only)


def _checked(
    kind: type[S3Store | GCSStore | AzureBlobStore],
    location: str,
    storage_options: Mapping[str, object],
    read_only: bool,
) -> ObjectStore:
    bucket, _, prefix = location.partition("/")
    store = kind(bucket, prefix, storage_options=storage_options)
    if not read_only:
        store.check_conditional_puts()
    return store


_AZURE = ("az", "azure", "abfs", "abfss", "wasb", "wasbs")
_OPENERS: Mapping[str, Callable[[str, Mapping[str, object], bool], ObjectStore]] = {
    "file": _open_file,
    "memory": _open_memory,
    "s3": _open_s3,
    "s3a": _open_s3,
    "gs": _open_gcs,
    "gcs": _open_gcs,
    **dict.fromkeys(_AZURE, _open_azure),
}
"""The functions that open a store, by the scheme of its URL.

A new kind of store is added here. `_MANGLED` recognizes its damaged URLs, `lake_core.cli.permissions` names what its
policies must allow, and `lake_core.icechunk.virtual` lists where virtual chunks may lie.
"""


def _unsupported(scheme: str) -> InvalidUrl:
    scheme = scheme.lower()
    if scheme in _OPENERS:
        return InvalidUrl(f"a {scheme}: URL must have two slashes, {scheme}://…. {_supported()}")
    reason = _UNSUPPORTED.get(scheme, "This kind of location is unknown")
    return InvalidUrl(f"the location begins with the scheme {scheme!r}. {reason}. {_supported()}")


def _supported() -> str:
    return "Supported are paths and " + ", ".join(f"{scheme}://" for scheme in _OPENERS)
