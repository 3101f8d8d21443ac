"""An optional cache of ranges in a local folder, with a limited size. Several processes can share it.

Files are named after their contents, so they never become stale. A file appears as a whole, by renaming a temporary
one. A file that is damaged nevertheless is detected when it is read, and is dropped and fetched again. The least
recently used files are evicted first. Processes that have read them are not affected.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path

from lake_core.graveler.table import FOOTER, MAGIC

_DEFAULT_BYTES = 1 << 30
_TEMPORARY = ".tmp-"
_ABANDONED = 3600.0
_TOUCH_AFTER = 60.0


class RangeCache:
    """Files of ranges and metaranges under `folder`.

    The files take at most `max_bytes`, and a sixteenth more for each process that adds files. The default folder is
    `lake-orch/ranges` in the user's cache folder (`XDG_CACHE_HOME`, `~/.cache`). The folder is created when the first
    file is put. If it cannot be written, nothing is cached and nothing fails.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, max_bytes: int = _DEFAULT_BYTES) -> None:
        if max_bytes < 0:
            raise ValueError("the size of a cache must not be negative")
        self.folder = Path(folder) if folder is not None else default_folder()
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._unseen: int | None = None

    def get(self, name: str, space: str = "") -> bytes | None:
        """Return a whole file, or None. `space` separates stores that must not trust the files of one another."""
        path = self._path(name, space)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if len(data) < FOOTER or data[-8:] != MAGIC:
            self.drop(name, space)
            return None
        # This is only a hint for the eviction, and the file may already be gone.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _TOUCH_AFTER:
                os.utime(path)
        return data

    def part(self, name: str, start: int, end: int, space: str = "") -> bytes | None:
        """Return the bytes [start, end) of a file, or None if the file is not cached.

        Return fewer bytes if the file ends earlier.
        """
        try:
            with self._path(name, space).open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError:
            return None

    def put(self, name: str, data: bytes, space: str = "") -> None:
        """Keep a file, unless it is larger than an eighth of the cache or cannot be written."""
        if len(data) > self.max_bytes // 8:
            return
        path = self._path(name, space)
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return
        with self._lock:
            if self._unseen is not None:
                self._unseen += len(data)
            due = self._unseen is None or self._unseen > self.max_bytes // 16
            if due:
                self._unseen = 0
        if due:
            self.trim()

    def drop(self, name: str, space: str = "") -> None:
        """Forget a file that turned out to be damaged."""
        with contextlib.suppress(OSError):
            self._path(name, space).unlink(missing_ok=True)

    def trim(self) -> int:
        """Delete the least recently used files until the others fit. Also delete incomplete files of dead processes.

        Return how many bytes the remaining files take.
        """
        files: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    stat = os.stat(path)
                    if name.startswith(_TEMPORARY):
                        if time.time() - stat.st_mtime > _ABANDONED:
                            os.unlink(path)
                    else:
                        files.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in files)
        if total > self.max_bytes:
            # Some spare room keeps the next file from walking the folder again.
            for _, size, path in sorted(files):
                if total <= self.max_bytes - self.max_bytes // 16:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(path)
                total -= size
        return total

    def _path(self, name: str, space: str) -> Path:
        inner = hashlib.sha256(space.encode()).hexdigest()[:16]
        return self.folder / inner / name[:2] / name

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (str(self.folder), self.max_bytes)


def default_folder() -> Path:
    """Return `lake-orch/ranges` below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        root = Path(tempfile.gettempdir()) / f"cache-{os.getuid() if hasattr(os, 'getuid') else 0}"
    return root / "lake-orch" / "ranges"


def _reopen(folder: str, max_bytes: int) -> RangeCache:
    return RangeCache(folder, max_bytes=max_bytes)
