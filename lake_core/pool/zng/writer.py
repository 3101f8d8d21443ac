"""Writes values as ZNG streams."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from lake_core.pool.types import Type
from lake_core.pool.value import Value
from lake_core.pool.zng.frame import END_OF_STREAM, FrameType, frame
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zng.typedef import TypeEncoder
from lake_core.varint import uvarint

FRAME_THRESHOLD: Final = 512 * 1024
"""A frame is written as soon as it has this many bytes, before they are compressed."""


class ZngWriter:
    """Writes values to a file. Call `end_stream` at the end, or use it as a context manager.

    Args:
        file: Where the bytes go.
        compress: Compress frames that become smaller by it.
        frame_threshold: Write a frame as soon as it has this many bytes.
    """

    def __init__(self, file: BinaryIO, *, compress: bool = True, frame_threshold: int = FRAME_THRESHOLD) -> None:
        self._file = file
        self._compress = compress
        self._threshold = frame_threshold
        self._types = TypeEncoder()
        self._values = bytearray()
        self._ended_at = 0
        self.position = 0
        """Bytes written so far. After `end_stream`, the next stream begins there and can be read alone from there."""

    def write(self, value: Value) -> None:
        """Write a value, or keep it until the frame is full."""
        self._values += uvarint(self._types.id(value.type))
        self._values += tagged(value.body)
        if len(self._values) >= self._threshold or self._types.pending >= self._threshold:
            self.flush()

    def write_encoded(self, type: Type, data: memoryview, offsets: npt.NDArray[np.int64]) -> None:
        """Write values of one type that are encoded already, as if they were written one by one.

        Args:
            type: Their type.
            data: Their bodies behind their tags, one behind the other.
            offsets: Where each begins in the data, and where the last one ends.
        """
        first, count = 0, len(offsets) - 1
        while first < count:
            id = uvarint(self._types.id(type))
            # A frame ends behind the value with which it is full: each takes its id and its bytes.
            missing = max(self._threshold - len(self._values), 1) if self._types.pending < self._threshold else 1
            sizes = offsets[first + 1 :] - offsets[first] + len(id) * np.arange(1, count - first + 1)
            last = first + min(int(np.searchsorted(sizes, missing)) + 1, count - first)
            self._values += _interleaved(id, data[int(offsets[first]) : int(offsets[last])], offsets[first : last + 1] - offsets[first])
            if len(self._values) >= self._threshold or self._types.pending >= self._threshold:
                self.flush()
            first = last

    def flush(self) -> None:
        """Write what is kept as frames."""
        self._put(frame(FrameType.TYPES, self._types.take(), compress=self._compress))
        self._put(frame(FrameType.VALUES, bytes(self._values), compress=self._compress))
        self._values.clear()

    def end_stream(self) -> None:
        """Write what is kept, and end the stream unless it is empty: what follows defines its types anew."""
        self.flush()
        if self.position != self._ended_at:
            self._put(END_OF_STREAM)
            self._ended_at = self.position
        self._types.reset()

    def __enter__(self) -> ZngWriter:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.end_stream()

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self.position += len(data)


def _interleaved(prefix: bytes, data: memoryview, offsets: npt.NDArray[np.int64]) -> bytes:
    """Return parts of data, each behind a prefix."""
    count = len(offsets) - 1
    out = np.empty(len(data) + len(prefix) * count, np.uint8)
    starts = offsets[:-1] + len(prefix) * np.arange(count)
    is_prefix = np.zeros(len(out), np.bool_)
    for number, byte in enumerate(prefix):
        out[starts + number] = byte
        is_prefix[starts + number] = True
    out[~is_prefix] = np.frombuffer(data, np.uint8)
    return out.tobytes()


def encode_values(values: Iterable[Value], *, compress: bool = True) -> bytes:
    """Return values as one ZNG stream."""
    file = BytesIO()
    with ZngWriter(file, compress=compress) as writer:
        for value in values:
            writer.write(value)
    return file.getvalue()
