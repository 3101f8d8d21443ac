"""Writes values as ZNG streams."""

from __future__ import annotations

from io import BytesIO
from itertools import chain, pairwise
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from lake_core.pool.zng.frame import END_OF_STREAM, FrameType, frame
from lake_core.pool.zng.tag import tagged
from lake_core.pool.zng.typedef import TypeEncoder
from lake_core.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.pool.types import Type
    from lake_core.pool.value import Value

FRAME_THRESHOLD: Final = 512 * 1024
"""A frame is written as soon as it has this many bytes, before they are compressed."""

_LARGE_VALUE: Final = 512
"""Values of this average size, in bytes, are copied one by one."""


class ZngWriter:
    """A writer of values to a file. Call `end_stream` at the end, or use it as a context manager.

    Args:
        file: The file.
        compress: Whether to compress frames that become smaller by it.
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
        """Bytes written so far. After `end_stream`, the next stream begins at this offset and can be read from it."""

    @property
    def pending(self) -> int:
        """Return how many bytes of values are collected for the next frame."""
        return len(self._values)

    def write(self, value: Value) -> None:
        """Add a value to the current frame, and write the frame if it is full."""
        self._values += uvarint(self._types.id(value.type))
        self._values += tagged(value.body)
        if len(self._values) >= self._threshold or self._types.pending >= self._threshold:
            self.flush()

    def write_encoded(
        self, types: Sequence[Type], codes: npt.NDArray[np.int32], data: memoryview, offsets: npt.NDArray[np.int64]
    ) -> None:
        """Write values that are already encoded, as if they were written one by one.

        Args:
            types: Their types.
            codes: The position of each value's type among the types.
            data: Their tags and bodies.
            offsets: Where each begins in the data, and where the last one ends.
        """
        firsts = np.sort(np.unique(codes, return_index=True)[1])
        prefixes: list[bytes] = [b""] * len(types)
        # A type gets its id in the frame of its first value, so the id is unknown before that.
        for first, stop in pairwise([*firsts.tolist(), len(codes)]):
            prefixes[codes[first]] = uvarint(self._types.id(types[codes[first]]))
            self._write_known(prefixes, codes[first:stop], data, offsets[first : stop + 1])

    def _write_known(
        self, prefixes: Sequence[bytes], codes: npt.NDArray[np.int32], data: memoryview, offsets: npt.NDArray[np.int64]
    ) -> None:
        """Write encoded values whose types have ids."""
        widths = np.array([len(prefix) for prefix in prefixes])[codes]
        ends = offsets[1:] + np.cumsum(widths)
        first, count, start = 0, len(codes), int(offsets[0])
        while first < count:
            # A frame ends after the value that fills it. Each value takes the bytes of its id, its tag and its body.
            missing = max(self._threshold - len(self._values), 1) if self._types.pending < self._threshold else 1
            last = min(int(np.searchsorted(ends, start + missing)) + 1, count)
            part = slice(first, last)
            bounds = offsets[first : last + 1]
            self._values += _interleaved(
                prefixes, codes[part], widths[part], data[int(bounds[0]) : int(bounds[-1])], bounds - bounds[0]
            )
            if len(self._values) >= self._threshold or self._types.pending >= self._threshold:
                self.flush()
            first, start = last, int(ends[last - 1])

    def flush(self) -> None:
        """Write the collected types and values as frames."""
        self._put(frame(FrameType.TYPES, self._types.take(), compress=self._compress))
        self._put(frame(FrameType.VALUES, bytes(self._values), compress=self._compress))
        self._values.clear()

    def end_stream(self) -> None:
        """Write the collected values, and end the stream unless it is empty.

        The next stream defines its types again.
        """
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


def _interleaved(
    prefixes: Sequence[bytes],
    codes: npt.NDArray[np.int32],
    widths: npt.NDArray[np.int64],
    data: memoryview,
    offsets: npt.NDArray[np.int64],
) -> bytes | memoryview:
    """Return parts of data, each after the prefix of its code."""
    if len(data) >= _LARGE_VALUE * len(codes):
        # To slice them takes less time than to look for the positions of their bytes.
        bounds = pairwise(offsets.tolist())
        pairs = ((prefixes[code], data[start:end]) for code, (start, end) in zip(codes.tolist(), bounds, strict=True))
        return b"".join(chain.from_iterable(pairs))
    ends = np.cumsum(widths)
    out = np.empty(len(data) + int(ends[-1]), np.uint8)
    starts = offsets[:-1] + ends - widths
    is_prefix = np.zeros(len(out), np.bool_)
    for number in range(int(widths.max())):
        bytes_ = np.array([prefix[number] if number < len(prefix) else 0 for prefix in prefixes], np.uint8)
        rows = slice(None) if int(widths.min()) > number else widths > number
        at = starts[rows] + number
        out[at] = bytes_[codes[rows]]
        is_prefix[at] = True
    out[~is_prefix] = np.frombuffer(data, np.uint8)
    return out.data


def encode_values(values: Iterable[Value], *, compress: bool = True) -> bytes:
    """Return values as one ZNG stream."""
    file = BytesIO()
    with ZngWriter(file, compress=compress) as writer:
        for value in values:
            writer.write(value)
    return file.getvalue()
