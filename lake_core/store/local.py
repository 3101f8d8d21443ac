"""Objects as files below one folder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import uuid
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

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
from lake_core.store.key import TEMPORARY_PREFIX, check_key, is_key
from lake_core.store.letter_case import check_case, ignores_case
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore, contiguous

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNSUPPORTED = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EMLINK)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TIDIED_UP = 100
"""The most tries to create a folder that another process removes before it has a file."""
_SMALLEST_STEP = 1_000
"""The least increase of an object's modification time when it is overwritten, in nanoseconds."""


class LocalStore(ObjectStore):
    """An object store on a POSIX file system: each key is a file below `root`, which is created by the first put.

    A put writes a temporary file in the target's folder, syncs it, links it (`if_absent`) or renames it into place, and
    syncs the folder. Overwrites, `if_match` and deletions in one folder are serialized by a lock on the folder, without
    lock files. A writer that is killed leaves at most a hidden temporary file. Files outside of the root cannot be
    accessed, even through symbolic links. Empty folders stay, because removing them would race with writers.

    `case_insensitive`: whether keys that differ only in case are one file. By default it is tested at the first put.
    """

    def __init__(self, root: str | os.PathLike[str], *, case_insensitive: bool | None = None) -> None:
        path = os.fspath(root)
        if not isinstance(path, str) or not path or "\0" in path:
            raise InvalidUrl("a local store needs the path of a folder")
        self._root = os.path.abspath(path)
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise InvalidUrl(f"{self._root} is a file, but a store needs a folder")
        self._case_insensitive = case_insensitive
        self._links_work = False

    @property
    def root(self) -> str:
        """Return the absolute path of the store's folder."""
        return self._root

    def url(self, key: str = "") -> str:
        """Return a `file://` URL, in which nothing is escaped."""
        return "file://" + (os.path.join(self._root, key) if key else self._root)

    @property
    def storage_options(self) -> dict[str, object]:
        """Return no options, because files need none."""
        return {}

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    # Reading

    def local_path(self, key: str) -> str | None:
        """Return the path of the object's file."""
        try:
            path = self._resolve(check_key(key))
            return path if stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode) else None
        except (OSError, InvalidKey):
            return None

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        with _translated(key, reading=True):
            fd = self._open_object(key)
            try:
                meta = _meta(key, os.fstat(fd))
                begin, stop, _ = slice(start, end).indices(meta.size)
                return ObjectBytes(_read(fd, begin, stop), meta)
            finally:
                os.close(fd)

    def _head(self, key: str) -> ObjectMeta:
        with _translated(key, reading=True):
            status = os.stat(self._resolve(key), follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise NotFound(f"there is no object at {key!r}", key=key)
        return _meta(key, status)

    def _open_object(self, key: str) -> int:
        # O_NONBLOCK: opening a named pipe in the folder must not hang.
        fd = os.open(self._resolve(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotFound(f"there is no object at {key!r}", key=key)
        return fd

    # Listing

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        root = os.path.realpath(self._root)
        start = os.path.join(root, "")  # joined once: there may be millions of files
        folders = [self._names(root, prefix[: prefix.rfind("/") + 1], prefix, start_after)]
        while folders:
            name = next(folders[-1], None)
            if name is None:
                folders.pop()
            elif name.endswith("/"):
                folders.append(self._names(root, name, prefix, start_after))
            elif (status := _stat(name, start + name)) is None:
                continue
            elif stat.S_ISLNK(status.st_mode):
                # It may lead nowhere, or outside.
                with suppress(NotFound, InvalidKey):
                    yield self._head(name)
            elif stat.S_ISREG(status.st_mode):
                yield _meta(name, status)

    def _list_folders(self, prefix: str) -> list[str]:
        return [
            name[len(prefix) : -1]
            for name in self._names(os.path.realpath(self._root), prefix, prefix, "")
            if name.endswith("/") and next(self._list(name, ""), None) is not None
        ]

    def _names(self, root: str, folder: str, prefix: str, start_after: str) -> Iterator[str]:
        """Yield what matches in a folder ("" or ending in "/"), in order: keys, and folders ending in "/"."""
        names: list[str] = []
        with _translated(folder, reading=True), suppress(FileNotFoundError, NotADirectoryError):
            path = os.path.join(root, folder.rstrip("/")) if folder else root
            # Links to folders are not followed: a listing could leave the root, or never end.
            if not _is_free_of_links(path) and os.path.realpath(path) != path:
                return
            with os.scandir(path) as entries:
                for entry in entries:
                    name = folder + entry.name
                    # Names that can't be keys, temporary files among them, could not be read either.
                    if is_key(name):
                        names.append(name + "/" if entry.is_dir(follow_symlinks=False) else name)
        # Code points sort as their UTF-8 bytes do, and a folder as its keys do: by its name with "/".
        names.sort()
        for name in names:
            if name.endswith("/"):
                matches = name.startswith(prefix) or prefix.startswith(name)
                passed = name < start_after and not start_after.startswith(name)
            else:
                matches = name.startswith(prefix)
                passed = name <= start_after
            if matches and not passed:
                yield name

    # Writing

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        with _translated(key, reading=False):
            if if_match is not None:
                # Saves the work, and creates no folders; what counts is the comparison under the lock.
                self._compare(key, if_match)
            folder, name, temporary, fd = self._open_temporary(key)
            is_renamed = False
            try:
                _write(fd, contiguous(data))
                # Set by us: the kernel's own stamp is coarse, and an etag must not come twice if an inode is used
                # again.
                now = time.time_ns()
                os.utime(fd, ns=(now, now))
                os.fsync(fd)
                if if_absent:
                    self._probe_links(folder)
                    _link(folder, temporary, name, key)
                else:
                    self._replace(folder, fd, temporary, name, key, if_match)
                    is_renamed = True
                written = os.fstat(fd)
                os.fsync(folder)
            finally:
                _discard(folder, fd, None if is_renamed else temporary)
        return _meta(key, written)

    def _replace(self, folder: int, fd: int, temporary: str, name: str, key: str, if_match: str | None) -> None:
        with _locked(folder, key):
            try:
                old: os.stat_result | None = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                old = None
            if old is not None and stat.S_ISDIR(old.st_mode):
                raise InvalidKey(f"{key!r} is a folder here: pass the key of an object below it", key=key)
            if if_match is not None:
                _check_match(key, None if old is None else _etag(old), if_match)
            if old is not None:
                _outdate(fd, old.st_mtime_ns)
                # Hadoop writes checksums beside the files of local folders, and refuses a file that has another one.
                with suppress(OSError):
                    os.unlink(f".{name}.crc", dir_fd=folder)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _compare(self, key: str, if_match: str) -> None:
        try:
            etag = self._head(key).etag
        except NotFound:
            etag = None
        _check_match(key, etag, if_match)

    def _delete(self, keys: Sequence[str]) -> None:
        folders: dict[str, list[str]] = {}
        for key in keys:
            with _translated(key, reading=True):
                self._resolve(key)
            folders.setdefault(key[: key.rfind("/") + 1], []).append(key)
        for folder, inside in folders.items():
            self._delete_in(folder, inside)

    def _delete_in(self, folder: str, keys: Sequence[str]) -> None:
        key = keys[0]
        # If the folder does not exist, the object does not either.
        with _translated(key, reading=False), suppress(FileNotFoundError, NotADirectoryError):
            fd = os.open(os.path.dirname(self._resolve_parent(key)[0]), _FOLDER)
            try:
                with _locked(fd, key):
                    for key in keys:
                        with _translated(key, reading=False), suppress(FileNotFoundError):
                            name = key[len(folder) :]
                            if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                                os.unlink(name, dir_fd=fd)
                os.fsync(fd)
            finally:
                os.close(fd)

    # Paths

    def sweep(self, before: float) -> int:
        """Delete the temporary files of writers that died before `before`, which no listing shows."""
        swept = 0
        for folder, _, names in os.walk(self._root, followlinks=False):
            for name in names:
                if name.startswith(TEMPORARY_PREFIX):
                    path = os.path.join(folder, name)
                    with suppress(FileNotFoundError):
                        if os.stat(path, follow_symlinks=False).st_mtime < before:
                            os.unlink(path)
                            swept += 1
        return swept

    def _resolve_parent(self, key: str) -> tuple[str, str]:
        """Return the path of the key, and the root, both with the links of their folders resolved.

        Raises InvalidKey if the links lead outside.
        """
        parent, _, name = key.rpartition("/")
        folder = os.path.join(self._root, parent) if parent else self._root
        if _is_free_of_links(folder):
            return os.path.join(folder, name), self._root
        root = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(root, parent)) if parent else root
        if not _inside(real, root):
            raise InvalidKey(f"key {key!r} leads outside the store through a symbolic link", key=key)
        return os.path.join(real, name), root

    def _resolve(self, key: str) -> str:
        """Return the path of the key with all links resolved. Raises InvalidKey if they lead outside."""
        path, root = self._resolve_parent(key)
        if os.path.islink(path):
            path = os.path.realpath(path)
            if not _inside(path, root):
                raise InvalidKey(f"key {key!r} leads outside the store through a symbolic link", key=key)
        return path

    def _open_temporary(self, key: str) -> tuple[int, str, str, int]:
        """Return (descriptor of the key's folder, the file's name in it, a temporary file's name and descriptor).

        Creates the folder, durably.
        """
        temporary = TEMPORARY_PREFIX + uuid.uuid4().hex
        for _ in range(_TIDIED_UP):
            # Another process may remove empty folders meanwhile. Once the folder has a file, it stays.
            with suppress(FileNotFoundError):
                grown = self._make_folder(self._root, key)
                if self._case_insensitive is None:
                    self._case_insensitive = ignores_case(self._root)
                if self._case_insensitive:
                    check_case(key, self._root)
                path, name = os.path.split(self._resolve(key))
                grown += self._make_folder(path, key)
                folder = os.open(path, _FOLDER | os.O_NOFOLLOW)
                try:
                    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
                except BaseException:
                    os.close(folder)
                    raise
                try:
                    for above in grown:
                        _sync_folder(above)
                except BaseException:
                    _discard(folder, fd, temporary)
                    raise
                return folder, name, temporary, fd
        raise StoreUnavailable(f"the folder of {key!r} is removed by another process each time it is created", key=key)

    def _make_folder(self, folder: str, key: str) -> list[str]:
        """Make a folder. Returns the existing folders that got a new one and still have to be synced."""
        missing: list[str] = []
        path = folder
        while True:
            try:
                mode = os.stat(path).st_mode
            except (FileNotFoundError, NotADirectoryError):
                missing.append(path)
                path = os.path.dirname(path)
                continue
            if stat.S_ISDIR(mode):
                break
            above = os.path.relpath(path, os.path.realpath(self._root))
            raise InvalidKey(f"{key!r} cannot be below the object {above!r} on a file system", key=key)
        for path in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(path)
        return [os.path.dirname(path) for path in missing]

    def _probe_links(self, folder: int) -> None:
        """Raise UnsafeStore unless a second link of one name fails here, which is what makes `if_absent` atomic."""
        if self._links_work:
            return
        first, second = (TEMPORARY_PREFIX + uuid.uuid4().hex for _ in range(2))
        try:
            os.close(os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder))
            try:
                os.link(first, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                reason = os.strerror(error.errno)
                raise UnsafeStore(
                    f"{self._root} is on a file system without hard links ({reason}): {_UNSAFE}"
                ) from None
            try:
                os.link(first, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                self._links_work = True
            else:
                raise UnsafeStore(
                    f"{self._root} is on a file system where a new link replaces an existing file: {_UNSAFE}"
                )
        finally:
            for name in (first, second):
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)


_UNSAFE = "concurrent writers could lose data, so nothing is written. Use a local disk or an object store"


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _is_free_of_links(folder: str) -> bool:
    """Return whether a folder exists and no part of its absolute path is a symbolic link; False if this is unknown.

    Linux knows the path of an open folder. Reading it takes a fraction of the time of resolving each part.
    """
    if not hasattr(os, "O_PATH"):
        return False
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == folder
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _stat(key: str, path: str) -> os.stat_result | None:
    """Return the status of a listed file or link; None if it has been deleted since."""
    try:  # without context managers, because there may be millions
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError:
        with _translated(key, reading=True):
            raise
    return None


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, _etag(status), _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1_000))


def _check_match(key: str, etag: str | None, if_match: str) -> None:
    if etag != if_match:
        state = "there is no object" if etag is None else f"its etag is {etag}"
        raise PreconditionFailed(f"the object at {key!r} is not the one to replace: {state}", key=key)


def _read(fd: int, begin: int, stop: int) -> bytes:
    pieces: list[bytes] = []
    while begin < stop:
        piece = os.pread(fd, stop - begin, begin)
        if not piece:
            raise OSError(errno.EIO, "the file ended before its expected size")
        pieces.append(piece)
        begin += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _discard(folder: int, fd: int, temporary: str | None) -> None:
    os.close(fd)
    if temporary is not None:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
    os.close(folder)


def _link(folder: int, temporary: str, name: str, key: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise InvalidKey(f"{key!r} is a folder here: choose a key below it", key=key) from None
        raise AlreadyExists(f"there is already an object at {key!r}", key=key) from None


def _outdate(fd: int, old: int) -> None:
    """Make the file younger than its predecessor, even if file times are coarse, so that no etag occurs twice."""
    step = _SMALLEST_STEP
    while os.fstat(fd).st_mtime_ns <= old:
        later = max(time.time_ns(), old + step)
        os.utime(fd, ns=(later, later))
        step *= 10


def _sync_folder(path: str) -> None:
    fd = os.open(path, _FOLDER)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _locked(folder: int, key: str) -> Iterator[None]:
    """Hold the folder's lock.

    It belongs to the descriptor, so threads exclude each other too, and the end of a process releases it.
    """
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError as error:
        raise UnsafeStore(
            f"the file system has no locks on folders ({os.strerror(error.errno or 0)}): {_UNSAFE}", key=key
        ) from None
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


@contextmanager
def _translated(key: str, *, reading: bool) -> Iterator[None]:
    """Turn the errors of the operating system into ours."""
    try:
        yield
    except OSError as error:
        cause = error
    else:
        return
    number = cause.errno or 0
    reason = f"{os.strerror(number)} (errno {errno.errorcode.get(number, number)})"
    if number in _ABSENT and reading:
        raise NotFound(f"there is no object at {key!r}", key=key)
    if number in (errno.ENAMETOOLONG, errno.ELOOP):
        raise InvalidKey(f"the file system does not accept the name {key!r}: {reason}", key=key)
    if number in _DENIED:
        raise AccessDenied(f"access to {key!r} is denied: {reason}", key=key)
    if number in _FULL:
        raise StoreError(f"could not write {key!r}: {reason}", key=key)
    raise StoreUnavailable(f"the file system failed at {key!r}: {reason}", key=key)
