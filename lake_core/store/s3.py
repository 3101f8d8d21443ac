"""Objects in S3 and in stores that speak its protocol. s3fs does the talking."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any, NoReturn
from urllib.parse import urlsplit

from fsspec.asyn import sync

from lake_core import runtime
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
from lake_core.store.key import TEMPORARY_PREFIX, is_key
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.s3_retry import RetryPolicy

try:
    import s3fs
    from aiobotocore.httpsession import AIOHTTPSession

    from lake_core.store.s3_failure import Failure, Kind, failure_of, failure_of_code, reason_at, redact, secrets_of
except ImportError:
    raise LakeError("S3 needs s3fs, which is not installed: install it with `pip install 'lake-orch[s3]'`") from None

_LARGEST_PUT = 5 * 2**30
_LARGEST_KEY = 1024
_DELETE_BATCH = 1000
_SIDE_BY_SIDE = 16
_SLOWEST_UPLOAD = 64 * 1024
"""Bytes a second."""
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{1,254}")
_PUT_ID = "lake-put"
"""Metadata of an object: the id of the conditional put that wrote it, by which a repeated put knows its own work."""


class _SendOnce(AIOHTTPSession):  # type: ignore[misc]
    """An HTTP session that sends a PUT only once.

    aiohttp sends it again by itself when the connection is lost. The second is refused for what the first did, and the
    caller cannot know which.
    """

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        # No public name for it; tests would show that it stopped working.
        session._retry_connection = False
        return session


_CONFIG = {
    "http_session_cls": _SendOnce,
    # Retrying is done here, where an unknown outcome is known to be one.
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "connect_timeout": 10,
    "read_timeout": 60,
    "max_pool_connections": 2 * _SIDE_BY_SIDE,
    # Other stores than AWS refuse the checksums that newer clients send unasked.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


class _Safety(Enum):
    UNKNOWN = auto()
    SAFE = auto()
    UNSAFE = auto()


class S3Store(ObjectStore):
    """An object store below a prefix of an S3 bucket.

    `storage_options` are those of s3fs: key, secret, token, endpoint_url, client_kwargs, config_kwargs, anon, ….
    A put is one request, so an object holds at most 5 GiB. Conditional puts leave their id in the object's metadata
    (`lake-put`).

    AWS honours conditional puts; any other endpoint is asked, by `check_conditional_puts` (as `open_store` does) or at
    the first put: with an object of a hidden name that is deleted again.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        storage_options: Mapping[str, object] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not _BUCKET.fullmatch(bucket):
            # Not repeated: it may be half of a URL with credentials in it.
            raise InvalidUrl("an S3 URL must be s3://bucket/prefix, and this one names no valid bucket")
        if bucket.endswith("--x-s3"):
            raise InvalidUrl(
                f"{bucket} is a directory bucket of S3 Express, which does not list in order: "
                "use a general purpose bucket"
            )
        prefix = prefix.rstrip("/")
        if prefix and not is_key(prefix):
            raise InvalidUrl(
                f"the prefix {prefix[:80]!r} is not valid: "
                "it must not have empty, '.' or '..' parts or control characters"
            )
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = dict(storage_options or {})
        self._retry = retry or RetryPolicy()
        self._safety = _Safety.UNKNOWN
        # By process id: neither connections nor event loops outlive a fork, and closing the parent's from a child would
        # hang.
        self._file_systems: dict[int, Any] = {}
        if (endpoint := self._endpoint_option()) is not None:
            parts = urlsplit(endpoint)
            if parts.username is not None or parts.password is not None:
                raise InvalidUrl("endpoint_url must not hold credentials: pass them as key and secret")

    def url(self, key: str = "") -> str:
        """Return an `s3://` URL."""
        return f"s3://{self._bucket}/{self._prefix}{key}".rstrip("/")

    @property
    def storage_options(self) -> dict[str, object]:
        """The options that the store was opened with. Holds secrets: never log them."""
        return dict(self._options)

    def __repr__(self) -> str:
        return f"S3Store({self.url()!r})"

    def __getstate__(self) -> dict[str, object]:
        # Which endpoint the environment names is asked again elsewhere.
        safety = self._safety if self._endpoint_option(environment=False) is not None else _Safety.UNKNOWN
        return {**self.__dict__, "_safety": safety, "_file_systems": {}}

    # Reading

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        if end is not None and end == (start or 0):
            return ObjectBytes(b"", self._head(key))
        arguments: dict[str, object] = {"Key": self._path(key)}
        if start or end is not None:
            first = start or 0
            arguments["Range"] = f"bytes={first}" if first < 0 else f"bytes={first}-{'' if end is None else end - 1}"
        answer = self._ask(key, "get_object", arguments)
        if isinstance(answer, Failure):
            if answer.kind is Kind.RANGE:
                return ObjectBytes(b"", self._head(key))
            self._raise(answer, key)
        body: bytes = answer["Body"]
        if (content_range := answer.get("ContentRange")) is not None:
            size = int(content_range.rpartition("/")[2])
        else:
            # No range was asked for, or the store ignored it.
            size = len(body)
            body = body[start:end]
        return ObjectBytes(body, ObjectMeta(key, size, answer["ETag"], _seconds(answer["LastModified"])))

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        if len(requests) < 2:
            return super()._get_many(requests)
        pool = ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(requests)), thread_name_prefix="lake-get")
        try:
            return list(pool.map(lambda request: self._get(*request), requests))
        finally:
            pool.shutdown(cancel_futures=True)

    def _head(self, key: str) -> ObjectMeta:
        return self._head_with_id(key)[0]

    def _head_with_id(self, key: str) -> tuple[ObjectMeta, str | None]:
        answer = self._answer(key, "head_object", {"Key": self._path(key)})
        meta = ObjectMeta(key, answer["ContentLength"], answer["ETag"], _seconds(answer["LastModified"]))
        return meta, answer.get("Metadata", {}).get(_PUT_ID)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        arguments = {"StartAfter": self._prefix + start_after} if start_after else {}
        last = ""
        for page in self._pages(prefix, arguments):
            for item in page.get("Contents", ()):
                path: str = item["Key"]
                if path <= last:
                    raise StoreError(
                        f"{self.url()} lists {path!r} after {last!r}, not in the order of keys, so it cannot be used",
                        key=prefix,
                    )
                last = path
                key = path[len(self._prefix) :]
                # Others are folder markers, names of foreign tools, and probes.
                if is_key(key):
                    yield ObjectMeta(key, item["Size"], item["ETag"], _seconds(item["LastModified"]))

    def _list_folders(self, prefix: str) -> list[str]:
        folders: list[str] = []
        for page in self._pages(prefix, {"Delimiter": "/"}):
            for item in page.get("CommonPrefixes", ()):
                folder: str = item["Prefix"][len(self._prefix) : -1]
                if is_key(folder):
                    folders.append(folder[len(prefix) :])
        return folders

    def _pages(self, prefix: str, arguments: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        arguments = {"Prefix": self._prefix + prefix, **arguments}
        while True:
            page = self._answer(prefix, "list_objects_v2", arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments = {**arguments, "ContinuationToken": page["NextContinuationToken"]}

    # Writing

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        path = self._path(key)
        if memoryview(data).nbytes > _LARGEST_PUT:
            raise StoreError(
                f"{key!r} would be larger than 5 GiB, which S3 does not accept in one put: split it", key=key
            )
        self._ensure_safe(key[: key.rfind("/") + 1])
        body = data if isinstance(data, bytes) else bytes(data)
        arguments: dict[str, object] = {"Key": path, "Body": body}
        put_id = uuid.uuid4().hex
        if if_absent:
            arguments["IfNoneMatch"] = "*"
        if if_match is not None:
            arguments["IfMatch"] = if_match
        if if_absent or if_match is not None:
            arguments["Metadata"] = {**self._default_metadata(), _PUT_ID: put_id}
        answer = self._ask(key, "put_object", arguments)
        if not isinstance(answer, Failure):
            return ObjectMeta(key, len(body), answer["ETag"], _date(answer))
        refused = answer.kind is Kind.PRECONDITION or (answer.kind is Kind.ABSENT and if_match is not None)
        if not refused or not (if_absent or if_match is not None):
            self._raise(answer, key)
        # The client may have sent the request twice, over a connection that was lost: then the second met the first.
        stored = self._standing_put(key)
        if stored is not None and stored[1] == put_id:
            return stored[0]
        if if_absent:
            raise AlreadyExists(f"there is already an object at {key!r}", key=key)
        if answer.after_unknown_outcome:
            raise StoreUnavailable(
                f"an earlier attempt to put {key!r} may have succeeded, and its object may have been replaced since",
                key=key,
            )
        raise PreconditionFailed(f"the object at {key!r} is not the one to replace, or there is none", key=key)

    def _standing_put(self, key: str) -> tuple[ObjectMeta, str | None] | None:
        try:
            return self._head_with_id(key)
        except (NotFound, AccessDenied):
            return None

    def _default_metadata(self) -> dict[str, str]:
        defaults = self._options.get("s3_additional_kwargs")
        return dict(defaults.get("Metadata", {})) if isinstance(defaults, Mapping) else {}

    def _delete(self, keys: Sequence[str]) -> None:
        for begin in range(0, len(keys), _DELETE_BATCH):
            batch = keys[begin : begin + _DELETE_BATCH]
            if len(batch) == 1 or not self._delete_batch(batch):
                for key in batch:
                    self._answer(key, "delete_object", {"Key": self._path(key)}, absent_is_fine=True)

    def _delete_batch(self, keys: Sequence[str]) -> bool:
        """Delete the keys in one request. Returns False if this store takes no batches."""
        left = {self._path(key): key for key in keys}
        for attempt in range(self._retry.attempts):
            first = next(iter(left.values()))
            batch = {"Objects": [{"Key": path} for path in left], "Quiet": True}
            answer = self._ask(first, "delete_objects", {"Delete": batch})
            if isinstance(answer, Failure):
                if answer.kind is Kind.UNSUPPORTED or answer.code in ("MissingContentMD5", "InvalidRequest"):
                    return False
                self._raise(answer, first)
            failures = {
                item["Key"]: failure_of_code(item.get("Code", ""), item.get("Message", ""), 0, self._secrets())
                for item in answer.get("Errors", ())
            }
            failures = {path: failure for path, failure in failures.items() if failure.kind is not Kind.ABSENT}
            for path, failure in failures.items():
                if failure.kind not in (Kind.UNKNOWN_OUTCOME, Kind.THROTTLED, Kind.CONFLICT):
                    self._raise(failure, left.get(path, path))
            if not failures:
                return True
            left = {path: key for path, key in left.items() if path in failures}
            self._retry.backoff.wait(attempt + 1)
        path, failure = next(iter(failures.items()))
        raise StoreUnavailable(
            f"S3 did not delete {left.get(path, path)!r}: {failure.reason}", key=left.get(path, path)
        )

    # Safety

    def check_conditional_puts(self) -> None:
        """Ask an endpoint other than AWS whether it honours conditional puts. Raises UnsafeStore if not.

        Without permission to write, nothing is found out: the store can be read, and is asked again before the first
        put. Raises NotFound (no such bucket) and StoreUnavailable too.
        """
        if self._endpoint_option() is None:
            return
        with suppress(AccessDenied):
            self._ensure_safe("")

    def _ensure_safe(self, folder: str) -> None:
        if self._safety is _Safety.UNKNOWN:
            client = self._client()
            parameters = client.meta.service_model.operation_model("PutObject").input_shape.members
            if "IfMatch" not in parameters or "IfNoneMatch" not in parameters:
                raise UnsafeStore(
                    "the installed botocore does not support conditional puts: upgrade s3fs, aiobotocore and botocore"
                )
            host = urlsplit(client.meta.endpoint_url).hostname or ""
            safe = host.endswith(_AWS_HOSTS) or self._probe(
                self._path(f"{folder}{TEMPORARY_PREFIX}probe-{uuid.uuid4().hex}")
            )
            self._safety = _Safety.SAFE if safe else _Safety.UNSAFE
        if self._safety is _Safety.UNSAFE:
            raise UnsafeStore(
                f"the store at {self.url()} ignores conditional puts (If-None-Match, If-Match): concurrent "
                "writers could lose data, so nothing is written. Use AWS S3 or a store that honors them"
            )

    def _probe(self, path: str) -> bool:
        """Return whether conditions are honored, tested with an object at the path, which is deleted again."""
        created = self._ask(None, "put_object", {"Key": path, "Body": b"", "IfNoneMatch": "*"})
        if isinstance(created, Failure):
            if created.kind is Kind.UNSUPPORTED:
                return False
            # A first attempt whose answer was lost may have made it.
            if created.kind is not Kind.PRECONDITION:
                self._raise(created, None)
        try:
            return self._refused(path, IfNoneMatch="*") and self._refused(
                path, IfMatch='"00000000000000000000000000000000"'
            )
        finally:
            # Who may write but not delete leaves it behind: it is hidden.
            self._ask(None, "delete_object", {"Key": path})

    def _refused(self, path: str, **condition: str) -> bool:
        answer = self._ask(None, "put_object", {"Key": path, "Body": b"", **condition}, retry_conflicts=False)
        if not isinstance(answer, Failure) or answer.kind is Kind.UNSUPPORTED:
            return False
        if answer.kind not in (Kind.PRECONDITION, Kind.CONFLICT, Kind.ABSENT):
            self._raise(answer, None)
        return True

    # Talking

    def _path(self, key: str) -> str:
        path = self._prefix + key
        if len(path.encode()) > _LARGEST_KEY:
            raise InvalidKey(f"key {key[:80]!r}… is longer than {_LARGEST_KEY} bytes with the store's prefix", key=key)
        return path

    def _answer(
        self, key: str, operation: str, arguments: Mapping[str, object], *, absent_is_fine: bool = False
    ) -> dict[str, Any]:
        answer = self._ask(key, operation, arguments)
        if not isinstance(answer, Failure):
            return answer
        if absent_is_fine and answer.kind is Kind.ABSENT:
            return {}
        self._raise(answer, key)

    def _ask(
        self, key: str | None, operation: str, arguments: Mapping[str, object], *, retry_conflicts: bool = True
    ) -> dict[str, Any] | Failure:
        """Send a request. Returns its answer, or the reason of a final failure.

        Raises StoreUnavailable when the retries are used up.
        """
        policy = self._retry
        deadline = runtime.monotonic() + policy.conflict_seconds
        attempts = conflicts = 0
        unknown = False
        while True:
            answer = self._ask_once(operation, arguments)
            if not isinstance(answer, Failure):
                return answer
            if answer.kind is Kind.CONFLICT and retry_conflicts:
                conflicts += 1
                if runtime.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"S3 kept answering {answer.code} for {self._shown(key)} for {policy.conflict_seconds:g} s: "
                        f"{answer.reason}",
                        key=key,
                    )
                policy.backoff.wait(conflicts)
                continue
            if answer.kind not in (Kind.THROTTLED, Kind.UNKNOWN_OUTCOME):
                return replace(answer, after_unknown_outcome=unknown)
            unknown |= answer.kind is Kind.UNKNOWN_OUTCOME
            attempts += 1
            if attempts >= policy.attempts:
                shown = f"{self._shown(key)} in {attempts} attempts"
                raise StoreUnavailable(
                    f"S3 gave no final answer for {shown}: {reason_at(answer, self._endpoint_option())}", key=key
                )
            policy.backoff.wait(attempts)

    def _ask_once(self, operation: str, arguments: Mapping[str, object]) -> dict[str, Any] | Failure:
        file_system = self._file_system()
        # Returned rather than raised: no error of ours then drags along one that holds headers.
        try:
            answer: dict[str, Any] = sync(
                file_system.loop,
                _call,
                file_system,
                operation,
                {"Bucket": self._bucket, **arguments},
                self._time_limit(arguments.get("Body")),
            )
        except Exception as error:
            return failure_of(error, self._secrets())
        return answer

    def _time_limit(self, body: object) -> float | None:
        """Return the seconds until a request is given up.

        aiohttp loses its own time-out when "100 Continue" comes at the wrong moment.
        """
        config = self._config()
        connect, read = config["connect_timeout"], config["read_timeout"]
        if not isinstance(connect, (int, float)) or not isinstance(read, (int, float)):
            return None
        return connect + read + (len(body) / _SLOWEST_UPLOAD if isinstance(body, bytes) else 0)

    def _config(self) -> dict[str, object]:
        options = self._options.get("config_kwargs")
        return {**_CONFIG, **(options if isinstance(options, Mapping) else {})}

    def _client(self) -> Any:
        """Return the botocore client, set to the endpoint of the options and the environment."""
        try:
            return self._file_system().s3
        except Exception as error:
            failure = failure_of(error, self._secrets())
        self._raise(failure, None)

    def _file_system(self) -> Any:
        process = os.getpid()
        file_system = self._file_systems.get(process)
        if file_system is not None:
            return file_system
        options = {
            **self._options,
            "config_kwargs": self._config(),
            "use_listings_cache": False,
            "skip_instance_cache": True,
            "asynchronous": False,
            "loop": None,
        }
        try:
            file_system = s3fs.S3FileSystem(**options)
        except Exception as error:
            refused = redact(f"{type(error).__name__}: {error}", self._secrets())
        else:
            # s3fs's own retries would hide that an outcome was unknown.
            file_system.retries = 1
            return self._file_systems.setdefault(process, file_system)
        raise StoreError(f"s3fs does not accept the storage_options: {refused}")

    def _endpoint_option(self, *, environment: bool = True) -> str | None:
        client = self._options.get("client_kwargs")
        named = [self._options.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, Mapping) else None]
        if environment:
            named += [os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")]
        return next((str(endpoint) for endpoint in named if endpoint), None)

    def _secrets(self) -> Iterator[str]:
        return secrets_of(self._options)

    def _shown(self, key: str | None) -> str:
        return f"{self.url()}" if key is None else f"{key!r}"

    def _raise(self, failure: Failure, key: str | None) -> NoReturn:
        shown = self._shown(key)
        match failure.kind:
            case Kind.NO_BUCKET:
                raise NotFound(f"the bucket {self._bucket!r} does not exist", key=key)
            case Kind.ABSENT:
                raise NotFound(f"there is no object at {shown}", key=key)
            case Kind.DENIED:
                hint = (
                    ". S3 also answers so for missing objects if the caller may not list the bucket"
                    if failure.code == "403"
                    else ""
                )
                raise AccessDenied(f"S3 refused access to {shown} ({failure.reason}){hint}", key=key)
            case Kind.UNKNOWN_OUTCOME | Kind.THROTTLED | Kind.CONFLICT:
                raise StoreUnavailable(
                    f"S3 gave no final answer for {shown}: {reason_at(failure, self._endpoint_option())}", key=key
                )
            case _:
                raise StoreError(f"S3 refused a request for {shown}: {failure.reason}", key=key)


async def _call(
    file_system: Any, operation: str, arguments: Mapping[str, object], seconds: float | None
) -> dict[str, Any]:
    # Not limited: it may look for credentials.
    await file_system.set_session()
    async with asyncio.timeout(seconds):
        answer: dict[str, Any] = await file_system._call_s3(operation, **arguments)
    body = answer.get("Body")
    if body is None:
        return answer
    try:
        data: bytes = await body.read()
    finally:
        body.close()
    if len(data) != answer.get("ContentLength", len(data)):
        raise ConnectionResetError("the body ended before its expected length")
    return {**answer, "Body": data}


def _seconds(moment: datetime) -> datetime:
    """Return the time in UTC and whole seconds, as head and get return it; only some listings have more."""
    return moment.astimezone(UTC).replace(microsecond=0)


def _date(answer: Mapping[str, Any]) -> datetime:
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return _seconds(parsedate_to_datetime(date) if date else datetime.now(UTC))
