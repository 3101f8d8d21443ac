"""`LakeFileSystem`, lakes as an fsspec file system."""

from __future__ import annotations

import errno
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractFileSystem

from lake_core.errors import AlreadyExists, InvalidKey, NotFound
from lake_core.lake.errors import ReadOnly
from lake_core.lake.filesystem.files import (
    FileMissing,
    FilePresent,
    LakeReader,
    LakeTransaction,
    LakeWriter,
    OpenState,
    WriteBatch,
    WriteRefused,
)
from lake_core.lake.filesystem.listing import below, children, file_info, folder_info, is_folder
from lake_core.lake.filesystem.paths import Paths, Pins
from lake_core.lake.session.write_session import WriteSession
from lake_core.lake.state.dataset_record import dataset_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lake_core.lake.state.state_store import StateStore


class LakeFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Lakes as a file system.

    - `lakes`: the locations of lakes by name; `target_options`: the `storage_options` with which they are opened.
    - `state`: read only this state, whose keys are the paths. `StateStore.filesystem()` returns such a file system.

    A branch is pinned at its first use: one instance, and its copies in other processes, read one commit. A shared
    session is read as it was then, plus what is written here. `invalidate_cache()` reads the newest states.

    Only sessions can be written. Writes to a private `Session` or a `SessionWriter` are part of it at once. On
    `lake://<lake>/<session>/` the file system joins the shared session. Each closed file, or whole `put`, `pipe`, `rm`
    or `cp`, is flushed as one entry of the lake's journal. `with fs.transaction:` flushes any number of files at once;
    write Zarr arrays this way. A file is held in memory until it is closed. Folders need not be created. Errors are
    the lake's, and also `FileNotFoundError`, `FileExistsError` and `PermissionError`.
    """

    protocol = "lake"
    root_marker = ""
    cachable = False
    transaction_type = LakeTransaction

    def __init__(
        self,
        lakes: Mapping[str, str] | None = None,
        target_options: Mapping[str, Any] | None = None,
        state: StateStore | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._bound = None if state is None else OpenState(state)
        self._paths = Paths(lakes or {}, target_options)
        self._joining = threading.Lock()
        self._local = threading.local()
        self._gathered: WriteBatch | None = None

    @property
    def fsid(self) -> str:
        """Return the id that file systems of this kind have in common."""
        return "lake"

    def __repr__(self) -> str:
        # Libraries that distinguish file systems by their text wrap this one.
        return (
            f"LakeFileSystem({self._bound.state!r} at {id(self):#x})"
            if self._bound is not None
            else f"LakeFileSystem({self._paths!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LakeFileSystem) or self._bound is not None or other._bound is not None:
            return self is other
        return self._paths == other._paths

    def __hash__(self) -> int:
        return hash(LakeFileSystem) if self._bound is None else id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._bound is not None:
            raise TypeError(
                f"{self._bound.state.name} cannot leave its process: "
                "pass on the URL that Lake.uri(ref) returns, and open that"
            )
        return _rebuilt, (type(self), self.storage_args, self.storage_options, self._paths.pins())

    def invalidate_cache(self, path: str | None = None) -> None:
        """Read the state of all branches and sessions again, whatever the path. Not within a transaction."""
        super().invalidate_cache(path)
        if not self._intrans:
            self._paths.forget()

    def _at(self, path: str) -> tuple[OpenState | None, str, str]:
        """Return the state of a path (None: above refs), the key in it, and the prefix of all paths in this state."""
        path = self._strip_protocol(path)
        if self._bound is None:
            return self._paths.find(path)
        key = path.lstrip("/")
        return self._bound, key, path[: len(path) - len(key)]

    # Reading

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the metadata of a path: name, size, type, created, modified, mtime, ETag.

        Raises FileMissing.
        """
        open_state, key, front = self._at(path)
        if open_state is None or not key:
            return folder_info(self._strip_protocol(path) if open_state is None else f"{front}{key}".rstrip("/"))
        key = key.rstrip("/")
        try:
            return file_info(front, open_state.state.head(key))
        except (NotFound, InvalidKey):
            if is_folder(open_state, f"{key}/"):
                return folder_info(front + key)
        raise FileMissing(f"there is nothing at {key!r} in {open_state.state.name}", key=path)

    def exists(self, path: str, **options: Any) -> bool:
        """Return whether a file or folder exists at the path. Errors other than its absence are raised."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """List a folder. Above refs, list a lake's branches, tags and open sessions, or the names of lakes."""
        open_state, key, front = self._at(path)
        if open_state is None:
            entries = [folder_info(f"{front}/{name}" if front else name) for name in self._paths.names(front)]
        else:
            prefix = f"{key.rstrip('/')}/" if key else ""
            entries = list(children(open_state, prefix, front))
            if not entries and key:
                entries = [self.info(path)]  # a file, or nothing
        return entries if detail else [each["name"] for each in entries]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """List all files below a path, with their folders if asked for; one listing, however deep."""
        open_state, key, front = self._at(path)
        if open_state is None or maxdepth is not None:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        key = key.rstrip("/")
        prefix = f"{key}/" if key else ""
        files: dict[str, dict[str, Any]] = {}
        for meta in below(open_state, prefix):
            files[front + meta.key] = file_info(front, meta)
            if withdirs:
                parts = meta.key.split("/")
                for length in range(prefix.count("/") + (not prefix), len(parts)):
                    name = front + "/".join(parts[:length])
                    if name.rstrip("/") and name not in files:
                        files[name] = folder_info(name)
        if not files and key and self.isfile(path):
            files[front + key] = self.info(path)
        return {name: files[name] for name in sorted(files)} if detail else sorted(files)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Read a file's bytes, or a slice of them. Raises FileMissing."""
        open_state, key, _ = self._at(path)
        if open_state is None:
            raise FileMissing(f"{path!r} is a folder", key=path)
        if (end is not None and end < 0) or (start is not None and start < 0 and end is not None):
            start, end, _ = slice(start, end).indices(self.info(path)["size"])
        if end is not None and end < (start or 0):
            end = start
        try:
            return bytes(open_state.state.get(key, start, end))
        except (NotFound, InvalidKey):
            raise FileMissing(f"there is no file at {key!r} in {open_state.state.name}", key=path) from None

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """Read ranges of files, concurrently if the store gains from it.

        An error of one range is returned in its place, or raised.
        """
        starts, ends = (each if isinstance(each, list) else [each] * len(paths) for each in (starts, ends))
        keys_by_state: dict[OpenState, list[tuple[int, str]]] = {}
        plain = len(starts) == len(ends) == len(paths) and all(
            (start or 0) >= 0 and (end is None or end >= (start or 0)) for start, end in zip(starts, ends, strict=True)
        )
        try:
            for number, path in enumerate(paths if plain else ()):
                open_state, key, _ = self._at(path)
                if open_state is None:
                    raise NotFound(path)
                keys_by_state.setdefault(open_state, []).append((number, key))
            bodies: dict[int, bytes] = {}
            for open_state, asked in keys_by_state.items():
                answers = open_state.state.get_many([(key, starts[number], ends[number]) for number, key in asked])
                bodies |= {number: bytes(data) for (number, _), data in zip(asked, answers, strict=True)}
        except (NotFound, InvalidKey, FileNotFoundError):
            plain = False  # one by one: the others are there
        if plain:
            return [bodies[number] for number in range(len(paths))]
        return list(super().cat_ranges(paths, starts, ends, on_error=on_error))

    def created(self, path: str) -> datetime:
        """Return when a file was written. Raises FileMissing; ValueError for a folder."""
        return self.modified(path)

    def modified(self, path: str) -> datetime:
        """Return when a file was written. Raises FileMissing; ValueError for a folder."""
        info = self.info(path)
        if info["type"] != "file":
            raise ValueError(f"{path!r} is a folder, which has no modification time")
        modified: datetime = info["modified"]
        return modified

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        open_state, key, _ = self._at(path)
        if mode == "rb":
            if open_state is None or not key:
                raise IsADirectoryError(errno.EISDIR, "a folder cannot be read", path)
            return LakeReader(
                self, path, open_state, key, block_size=block_size, cache_options=cache_options, **options
            )
        if mode not in ("wb", "ab", "xb"):
            raise ValueError(
                f"the mode {mode!r} is not supported: read files with rb, and write them whole with wb, ab or xb"
            )
        self._target(path)
        if mode == "xb" and self.exists(path):
            raise FilePresent(f"there is already a file at {path!r}", key=path)
        before = self.cat_file(path) if mode == "ab" and self.exists(path) else b""
        # Within a transaction a closed file is visible at once, and undone if the transaction fails.
        store = autocommit or self._gathered is not None
        return LakeWriter(path, lambda data: self._store(path, data, mode == "xb"), autocommit=store, data=before)

    # Writing

    def begin_batch(self) -> None:
        """Collect writes from now on, as `fs.transaction` does."""
        self._gathered = WriteBatch()

    def end_batch(self, keep: bool) -> None:
        """End a batch: flush its writes, or undo them."""
        batch, self._gathered = self._gathered, None
        if batch is not None:
            batch.end(keep)

    @contextmanager
    def _batch(self) -> Iterator[WriteBatch]:
        """Collect writes that are flushed together, as part of a larger batch if there is one."""
        running: WriteBatch | None = self._gathered or getattr(self._local, "batch", None)
        if running is not None:
            yield running
            return
        batch, is_whole = WriteBatch(), False
        self._local.batch = batch
        try:
            yield batch
            is_whole = True
        finally:
            self._local.batch = None
            batch.end(is_whole)

    def _target(self, path: str) -> tuple[WriteSession, OpenState, str]:
        """Return the session that a path is in, ready for writing, the state that holds it, and the path's key there.

        Raises WriteRefused, and what joining a session raises.
        """
        open_state, key, _ = self._at(path)
        if open_state is not None and open_state.join is not None and not isinstance(open_state.state, WriteSession):
            with self._joining:
                if not isinstance(open_state.state, WriteSession):
                    open_state.state = open_state.join()
        if open_state is None or not key or not isinstance(open_state.state, WriteSession):
            where = path if open_state is None else open_state.state.name
            raise WriteRefused(
                f"{where} is read-only: write {key or path!r} in a session, `with lake.session(branch) as s: "
                "s.filesystem()…`, or at `lake://<lake>/<id>/…` of a shared session that "
                "`lake.open_session(branch)` opens"
            )
        return open_state.state, open_state, key

    def _store(self, path: str, data: bytes, if_absent: bool = False) -> None:
        target, open_state, key = self._target(path)
        owned = dataset_above(key, target.datasets()) is not None
        with self._batch() as batch:
            batch.remember(open_state, key)
            try:
                # A dataset's files are immutable, and all states share them: none is ever replaced.
                target.put(key, data, if_absent=if_absent or owned)
            except AlreadyExists as error:
                raise FilePresent(str(error), key=path) from None
            except ReadOnly as error:
                raise WriteRefused(str(error)) from None
            open_state.count()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file; with mode `create`, only if none exists.

        Raises WriteRefused, FilePresent, and what the session raises.
        """
        self._store(path, value, mode == "create")

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy a file; within a lake its content is stored once."""
        if not self.isdir(path1):
            self._store(path2, self.cat_file(path1))

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files or folders. Raises FileMissing, IsADirectoryError; WriteRefused for files of a dataset."""
        files: dict[str, None] = {}
        for each in self.expand_path(path):
            info = self.info(each)
            if info["type"] == "file":
                files[each] = None
            elif recursive:
                files |= dict.fromkeys(self.find(each, maxdepth=maxdepth))
            else:
                raise IsADirectoryError(errno.EISDIR, "this is a folder: pass recursive=True", each)
        self._take_away(files)

    def _take_away(self, files: Iterable[str]) -> None:
        with self._batch() as batch:
            for target, open_state, keys in self._targets(files):
                for key in keys:
                    batch.remember(open_state, key)
                target.delete(keys)
                open_state.count()

    def _targets(self, files: Iterable[str]) -> list[tuple[WriteSession, OpenState, list[str]]]:
        """Return the files to delete by state. All are checked before one is deleted."""
        targets: dict[OpenState, tuple[WriteSession, OpenState, list[str]]] = {}
        for path in files:
            target, open_state, key = self._target(path)
            owner = dataset_above(key, target.datasets())
            if owner is not None:
                raise WriteRefused(
                    f"{key!r} belongs to the dataset {owner.path!r}: "
                    "delete rows through the dataset's format, or drop the whole dataset"
                )
            targets.setdefault(open_state, (target, open_state, []))[2].append(key)
        return list(targets.values())

    def rm_file(self, path: str) -> None:
        """Delete a file. The name is no pattern. Raises FileMissing, WriteRefused."""
        if self.info(path)["type"] != "file":
            raise IsADirectoryError(errno.EISDIR, "this is a folder", path)
        self._take_away([path])

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Do nothing: a folder exists as long as files are in it."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing: a folder exists as long as files are in it."""

    def rmdir(self, path: str) -> None:
        """Do nothing: a folder exists as long as files are in it."""

    def put(self, *args: Any, **options: Any) -> Any:
        """Copy files here as fsspec does. All files, or none."""
        with self._batch():
            return super().put(*args, **options)

    def pipe(self, *args: Any, **options: Any) -> Any:
        """Write files as fsspec does. All files, or none."""
        with self._batch():
            return super().pipe(*args, **options)

    def copy(self, *args: Any, **options: Any) -> Any:
        """Copy files as fsspec does. All files, or none."""
        with self._batch():
            return super().copy(*args, **options)

    def mv(self, *args: Any, **options: Any) -> Any:
        """Move files as fsspec does. All files, or none."""
        with self._batch():
            return super().mv(*args, **options)


def _rebuilt(kind: type[LakeFileSystem], args: Sequence[Any], options: Mapping[str, Any], pins: Pins) -> LakeFileSystem:
    file_system = kind(*args, **options)
    file_system._paths.pin(pins)
    return file_system
