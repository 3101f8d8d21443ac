"""Virtual chunks: ranges of objects outside the repository, fetched only from containers that the caller allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import fsspec

from lake_core.errors import LakeError, NotFound
from lake_core.icechunk.errors import InvalidVirtualReference, VirtualChunkError, VirtualChunkNotAuthorized
from lake_core.icechunk.http_range import read_http_range
from lake_core.icechunk.location import Location, decoded_prefix, new_location, stored_location, without_secrets
from lake_core.icechunk.manifest import VirtualChunk
from lake_core.store import LocalStore, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lake_core.icechunk.config import VirtualChunkContainer

Access: TypeAlias = "Mapping[str, Any] | ObjectStore | None"
"""The access to the objects of a container: fsspec's options, a store whose keys follow the URL prefix, or None."""

_RELATIVE = re.compile(r"vcc://([^/]+)/(.*)", re.DOTALL)
"""A location relative to a container, as icechunk 2 stores it: the name of the container, and what follows its URL."""
_BUCKETS = ("s3", "gs", "gcs", "az", "azure", "abfs")
"""Schemes of locations whose objects are read as those of a repository are."""
LARGEST = 2**63 - 1
"""The largest offset or length of a virtual chunk."""


@dataclass(frozen=True, slots=True)
class VirtualChunkSpec:
    """A virtual reference to be set.

    `etag_checksum` is the etag that the object must have when the chunk is read, and `last_updated_at_checksum` a time
    since which it must not have changed.
    """

    index: list[int]
    location: str
    offset: int
    length: int
    etag_checksum: str | None = None
    last_updated_at_checksum: datetime | None = None


def virtual_chunk(location: str, offset: int, length: int, checksum: str | datetime | None = None) -> VirtualChunk:
    """Return a checked virtual reference, with the normal form of its location.

    Raises:
        InvalidVirtualReference: The location is not an absolute URL of a known scheme, the range is not one, or the
            checksum is neither an etag nor a time with a zone.
    """
    for name, number, least in (("offset", offset, 0), ("length", length, 1)):
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= LARGEST:
            raise InvalidVirtualReference(
                f"the {name} of a virtual chunk must be a whole number of bytes, at least {least}, not {number!r}"
            )
    etag, last_modified = checked_checksum(checksum)
    return VirtualChunk(normal_location(location), offset, length, etag, last_modified)


def is_relative(location: str) -> bool:
    """Return whether a location names its container, as `vcc://name/path`."""
    return isinstance(location, str) and location.startswith("vcc://")


def normal_location(location: str) -> str:
    """Return the location of a new reference as it is stored. One that names its container is kept as it is.

    Raises InvalidVirtualReference.
    """
    if not is_relative(location):
        return new_location(location).url
    relative = _RELATIVE.fullmatch(location)
    if relative is None or not relative.group(2):
        raise InvalidVirtualReference(
            f"the location {without_secrets(location)[:200]!r} must be vcc://, the name of a virtual chunk container, "
            "and a path in it"
        )
    return location


def checked_checksum(checksum: str | datetime | None) -> tuple[str | None, int]:
    """Return an etag, and a time in seconds since the epoch or 0. Raises InvalidVirtualReference."""
    if checksum is None or isinstance(checksum, str):
        return checksum, 0
    if not isinstance(checksum, datetime) or checksum.tzinfo is None:
        raise InvalidVirtualReference(
            f"the checksum of a virtual chunk must be an etag or a time with a time zone, not {checksum!r}"
        )
    last_modified = int(checksum.timestamp())
    if not 0 < last_modified < 2**32:
        raise InvalidVirtualReference(
            f"the checksum of a virtual chunk must be a time from 1970 to 2106, not {checksum}"
        )
    return None, last_modified


@dataclass(frozen=True, slots=True)
class VirtualChunks:
    """The containers of a repository, and the access that the caller grants to them."""

    containers: Mapping[str, VirtualChunkContainer]
    """By URL prefix, as configured."""
    authorized: Mapping[str, Access]
    """By URL prefix."""
    _buckets: dict[tuple[str, str], ObjectStore] = field(default_factory=dict, repr=False, compare=False)
    """The stores of buckets, by the URL prefix of the container and the URL of the bucket."""

    def container(self, location: Location) -> VirtualChunkContainer | None:
        """Return the container that holds a location: the one with the longest prefix, or None."""
        prefixes = [prefix for prefix in self.containers if location.name.startswith(decoded_prefix(prefix))]
        return self.containers[max(prefixes, key=lambda prefix: len(decoded_prefix(prefix)))] if prefixes else None

    def check_held(self, location: Location) -> VirtualChunkContainer:
        """Return the container that holds a location. Raises InvalidVirtualReference if there is none."""
        container = self.container(location)
        if container is None:
            raise InvalidVirtualReference(
                f"no virtual chunk container of the repository holds {without_secrets(location.url)}: add one with "
                "config.set_virtual_chunk_container"
            )
        return container

    def absolute(self, location: str) -> str:
        """Return a stored location as an absolute URL. Raises InvalidVirtualReference for an unknown container."""
        relative = _RELATIVE.fullmatch(location)
        if relative is None:
            return location
        name, rest = relative.groups()
        prefixes = [prefix for prefix, container in self.containers.items() if container.name == name]
        if len(prefixes) != 1:
            raise InvalidVirtualReference(
                f"{without_secrets(location)[:200]} is relative to the virtual chunk container {name!r}, and the "
                f"repository has {len(prefixes) or 'none'} of this name: add it with config.set_virtual_chunk_container"
            )
        return prefixes[0] + rest

    def fetch(self, chunk: VirtualChunk, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of a virtual chunk.

        Raises:
            InvalidVirtualReference: No container holds the location.
            VirtualChunkNotAuthorized: The caller did not authorize the container.
            VirtualChunkError: The object is missing, too short, or changed.
            AccessDenied, StoreUnavailable: The object's bucket did not answer, or refused.
        """
        location = stored_location(self.absolute(chunk.location))
        container = self._authorized_container(location)
        if chunk.length == 0:
            raise VirtualChunkError(f"the reference to {without_secrets(location.url)} has a length of 0 bytes")
        if chunk.offset + chunk.length > LARGEST:
            raise VirtualChunkError(
                f"the reference to {without_secrets(location.url)} ends past the largest possible object"
            )
        end = chunk.length if end is None else min(end, chunk.length)
        if start >= end:
            return b""
        try:
            data = self._read(location, container, chunk, start, end)
        except (OSError, NotFound) as error:
            raise VirtualChunkError(
                f"the virtual chunk in {without_secrets(location.url)} cannot be read ({type(error).__name__}): "
                "its object is missing or unreachable"
            ) from None
        if len(data) < end - start:
            raise VirtualChunkError(
                f"{without_secrets(location.url)} is too short: a chunk in it ends at byte "
                f"{chunk.offset + chunk.length}"
            )
        return data

    def open_buckets(self, locations: Iterable[str]) -> None:
        """Open the buckets of those of some stored locations that may be read.

        Processes that lack this package, and get this object by value, can then read them.
        """
        for text in locations:
            try:
                location = stored_location(self.absolute(text))
                container = self._authorized_container(location)
            except (InvalidVirtualReference, VirtualChunkNotAuthorized):
                continue
            access = self.authorized[container.url_prefix]
            if location.scheme in _BUCKETS and not isinstance(access, ObjectStore):
                self._bucket(location, container, access)

    def _authorized_container(self, location: Location) -> VirtualChunkContainer:
        container = self.check_held(location)
        if container.url_prefix not in self.authorized:
            raise VirtualChunkNotAuthorized(
                f"the virtual chunk container {container.url_prefix} is not authorized: open the repository with "
                f"authorize_virtual_chunk_access={{…}}"
            )
        return container

    def _read(
        self, location: Location, container: VirtualChunkContainer, chunk: VirtualChunk, start: int, end: int
    ) -> bytes:
        prefix = decoded_prefix(container.url_prefix)
        access = self.authorized[container.url_prefix]
        key = location.name[len(prefix) :]
        if isinstance(access, LocalStore):
            return _read_file(os.path.join(access.root, key), chunk, start, end)
        if isinstance(access, ObjectStore):
            return _read_object(access, key, chunk, start, end)
        if location.scheme == "file":
            return _read_file(f"/{location.key}", chunk, start, end)
        if location.scheme in _BUCKETS:
            return _read_object(self._bucket(location, container, access), location.key, chunk, start, end)
        if location.scheme in ("http", "https"):
            return _read_http(location.url, prefix, access or {}, chunk, start, end)
        return _read_url(location, access or {}, chunk, start, end)

    def _bucket(
        self, location: Location, container: VirtualChunkContainer, options: Mapping[str, Any] | None
    ) -> ObjectStore:
        """Return the store of the bucket that a location is in."""
        bucket = f"{location.scheme}://{location.authority}"
        store = self._buckets.get((container.url_prefix, bucket))
        if store is None:
            # Here, because the function does not travel to Spark's executors, which have their buckets open.
            from lake_core.store import open_store

            merged = {**(_s3_options(container) if location.scheme == "s3" else {}), **(options or {})}
            store = open_store(bucket, storage_options=merged, read_only=True)
            self._buckets[container.url_prefix, bucket] = store
        return store


def _check_unchanged(chunk: VirtualChunk, etag: str | None, last_modified: datetime | None) -> None:
    location = without_secrets(chunk.location)
    if (chunk.etag is not None and etag is None) or (chunk.last_modified and last_modified is None):
        raise VirtualChunkError(
            f"what serves {location} does not say whether it has changed since the reference to it was made: set the "
            "reference without a checksum (store.set_virtual_refs), or copy the object elsewhere"
        )
    if chunk.etag is not None and etag is not None and etag.strip('"') != chunk.etag.strip('"'):
        raise VirtualChunkError(f"{location} has changed since the reference to it was made: its etag differs")
    if chunk.last_modified and last_modified is not None and last_modified.timestamp() > chunk.last_modified:
        raise VirtualChunkError(f"{location} has changed since the reference to it was made")


def _read_file(path: str, chunk: VirtualChunk, start: int, end: int) -> bytes:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        # The etag that Icechunk gives a file: its inode, time in microseconds and size.
        etag = f"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"
        _check_unchanged(chunk, etag, datetime.fromtimestamp(status.st_mtime_ns / 1e9, UTC))
        if chunk.offset + chunk.length > status.st_size:
            return b""
        file.seek(chunk.offset + start)
        return file.read(end - start)


def _read_object(store: ObjectStore, key: str, chunk: VirtualChunk, start: int, end: int) -> bytes:
    data = store.get(key, chunk.offset + start, chunk.offset + end)
    _check_unchanged(chunk, data.etag, data.last_modified)
    return data


def _read_http(
    location: str, prefix: str, options: Mapping[str, Any], chunk: VirtualChunk, start: int, end: int
) -> bytes:
    def may_follow(url: str) -> bool:
        try:
            return new_location(url.partition("?")[0]).name.startswith(prefix)
        except InvalidVirtualReference:
            return False

    try:
        answer = read_http_range(location, chunk.offset + start, chunk.offset + end, options, may_follow)
    except LakeError:
        raise
    except Exception as error:
        raise _unreadable(location, error) from None
    _check_unchanged(chunk, answer.etag, answer.last_modified)
    return answer.data


def _read_url(location: Location, options: Mapping[str, Any], chunk: VirtualChunk, start: int, end: int) -> bytes:
    try:
        filesystem, path = fsspec.core.url_to_fs(location.name, **{"use_listings_cache": False, **options})
        data = bytes(filesystem.cat_file(path, start=chunk.offset + start, end=chunk.offset + end))
        if chunk.etag is not None or chunk.last_modified:
            # What is unchanged after the read was unchanged in it.
            info = filesystem.info(path)
            modified = info.get("LastModified") or info.get("mtime") or info.get("last_modified")
            _check_unchanged(
                chunk, info.get("ETag") or info.get("etag"), modified if isinstance(modified, datetime) else None
            )
        return data
    except LakeError:
        raise
    except Exception as error:
        raise _unreadable(location.url, error) from None


def _unreadable(location: str, error: Exception) -> VirtualChunkError:
    # Messages of clients may hold signed URLs.
    return VirtualChunkError(f"{without_secrets(location)[:200]} cannot be read: {type(error).__name__}")


def _s3_options(container: VirtualChunkContainer) -> dict[str, Any]:
    """Return the storage options that a container of S3 is configured with."""
    settings = container.store.options
    if not isinstance(settings, Mapping):
        return {}
    options: dict[str, Any] = {"anon": True} if settings.get("anonymous") else {}
    if settings.get("endpoint_url"):
        options["endpoint_url"] = settings["endpoint_url"]
    if settings.get("region"):
        options["client_kwargs"] = {"region_name": settings["region"]}
    if settings.get("force_path_style"):
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options
