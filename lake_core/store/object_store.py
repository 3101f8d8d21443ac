"""`ObjectStore`, the interface under every format: bytes under sorted keys, with conditional puts.

Callers use the public methods. A backend implements those that begin with an underscore; their keys are checked
already. `lake_core.testing` tests that a backend keeps the contract: run `SharedObjectStoreSuite` if several processes
share it, else `ObjectStoreSuite`. `lake_core.store.open` opens a backend by its scheme.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, overload

from lake_core.errors import NotFound
from lake_core.store.key import check_key, check_prefix, check_start_after

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

Bytes: TypeAlias = bytes | bytearray | memoryview
"""The data that `put` accepts."""

GetRequest: TypeAlias = "str | tuple[str, int | None, int | None]"
"""A key, or (key, start, end)."""


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """The metadata of an object."""

    key: str
    """The key, relative to the store's root."""
    size: int
    """Length of the whole object in bytes."""
    etag: str
    """An opaque tag that differs between any two contents that `if_match` must distinguish."""
    last_modified: datetime
    """When the object was put, by the store's clock, in UTC.

    The time that `put` returns may differ by some seconds from that of `head`.
    """

    def with_key(self, key: str) -> ObjectMeta:
        """Return the same metadata under another key, for a store that names the object so."""
        return ObjectMeta(key, self.size, self.etag, self.last_modified)


class ObjectBytes(bytes):
    """The bytes that `get` returns, with the metadata of the object that they were read from.

    For a range, `size` is still the length of the whole object.
    """

    meta: ObjectMeta

    def __new__(cls, data: Bytes, meta: ObjectMeta) -> ObjectBytes:
        """Combine the bytes of an object and its metadata in one value."""
        self = super().__new__(cls, data)
        self.meta = meta
        return self

    def __getnewargs__(self) -> tuple[bytes, ObjectMeta]:  # type: ignore[override]
        return bytes(self), self.meta

    @property
    def key(self) -> str:
        """Return the key of the object."""
        return self.meta.key

    @property
    def size(self) -> int:
        """Return the size of the whole object in bytes, even if these are only a range of it."""
        return self.meta.size

    @property
    def etag(self) -> str:
        """Return the tag of this version of the object, for `if_match`."""
        return self.meta.etag

    @property
    def last_modified(self) -> datetime:
        """Return when the object was written, by the store's clock."""
        return self.meta.last_modified


class ObjectStore(ABC):
    """Bytes under sorted keys. A store is synchronous, safe to use from many threads, and picklable.

    Keys are relative, separated by `/`, and in Unicode NFC (see `lake_core.store.key`). They are sorted by their UTF-8
    bytes. Every error is a `lake_core.errors.StoreError` that names the key.

    A key in another normal form is converted to NFC when it is written. Other tools may have left objects under other
    forms, such as NFD: a listing shows these keys unchanged, and `get`, `head`, `list` and `delete` accept them.
    """

    def get(self, key: str, start: int | None = None, end: int | None = None) -> ObjectBytes:
        """Return the bytes [start, end) of an object; by default all of them.

        A negative `start` (without `end`) counts from the object's end. A range past the end is cut, as in a slice.
        Raises NotFound, InvalidKey, AccessDenied, StoreUnavailable; ValueError for an invalid range.
        """
        _check_range(start, end)
        normal = check_key(key)
        try:
            return self._get(normal, start, end)
        except NotFound:
            if normal == key:
                raise
        return self._get(key, start, end)

    def get_many(self, requests: Iterable[GetRequest]) -> builtins.list[ObjectBytes]:
        """Return what `get` returns for each request, in order. Reads in parallel if the backend gains from it.

        Raises the first failure.
        """
        if isinstance(requests, str):
            raise TypeError("get_many needs several requests: put a single key into a list")
        whole: builtins.list[tuple[str, int | None, int | None]] = []
        foreign = False
        for request in requests:
            key, start, end = (request, None, None) if isinstance(request, str) else request
            _check_range(start, end)
            foreign |= check_key(key) != key
            whole.append((key, start, end))
        if foreign:
            return [self.get(*request) for request in whole]
        return self._get_many(whole)

    @overload
    def gather(self, first: Callable[[], A], second: Callable[[], B], /) -> tuple[A, B]: ...

    @overload
    def gather(self, first: Callable[[], A], second: Callable[[], B], third: Callable[[], C], /) -> tuple[A, B, C]: ...

    @overload
    def gather(self, *calls: Callable[[], A]) -> tuple[A, ...]: ...

    def gather(self, *calls: Callable[[], object]) -> tuple[object, ...]:
        """Call functions that use this store, concurrently if the backend gains from it, and return their results.

        Raises the first failure. The calls after it may have been made or not.
        """
        return tuple(call() for call in calls)

    def put(
        self, key: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None, unique: bool = False
    ) -> ObjectMeta:
        """Write an object atomically: a reader sees all of it or none of it. It is durable when this returns.

        With `if_absent`, write only if no object has the key: of several writers one succeeds, the others get
        AlreadyExists. With `if_match`, replace only the object with this etag: of several writers one succeeds, the
        others get PreconditionFailed. With `unique`, the caller guarantees that the key is used only once, because it
        holds a random id: a layered store may then write it to the store below, and the client may retry the put.

        Raises InvalidKey, AlreadyExists, PreconditionFailed, AccessDenied, UnsafeStore; StoreUnavailable if the outcome
        is unknown; ValueError for conditions that exclude each other.
        """
        if if_match is not None and (if_absent or unique):
            raise ValueError("if_match requires an existing object: it cannot be combined with if_absent or unique")
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"put needs bytes, not {type(data).__name__}")
        return self._put(check_key(key), data, if_absent, if_match, unique)

    def head(self, key: str) -> ObjectMeta:
        """Return an object's metadata. Raises NotFound, InvalidKey, AccessDenied, StoreUnavailable."""
        normal = check_key(key)
        try:
            return self._head(normal)
        except NotFound:
            if normal == key:
                raise
        return self._head(key)

    def exists(self, key: str) -> bool:
        """Return whether an object exists at the key."""
        try:
            self.head(key)
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[ObjectMeta]:
        """List all objects with keys that start with `prefix` and sort after `start_after`, in order.

        `prefix` is any string, not only a folder. The listing is lazy: pages that the caller does not reach are not
        requested.
        """
        normal = check_prefix(prefix)
        listed = self._list(normal, check_start_after(start_after))
        if normal == prefix:
            return listed
        return _merged(listed, self._list(prefix, start_after))

    def list_folders(self, prefix: str = "") -> builtins.list[str]:
        """List the names in the folder `prefix` ("" or ending in "/") that have objects below them, in key order."""
        if prefix and not prefix.endswith("/"):
            raise ValueError("list_folders needs '' or a prefix that ends in '/'")
        normal = check_prefix(prefix)
        folders = self._list_folders(normal)
        return (
            folders
            if normal == prefix
            else sorted({*folders, *self._list_folders(prefix)}, key=lambda name: name + "/")
        )

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Absent ones are no error. A failure names the first key that could not be deleted."""
        if isinstance(keys, str):
            raise TypeError("delete needs several keys: put a single key into a list")
        self._delete([self._standing(key) for key in keys])

    def sweep(self, before: float) -> int:
        """Delete temporary files of writers that died before the time `before`, and return how many.

        `before` is in seconds since the epoch, by the store's clock. No objects are deleted.
        """
        return 0

    def _standing(self, key: str) -> str:
        """Return the key under which to delete an object: as given if an object is there, else in normal form."""
        normal = check_key(key)
        if normal != key:
            try:
                return self._head(key).key
            except NotFound:
                pass
        return normal

    @abstractmethod
    def url(self, key: str = "") -> str:
        """Return the fsspec URL of an object, for engines that read it themselves. It is not percent-encoded.

        The key "" stands for the root.
        """

    @property
    @abstractmethod
    def storage_options(self) -> dict[str, object]:
        """Return the options with which fsspec opens `url`. They contain secrets: never log them."""

    # For formats, whose store may be one state of a lake

    @property
    def versioned(self) -> bool:
        """Return whether the store is one of several states, as a lake compares, publishes and collects them.

        A format then writes no derived files, deletes nothing that another state may need, and records what its commits
        have read.
        """
        return False

    @property
    def data_root(self) -> ObjectStore:
        """Return the store of the objects with unique names, which all states share."""
        return self

    @property
    def derived_root(self) -> ObjectStore:
        """Return the store for new objects that are derived from the newest version, such as checkpoints."""
        return self

    def detached(self, keys: Sequence[str]) -> ObjectStore:
        """Return a store that other processes can read these objects from, by the same keys."""
        return self

    def local_path(self, key: str) -> str | None:
        """Return the path of a local file that holds an object, for libraries that read files faster by themselves.

        Return None if there is no such file.
        """
        return None

    def note_scan(self) -> None:  # noqa: B027 - without effect unless a state overrides it
        """Record that the caller has read the contents of the objects, so that a later change of them can conflict."""

    def end_retention(self, before: datetime) -> None:  # noqa: B027 - without effect unless a state overrides it
        """Allow deleting what only states older than `before` need. Has no effect in a store with a single state."""

    @abstractmethod
    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        """Read a range, cut at the object's end. Raises NotFound, and what else `get` raises."""

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> builtins.list[ObjectBytes]:
        return [self._get(*request) for request in requests]

    @abstractmethod
    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        """Write an object atomically and durably.

        Raises AlreadyExists, PreconditionFailed; StoreUnavailable if the outcome is unknown.
        """

    @abstractmethod
    def _head(self, key: str) -> ObjectMeta:
        """Read an object's metadata. Raises NotFound."""

    @abstractmethod
    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        """Yield the objects under a prefix whose keys sort after `start_after`, sorted by their UTF-8 bytes."""

    @abstractmethod
    def _list_folders(self, prefix: str) -> builtins.list[str]:
        """Return the distinct names after a prefix that end in a slash, sorted."""

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects. Absent ones are no error."""


def contiguous(data: Bytes) -> bytes | memoryview:
    """Return the data as plain bytes or as a flat view of them, for backends that write in pieces.

    It is copied only if it must be.
    """
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous else view.tobytes()


def _merged(first: Iterator[ObjectMeta], second: Iterator[ObjectMeta]) -> Iterator[ObjectMeta]:
    last = None
    # Code points sort as their UTF-8 bytes do.
    for meta in heapq.merge(first, second, key=lambda meta: meta.key):
        # A store on top of another one may find the same objects by both forms.
        if meta.key != last:
            yield meta
        last = meta.key


def _check_range(start: int | None, end: int | None) -> None:
    if start is not None and start < 0 and end is not None:
        raise ValueError("a negative start counts from the end: do not pass an end with it")
    if end is not None and end < (start or 0):
        raise ValueError(f"the range ends at {end}, before its start {start or 0}")
