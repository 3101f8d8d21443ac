"""Locations of virtual chunks that a manifest of version 2 stores compressed, by a dictionary of its own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import zstandard

from lake_core.icechunk.flatbuffer import FlatbufferError

_LONGEST = 2**16
"""How many bytes a location has at most."""


class LocationDecoder:
    """Decompresses the locations of one manifest."""

    def __init__(self, dictionary: bytes | None) -> None:
        try:
            shared = None if dictionary is None else zstandard.ZstdCompressionDict(dictionary)
            self._decompressor = zstandard.ZstdDecompressor(dict_data=shared)
        except (zstandard.ZstdError, MemoryError, ValueError) as error:
            raise FlatbufferError(f"the dictionary of its locations is not valid ({error})") from None

    def decode(self, frame: bytes) -> bytes:
        """Return a location. Raises FlatbufferError."""
        try:
            if zstandard.frame_content_size(frame) > _LONGEST:
                raise FlatbufferError(f"a location claims to have more than {_LONGEST} bytes")
            return self._decompressor.decompress(frame, max_output_size=_LONGEST)
        except (zstandard.ZstdError, MemoryError) as error:
            raise FlatbufferError(f"a location does not decompress ({error})") from None

    def decode_many(
        self, buffer: bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return a heap with the locations of several frames in a buffer, and where in it each begins, and its length.

        Equal frames share their location.
        """
        heap = bytearray()
        spans: dict[bytes, tuple[int, int]] = {}
        rows = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            frame = buffer[start : start + length]
            span = spans.get(frame)
            if span is None:
                location = self.decode(frame)
                span = spans[frame] = len(heap), len(location)
                heap += location
            rows.append(span)
        columns = np.array(rows, np.int64).reshape(len(rows), 2)
        return bytes(heap), columns[:, 0], columns[:, 1]
