"""An object store in a cloud. obstore sends the requests."""

from __future__ import annotations

import itertools
import os
import re
import uuid
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import obstore

from lake_core.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidKey,
    InvalidUrl,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
)
from lake_core.store.cloud.failure import Failure, Kind, redact
from lake_core.store.cloud.requests import Requests
from lake_core.store.cloud.retry import RetryPolicy
from lake_core.store.cloud.server_clock import ServerClock
from lake_core.store.key import TEMPORARY_PREFIX, is_key
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore, contiguous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_TAG = re.compile(r"(?!\*$)[^\x00-\x1f\x7f,]+")
"""The pattern of an object's etag. It excludes the star, which matches any object."""
_LARGEST_PUT = 5 * 2**30
_LARGEST_KEY = 1024
_DELETE_BATCH = 1000
_PAGE = 1000
_MOST_PARALLEL = 16
_SLOWEST_UPLOAD = 64 * 1024
"""Bytes a second."""
_SMALL = 4 * 2**20
"""The size in bytes up to which all puts have the same time limit."""
_UNLIMITED = timedelta(days=1)


class _Safety(Enum):
    UNKNOWN = auto()
    SAFE = auto()
    UNSAFE = auto()


class _Runtime:
    """Records whether obstore's threads run. A forked child does not have them, so its requests would hang."""

    started: ClassVar[bool] = False
    lost: ClassVar[bool] = False
    """True if this process was forked from one in which they run."""

    @classmethod
    def forked(cls) -> None:
        cls.lost = cls.started


# The process id is not compared, because classes are sent by value to Spark's executors, which are other processes.
os.register_at_fork(after_in_child=_Runtime.forked)


class CloudStore(Requests, ObjectStore):
    """An object store below a prefix of a bucket.

    A put is one request, so an object holds at most 5 GiB. A conditional put stores an id in the object's metadata. By
    this id, a retry recognizes the object of an earlier attempt.

    The clouds themselves honor conditional puts. Any other endpoint is tested with an object that has a hidden name and
    is deleted afterwards. `check_conditional_puts` does this (`open_store` calls it), or else the first put.

    A child process that was forked after the first request cannot send requests. Start it with `spawn` or `forkserver`.
    """

    hosts: ClassVar[tuple[str, ...]]
    """The domains of the cloud's own servers."""
    put_id: ClassVar[str] = "lake-put"
    """The name of the metadata that holds the id of a conditional put."""
    suffix_ranges: ClassVar[bool] = True
    """True if the service can read the last bytes of an object without its size."""

    def __init__(
        self, name: str, prefix: str, storage_options: Mapping[str, object] | None, retry: RetryPolicy | None
    ) -> None:
        prefix = prefix.rstrip("/")
        if prefix and not is_key(prefix):
            raise InvalidUrl(
                f"the prefix {prefix[:80]!r} is not valid: "
                "it must not have empty, '.' or '..' parts or control characters"
            )
        self._name = name
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = dict(storage_options or {})
        self._retry = retry or RetryPolicy()
        self._safety = _Safety.UNKNOWN
        self._clients: dict[tuple[int | None, bool], Any] = {}
        self._clock = ServerClock()

    @abstractmethod
    def _connect(self, client_options: Mapping[str, object], one_by_one: bool) -> Any:
        """Return an obstore store at the root of the bucket.

        Args:
            client_options: Time limits, and whether the endpoint is reached without TLS.
            one_by_one: Delete each object by a request of its own, even if the service supports batches.

        Raises:
            AccessDenied: There are no credentials.
            StoreError: The options are not valid.
        """

    def _open(
        self,
        kind: Callable[..., Any],
        config: Mapping[str, object],
        client_options: Mapping[str, object],
        provider: Any,
    ) -> Any:
        """Return an obstore store of this kind. Raises StoreError, without secrets, if obstore refuses the options."""
        try:
            return kind(
                self._name,
                config=config,
                client_options=client_options,
                retry_config={"max_retries": 0},
                credential_provider=provider,
            )
        except Exception as error:
            refused = redact(f"{type(error).__name__}: {error}", self._secrets())
        raise StoreError(f"obstore does not accept the storage_options: {refused}")

    @abstractmethod
    def _limits(self) -> tuple[float, float]:
        """Return the most seconds to connect, and the most seconds to wait for a response or for its next part."""

    def _metadata(self) -> dict[str, str]:
        """Return the metadata that every object gets by the options."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url()!r})"

    def __getstate__(self) -> dict[str, object]:
        # The process that unpickles this store may have an environment with another endpoint.
        safety = self._safety if self.endpoint(environment=False) is not None else _Safety.UNKNOWN
        return {**self.__dict__, "_safety": safety, "_clients": {}, "_clock": ServerClock()}

    # Reading

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        if end is not None and end == (start or 0):
            return ObjectBytes(b"", self._head(key))
        path = self._path(key)
        if start is not None and start < 0 and not self.suffix_ranges:
            return self._get_end(key, -start)
        requested: dict[str, object] | None = None
        if end is not None:
            requested = {"range": (start or 0, end)}
        elif start:
            requested = {"range": {"suffix": -start} if start < 0 else {"offset": start}}
        answer = self.ask(key, partial(self._fetch, path, requested))
        if isinstance(answer, Failure) and answer.kind is Kind.RANGE_IGNORED:
            data, meta = self.answer(key, partial(self._fetch, path, None))
            return ObjectBytes(memoryview(data)[start:end], self._meta(key, meta))
        if isinstance(answer, Failure):
            if answer.kind is Kind.RANGE:
                return ObjectBytes(b"", self._head(key))
            self.fail(answer, key)
        data, meta = answer
        return ObjectBytes(data, self._meta(key, meta))

    def _get_end(self, key: str, length: int) -> ObjectBytes:
        """Read the last bytes of an object. Request its size first."""
        while True:
            size = self._head(key).size
            data = self._get(key, max(0, size - length), None)
            # Otherwise the object was replaced in between, and these are not its last bytes.
            if data.size == size:
                return data

    def _fetch(self, path: str, requested: Mapping[str, object] | None) -> tuple[Any, Any]:
        answer = obstore.get(self._client(), path, options=requested)  # type: ignore[arg-type]
        return answer.bytes(), answer.meta

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        if len(requests) < 2:
            return super()._get_many(requests)
        return _in_parallel(lambda request: self._get(*request), requests)

    def gather(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        """Call functions in parallel, because each of them waits for the network."""
        return tuple(_in_parallel(lambda call: call(), calls))

    def _head(self, key: str) -> ObjectMeta:
        path = self._path(key)
        return self._meta(key, self.answer(key, lambda: obstore.head(self._client(), path)))

    def _head_with_id(self, key: str) -> tuple[ObjectMeta, str | None]:
        path = self._path(key)
        answer = self.answer(key, lambda: obstore.get(self._client(), path, options={"head": True}))
        return self._meta(key, answer.meta), answer.attributes.get(self.put_id)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        folder = prefix[: prefix.rfind("/") + 1]
        offset = max(start_after, _just_before(prefix) if prefix != folder else "")
        last = ""
        for page in self._sorted(self._pages(folder, offset)):
            metas = []
            for item in page:
                path: str = item["path"]
                if path <= last:
                    if item["size"] or f"{path}/" < last:
                        raise StoreError(
                            f"{self.url()} lists {path!r} after {last!r}, not in the order of keys, "
                            "so it cannot be used",
                            key=prefix,
                        )
                    # Services sort the marker of a folder by its name with the slash: after "folder-2".
                    last = f"{path}/"
                    continue
                last = path
                key = path[len(self._prefix) :]
                # Names that are not keys belong to other tools, or to probes.
                if key.startswith(prefix) and key > start_after and is_key(key):
                    metas.append(self._meta(key, item))
            yield from self._without_markers(metas)
            if last > self._prefix + prefix and not last.startswith(self._prefix + prefix):
                # All other objects sort after the keys with the prefix.
                return

    def _sorted(self, pages: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Return the pages of a listing in the order of their keys' UTF-8 bytes. Most services list in this order."""
        return pages

    def _pages(self, folder: str, offset: str) -> Iterator[Sequence[Any]]:
        path = (self._prefix + folder).rstrip("/") or None
        stream: Any = None
        after = _valid_offset(self._prefix + offset) if offset else None

        def next_page() -> Sequence[Any] | None:
            nonlocal stream
            if stream is None:
                stream = obstore.list(self._client(), path, offset=after, chunk_size=_PAGE)
            try:
                return next(stream, None)
            except Exception:
                # After a failure, the stream only ends. The next attempt begins after the last page.
                stream = None
                raise

        while page := self.answer(folder, next_page):
            yield page
            # The last item may be the marker of a folder, whose listed name sorts before the items in front of it.
            after = max(item["path"] for item in page)

    def _without_markers(self, metas: list[ObjectMeta]) -> Iterable[ObjectMeta]:
        """Leave out the markers of folders: objects named `folder/` that are listed as `folder`.

        Only an empty object can be a marker. It is looked up by its listed name: a marker does not exist by that name.
        """
        empty = [meta.key for meta in metas if not meta.size]
        if not empty:
            return metas
        existing = _in_parallel(self.exists, empty)
        markers = {key for key, exists in zip(empty, existing, strict=True) if not exists}
        return (meta for meta in metas if meta.key not in markers)

    def _list_folders(self, prefix: str) -> list[str]:
        path = (self._prefix + prefix).rstrip("/") or None
        answer = self.answer(prefix, lambda: obstore.list_with_delimiter(self._client(), path))
        folders = (folder.rstrip("/")[len(self._prefix) :] for folder in answer["common_prefixes"])
        return sorted((folder[len(prefix) :] for folder in folders if is_key(folder)), key=lambda name: f"{name}/")

    # Writing

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        path = self._path(key)
        if if_match is not None and not _TAG.fullmatch(if_match):
            raise PreconditionFailed(f"the object at {key!r} is not the one to replace", key=key)
        size = memoryview(data).nbytes
        if size > _LARGEST_PUT:
            raise StoreError(
                f"{key!r} would be larger than 5 GiB, which {self.service} does not accept in one put: split it",
                key=key,
            )
        self._ensure_safe(key[: key.rfind("/") + 1])
        put_id = uuid.uuid4().hex if if_absent or if_match is not None else None
        mode = self._mode(key, if_absent, if_match)
        answer = self.ask(key, partial(self._send, path, contiguous(data), mode, put_id))
        if not isinstance(answer, Failure):
            return ObjectMeta(key, size, answer["e_tag"], self._clock.now(partial(self._head, key)))
        refused = answer.kind is Kind.PRECONDITION or (answer.kind is Kind.ABSENT and if_match is not None)
        if not refused or put_id is None:
            self.fail(answer, key)
        # The request may have been retried after a response was lost. Then the object may be that of the first attempt.
        with suppress(NotFound, AccessDenied):
            meta, existing_id = self._head_with_id(key)
            if existing_id == put_id:
                return meta
        if if_absent:
            raise AlreadyExists(f"there is already an object at {key!r}", key=key)
        if answer.after_unknown_outcome:
            raise StoreUnavailable(
                f"an earlier attempt to put {key!r} may have succeeded, and its object may have been replaced since",
                key=key,
            )
        raise PreconditionFailed(f"the object at {key!r} is not the one to replace, or there is none", key=key)

    def _send(self, path: str, data: Any, mode: Any, put_id: str | None) -> Any:
        attributes = {**self._metadata(), **({self.put_id: put_id} if put_id else {})}
        return obstore.put(
            self._client(len(data)), path, data, mode=mode, attributes=attributes or None, use_multipart=False
        )

    def _mode(self, key: str, if_absent: bool, if_match: str | None) -> Any:
        """Return the condition of a put as obstore takes it."""
        if if_match is not None:
            return {"e_tag": if_match}
        return "create" if if_absent else "overwrite"

    def _delete(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), _DELETE_BATCH):
            batch = keys[begin : begin + _DELETE_BATCH]
            if len(batch) == 1 or not self._delete_batch(batch):
                _in_parallel(self._delete_one, batch)

    def _delete_one(self, key: str) -> None:
        path = self._path(key)
        answer = self.ask(key, lambda: obstore.delete(self._client(one_by_one=True), path))
        if isinstance(answer, Failure) and answer.kind is not Kind.ABSENT:
            self.fail(answer, key)

    def _delete_batch(self, keys: Sequence[str]) -> bool:
        """Delete the keys in one request. Return False if the service does not support this, or an object is absent."""
        paths = [self._path(key) for key in keys]
        answer = self.ask(keys[0], lambda: obstore.delete(self._client(), paths))
        if not isinstance(answer, Failure):
            return True
        if answer.kind in (Kind.UNSUPPORTED, Kind.ABSENT, Kind.OTHER):
            return False
        self.fail(answer, self._key_at(answer.path) or keys[0])

    # Safety

    def check_conditional_puts(self) -> None:
        """Test whether an endpoint that is not the cloud's own honors conditional puts.

        Without permission to write, this cannot be tested. Then the store can be read, and is tested again before the
        first put.

        Raises:
            UnsafeStore: The endpoint ignores conditional puts.
            NotFound: The bucket does not exist.
            StoreUnavailable: The endpoint does not answer.
        """
        if self.endpoint() is None:
            return
        with suppress(AccessDenied):
            self._ensure_safe("")

    def _ensure_safe(self, folder: str) -> None:
        if self._safety is _Safety.UNKNOWN:
            safe = self._is_own_endpoint() or self._probe(f"{folder}{TEMPORARY_PREFIX}probe-{uuid.uuid4().hex}")
            self._safety = _Safety.SAFE if safe else _Safety.UNSAFE
        if self._safety is _Safety.UNSAFE:
            raise UnsafeStore(
                f"the store at {self.url()} ignores conditional puts (if absent, if unchanged): concurrent writers "
                f"could lose data, so nothing is written. Use {self.service} or a store that honors them"
            )

    def _is_own_endpoint(self) -> bool:
        """Return whether requests go to the cloud's own servers, which honor conditional puts."""
        endpoint = self.endpoint()
        return endpoint is None or (urlsplit(endpoint).hostname or "").endswith(self.hosts)

    def _probe(self, key: str) -> bool:
        """Return whether the service honors conditional puts. Test it with an object at the key, and delete that."""
        path = self._path(key)
        created = self.ask(None, partial(self._send, path, b"", "create", None))
        if isinstance(created, Failure):
            if created.kind is Kind.UNSUPPORTED:
                return False
            # An earlier attempt, whose response was lost, may have created the object.
            if created.kind is not Kind.PRECONDITION:
                self.fail(created, None)
        try:
            return self._refused(path, "create") and self._refused(path, self._other_version())
        finally:
            # Without permission to delete, the object remains. It has a hidden name.
            self.ask(None, lambda: obstore.delete(self._client(one_by_one=True), path))

    def _other_version(self) -> Any:
        """Return a condition that no object meets."""
        return {"e_tag": '"00000000000000000000000000000000"'}

    def _refused(self, path: str, mode: Any) -> bool:
        answer = self.ask(None, partial(self._send, path, b"", mode, None), retry_conflicts=False)
        if not isinstance(answer, Failure) or answer.kind is Kind.UNSUPPORTED:
            return False
        if answer.kind not in (Kind.PRECONDITION, Kind.CONFLICT, Kind.ABSENT):
            self.fail(answer, None)
        return True

    # Requests

    def _path(self, key: str) -> str:
        path = self._prefix + key
        if len(path.encode()) > _LARGEST_KEY:
            raise InvalidKey(f"key {key[:80]!r}… is longer than {_LARGEST_KEY} bytes with the store's prefix", key=key)
        return path

    def _key_at(self, path: str) -> str | None:
        inside = path.startswith(self._prefix) and len(path) > len(self._prefix)
        return path[len(self._prefix) :] if inside else None

    def _meta(self, key: str, item: Any) -> ObjectMeta:
        # Only some listings have fractions of a second.
        return ObjectMeta(key, item["size"], item["e_tag"], item["last_modified"].replace(microsecond=0))

    def _client(self, body: int | None = None, *, one_by_one: bool = False) -> Any:
        """Return an obstore store whose time limits fit a request with a body of this size, or without a body."""
        if _Runtime.lost:
            raise StoreError(
                f"this process was forked from one that had already sent requests to {self.service}, and cannot send "
                "any: start processes with the method 'spawn' or 'forkserver' of multiprocessing"
            )
        limit = None if body is None else body.bit_length() if body > _SMALL else 0
        client = self._clients.get((limit, one_by_one))
        if client is None:
            client = self._connect(self._client_options(limit), one_by_one)
            client = self._clients.setdefault((limit, one_by_one), client)
        _Runtime.started = True
        return client

    def _client_options(self, limit: int | None) -> dict[str, object]:
        """Return obstore's options for requests whose bodies have up to `limit` bits in their length."""
        connect, read = self._limits()
        # The response to a put begins after all of it was sent. The body of other responses may take any time, as long
        # as its parts arrive.
        upload = 2**limit / _SLOWEST_UPLOAD if limit else 0
        endpoint = self.endpoint()
        return {
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=connect),
            "read_timeout": timedelta(seconds=read + upload),
            "timeout": _UNLIMITED if limit is None else timedelta(seconds=connect + read + upload),
        }


def _in_parallel(function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
    """Apply a function that sends requests to all arguments. After a failure, cancel the other calls and raise it."""
    if len(arguments) < 2:
        return [function(argument) for argument in arguments]
    pool = ThreadPoolExecutor(min(_MOST_PARALLEL, len(arguments)), thread_name_prefix="lake-request")
    try:
        return list(pool.map(function, arguments))
    finally:
        pool.shutdown(cancel_futures=True)


def _valid_offset(offset: str) -> str | None:
    """Return the longest prefix of a text at which obstore can begin a listing, or None if there is none.

    It does not sort after the text.
    """
    components = offset.split("/")
    valid = itertools.takewhile(lambda component: component not in ("", ".", ".."), components)
    return "/".join(valid) or None


def _just_before(prefix: str) -> str:
    """Return a text that sorts before every key with the prefix, and after most keys that sort before those."""
    previous = ord(prefix[-1]) - 1
    if 0xD800 <= previous <= 0xDFFF:
        previous = 0xD7FF
    # Names cannot contain control characters. In that case, the whole folder is listed up to the prefix.
    return f"{prefix[:-1]}{chr(previous)}~~~~" if previous > 0x20 and not 0x7E < previous < 0xA1 else prefix[:-1]
