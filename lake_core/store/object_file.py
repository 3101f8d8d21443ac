"""An object as a seekable file, for libraries that read formats such as Parquet.

Bytes come through the store's `get`.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from lake_core.store.object_store import ObjectStore

_WHOLE = 4 << 20
"""Up to this size one request for the whole object costs less than several for its parts."""


class ObjectFile(io.RawIOBase):
    """Random access to one object by ranged reads.

    Args:
        store: Where the object is.
        key: Its key.
        size: Its size, which saves a request.
        tail: What is served instead of its last bytes.
    """

    def __init__(self, store: ObjectStore, key: str, size: int | None = None, tail: bytes = b"") -> None:
        self._store, self._key, self._tail = store, key, tail
        self._size = store.head(key).size if size is None else size
        self._position = 0

    def readable(self) -> bool:
        """Return True: the file serves reads only."""
        return True

    def seekable(self) -> bool:
        """Return True: a seek costs no request."""
        return True

    def size(self) -> int:
        """Return the size of the object in bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position of the next byte to read."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move, also past the end, where reads return nothing. Raises OSError before the start."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(f"seek before the start of {self._key}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read up to `size` bytes in one request; all to the end by default."""
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        split = self._size - len(self._tail)
        if end <= split:
            data: bytes = self._store.get(self._key, self._position, end)
        else:
            stored = self._store.get(self._key, self._position, split) if self._position < split else b""
            data = bytes(stored) + self._tail[max(self._position - split, 0) : end - split]
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Read into the buffer, and return the number of bytes read."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def is_read_at_once(size: int) -> bool:
    """Return whether `open_object` reads an object of this size as a whole."""
    return size <= _WHOLE


def open_object(store: ObjectStore, key: str, size: int | None = None, tail: bytes = b"") -> pa.NativeFile:
    """Open an object as an Arrow input file, with `tail` instead of its last bytes.

    Small objects are read at once. Raises NotFound and the store's other errors.
    """
    if size is None:
        size = store.head(key).size
    if not is_read_at_once(size):
        path = None if tail else store.local_path(key)
        if path is not None:
            return pa.OSFile(path)
        return pa.PythonFile(ObjectFile(store, key, size, tail), mode="r")
    body = store.get(key)
    return pa.BufferReader(bytes(body[: -len(tail)]) + tail if tail else body)
