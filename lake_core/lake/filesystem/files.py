"""The parts of `lake://` file systems: open files, states, and batches of writes."""

from __future__ import annotations

import errno
import io
import threading
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile
from fsspec.transaction import Transaction

from lake_core.errors import AlreadyExists, LakeError, NotFound
from lake_core.lake.errors import LakeNotFound, ReadOnly, RefNotFound
from lake_core.lake.session.session_writer import SessionWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from lake_core.lake.state.state_store import StateStore
    from lake_core.lake.state.view import Overlay

_ABSENT = object()


class FileMissing(NotFound, FileNotFoundError):
    """No file exists at a path. This is also the FileNotFoundError that users of fsspec expect."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message, key=key)
        self.errno = errno.ENOENT


class LakeMissing(LakeNotFound, FileNotFoundError):
    """A path names no lake."""


class RefMissing(RefNotFound, FileNotFoundError):
    """A path names an unknown ref."""


class FilePresent(AlreadyExists, FileExistsError):
    """A file to create already exists. A dataset's files are never replaced."""


class WriteRefused(ReadOnly, PermissionError):
    """The target of a write is a commit or a branch, or a part of a dataset that only its format may change."""


class FileChanged(LakeError, OSError):
    """An open file was written in the session that reads it, so what was read does not belong to a single state.

    Open it again.
    """


@dataclass(slots=True, eq=False)
class OpenState:
    """The state of `<lake>/<ref>`, which stays the same until it is refreshed."""

    state: StateStore
    pin: str | int | None = None
    """The commit's id, or the epoch of a shared session."""
    join: Callable[[], SessionWriter] | None = None
    """A function that joins a shared session for writing."""
    live: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The data files of datasets, by path and tree."""
    written: int = 0
    flushed: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)
    flushing: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        """Count a write."""
        with self.counting:
            self.written += 1

    def flush(self) -> None:
        """Flush writes to the shared session as one entry, together with the writes of other threads."""
        if self.join is None or not isinstance(self.state, SessionWriter):
            return
        written = self.written
        with self.flushing:
            if self.flushed < written:
                upto = self.written
                self.state.flush()
                self.flushed = upto


@dataclass(slots=True)
class WriteBatch:
    """Writes that are applied together: at the end their session has all of them, or none."""

    open_states: dict[OpenState, None] = field(default_factory=dict)
    undo: list[tuple[Overlay, str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def remember(self, open_state: OpenState, key: str) -> None:
        """Record the content of a key before it is written."""
        overlay = open_state.state.view.overlay
        with self.lock, overlay.lock:
            self.open_states[open_state] = None
            self.undo.append((overlay, key, overlay.items.get(key, _ABSENT)))

    def end(self, keep: bool) -> None:
        """Flush the writes, or undo them. They are also undone if flushing raises.

        Writes that another thread has flushed by then stay.
        """
        is_kept = False
        try:
            for open_state in self.open_states if keep else ():
                open_state.flush()
            is_kept = keep
        finally:
            if not is_kept:
                for overlay, key, item in reversed(self.undo):
                    if item is _ABSENT:
                        overlay.forget(key)
                    else:
                        overlay.set(key, item)
            self.undo.clear()


class LakeTransaction(Transaction):  # type: ignore[misc]
    """The transaction of `with fs.transaction:`. Its end flushes all writes, or discards them if the block raises."""

    def start(self) -> None:
        """Begin to collect writes."""
        super().start()
        self.fs.begin_batch()

    def complete(self, commit: bool = True) -> None:
        """End the transaction: apply all writes, or none."""
        fs, is_whole = self.fs, False
        try:
            super().complete(commit)
            is_whole = commit
        finally:
            fs.end_batch(is_whole)


class LakeReader(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is open for reading, of the state in which it was opened."""

    def __init__(self, fs: Any, path: str, open_state: OpenState, key: str, **options: Any) -> None:
        self._state, self._key = open_state.state, key
        super().__init__(fs, path, "rb", **options)
        if self.details["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, f"{key!r} is a folder of {self._state.name}", path)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data = self._state.get(self._key, start, end)
        if data.etag != self.details["ETag"]:
            raise FileChanged(f"{self._key!r} was rewritten in {self._state.name} while it was read: open it again")
        return bytes(data)


class LakeWriter(io.BytesIO):
    """A file that is open for writing. It is stored as a whole when it is closed.

    If it is not closed, or its `with` block raises, nothing is stored. The wrappers of text and compressed files close
    them even if the block raises: only `fs.transaction` undoes these.
    """

    def __init__(self, path: str, store: Callable[[bytes], None], *, autocommit: bool, data: bytes = b"") -> None:
        super().__init__(data)
        self.seek(0, io.SEEK_END)
        self.path, self._store, self._autocommit = path, store, autocommit
        self._body: bytes | None = None
        self._discarded = False

    def close(self) -> None:
        """Store the file, unless `commit` will store it."""
        if self.closed:
            return
        self._body = self.getvalue()
        super().close()
        if self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Store the deferred file."""
        if not self.closed:
            self._autocommit = False
            self.close()
        body, self._body = self._body, None
        if body is not None and not self._discarded:
            self._store(body)

    def discard(self) -> None:
        """Discard the writes."""
        self._discarded, self._body = True, None
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            warnings.warn(f"{self.path} was not closed, so it is not written", RuntimeWarning, stacklevel=2)
            self.discard()
