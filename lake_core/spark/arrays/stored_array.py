"""The chunks of an array, as Spark's executors read and write them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.chunk_file import read_chunk, write_chunk
from lake_core.icechunk.chunk_grid import grid_of
from lake_core.icechunk.errors import DamagedObject

if TYPE_CHECKING:
    from lake_core.icechunk.manifest import ChunkReferences, InlineChunk, NativeChunk
    from lake_core.icechunk.virtual import VirtualChunks
    from lake_core.spark.arrays.chunk_codec import ChunkCodec
    from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array with the references to its chunks, and the store that holds them."""

    path: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any
    codec: ChunkCodec
    references: ChunkReferences
    store: ObjectStore
    virtual_chunks: VirtualChunks

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the number of chunks along each dimension."""
        return grid_of(self.shape, self.chunk_shape)

    def empty_chunk(self) -> npt.NDArray[Any]:
        """Return the cells of a chunk that was never written."""
        return np.full(self.chunk_shape, self.fill_value, self.dtype)

    def cells_inside(self, index: tuple[int, ...]) -> int:
        """Return how many cells of a chunk lie within the array."""
        extents = zip(index, self.chunk_shape, self.shape, strict=True)
        return math.prod(min(chunk, length - coordinate * chunk) for coordinate, chunk, length in extents)

    def read_chunk(self, index: tuple[int, ...]) -> npt.NDArray[Any] | None:
        """Return the cells of a chunk, or None if it was never written.

        Raises:
            DamagedObject, MissingObject: Its bytes are not a chunk of the array, or are gone.
            VirtualChunkError, VirtualChunkNotAuthorized, InvalidVirtualReference: It is virtual, and cannot be read.
        """
        reference = self.references.find(index)
        if reference is None:
            return None
        data = read_chunk(self.store, self.virtual_chunks, reference)
        try:
            return self.codec.decode(data)
        except ValueError as error:
            raise DamagedObject(f"the chunk {index} of {self.path}", str(error)) from None

    def write_chunk(self, cells: npt.NDArray[Any], inline_threshold: int) -> InlineChunk | NativeChunk:
        """Write a chunk and return its reference. A small chunk becomes part of its reference, not an object."""
        return write_chunk(self.store, self.codec.encode(cells), inline_threshold)

    def read_box(self, box: tuple[tuple[int, int], ...]) -> npt.NDArray[Any]:
        """Return the cells of a box. The box is the first position and the one after the last for each dimension."""
        first = tuple(start // chunk for (start, _), chunk in zip(box, self.chunk_shape, strict=True))
        counts = tuple(
            -(-stop // chunk) - begin for (_, stop), chunk, begin in zip(box, self.chunk_shape, first, strict=True)
        )
        cells = np.full(tuple(stop - start for start, stop in box), self.fill_value, self.dtype)
        for offsets in np.ndindex(*counts):
            index = tuple(begin + offset for begin, offset in zip(first, offsets, strict=True))
            chunk_cells = self.read_chunk(index)
            if chunk_cells is not None:
                source, target = self._common(index, box)
                cells[target] = chunk_cells[source]
        return cells

    def _common(
        self, index: tuple[int, ...], box: tuple[tuple[int, int], ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the part of a chunk that lies in a box, and the part of the box that it covers."""
        source, target = [], []
        for coordinate, chunk, (start, stop) in zip(index, self.chunk_shape, box, strict=True):
            begin = coordinate * chunk
            low, high = max(begin, start), min(begin + chunk, stop)
            source.append(slice(low - begin, high - begin))
            target.append(slice(low - start, high - start))
        return tuple(source), tuple(target)
