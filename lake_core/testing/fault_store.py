"""A store that fails at a chosen operation, to test what a crash leaves behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Literal, TypeVar

from lake_core.errors import LakeError
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_T = TypeVar("_T")

FaultMode = Literal["before", "after", "exit", "delay"]


class StoreDied(LakeError):
    """The error that a `FaultStore` raises where the process is assumed to die.

    Not a StoreError: nothing may handle it and go on.
    """


class FaultStore(ObjectStore):
    """An object store that does what `inner` does, until the operation with the number `at`.

    Every call of get, get_many, put, head (exists is one), list, list_folders and delete counts, from 1; a listing when
    it is asked for, not when it is read. At the `at`-th

    - `before`: StoreDied is raised instead of doing it, and by every later call: the process is imagined dead
    - `after`: it is done, then as above
    - `exit`: this process is killed (SIGKILL) instead of doing it
    - `delay`: it is done `delay` seconds later

    With `error`, `before` and `after` raise that once, and the store lives on. A copy by pickle counts on from where
    the original was.
    """

    def __init__(
        self,
        inner: ObjectStore,
        at: int,
        mode: FaultMode = "before",
        *,
        error: LakeError | None = None,
        delay: float = 1.0,
    ) -> None:
        if mode not in ("before", "after", "exit", "delay"):
            raise ValueError(f"unknown mode {mode!r}: before, after, exit or delay")
        if at < 0:
            raise ValueError(f"operations count from 1 (0: none fails), so at={at} makes no sense")
        if error is not None and mode not in ("before", "after"):
            raise ValueError(f"mode {mode!r} raises no error")
        self._inner = inner
        self._at = at
        self._mode = mode
        self._error = error
        self._delay = delay
        self._operations = 0
        self._writes = 0
        self._dead = False
        self._lock = threading.Lock()

    @property
    def operations(self) -> int:
        """Return how many operations were requested so far, including failed ones."""
        return self._operations

    @property
    def writes(self) -> int:
        """Return how many puts and deletions were done. Deaths after equally many leave the same objects."""
        return self._writes

    @property
    def fired(self) -> bool:
        """Return whether the chosen operation has come."""
        return 0 < self._at <= self._operations

    @property
    def inner(self) -> ObjectStore:
        """Return the wrapped store, to inspect what the crash left."""
        return self._inner

    def url(self, key: str = "") -> str:
        """Return the URL of the object in the inner store, where no faults happen."""
        return self._inner.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options of the inner store."""
        return self._inner.storage_options

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._run(f"get {key}", lambda: self._inner.get(key, start, end))

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        return self._run("get_many", lambda: self._inner.get_many(requests))

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        return self._run(
            f"put {key}",
            lambda: self._write(
                lambda: self._inner.put(key, data, if_absent=if_absent, if_match=if_match, unique=unique)
            ),
        )

    def _head(self, key: str) -> ObjectMeta:
        return self._run(f"head {key}", lambda: self._inner.head(key))

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        return self._run(f"list {prefix}", lambda: self._inner.list(prefix, start_after))

    def _list_folders(self, prefix: str) -> list[str]:
        return self._run(f"list_folders {prefix}", lambda: self._inner.list_folders(prefix))

    def _delete(self, keys: Sequence[str]) -> None:
        self._run(f"delete {', '.join(keys)}", lambda: self._write(lambda: self._inner.delete(keys)))

    def _write(self, operation: Callable[[], _T]) -> _T:
        result = operation()
        with self._lock:
            self._writes += 1
        return result

    def _run(self, what: str, operation: Callable[[], _T]) -> _T:
        with self._lock:
            self._operations += 1
            number = self._operations
            if self._dead:
                raise StoreDied(f"the store died at operation {self._at}; this is operation {number}, {what}")
            now = number == self._at
            # Dead from here on for other threads too, even while "after" is still being done.
            self._dead = now and self._error is None and self._mode in ("before", "after")
        if not now:
            return operation()
        if self._mode == "exit":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._mode == "delay":
            time.sleep(self._delay)
            return operation()
        if self._mode == "after":
            operation()
        raise self._error or StoreDied(f"the store dies {self._mode} operation {number}, {what}")

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultStore({self._inner!r}, {self._at}, {self._mode!r})"
