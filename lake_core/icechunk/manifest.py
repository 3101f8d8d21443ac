"""Chunk references, column by column, and manifests that hold those of several arrays.

Specification section: Chunk Manifest Files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.identifier import OBJECT_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ChunkIndex: TypeAlias = tuple[int, ...]
"""Coordinates of a chunk in the grid of its array."""
Extents: TypeAlias = tuple[tuple[int, int], ...]
"""A box in a grid of chunks: for each dimension the first coordinate, and the one after the last."""

_LARGEST_NUMBER = 2**63 - 1


class ReferenceKind(IntEnum):
    """The kind of storage that has the bytes of a chunk."""

    NATIVE = 0
    INLINE = 1
    VIRTUAL = 2


@dataclass(frozen=True, slots=True)
class NativeChunk:
    """A chunk in a range of an object under `chunks/`."""

    chunk_id: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class InlineChunk:
    """A chunk whose bytes are in the manifest."""

    data: bytes

    @property
    def length(self) -> int:
        """Return the length of the chunk in bytes."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class VirtualChunk:
    """A chunk in a range of an object outside of the repository."""

    location: str
    offset: int
    length: int
    etag: str | None = None
    last_modified: int = 0
    """A time, in seconds since the epoch, since which the object must not have changed; 0 where it is not checked."""


ChunkReference: TypeAlias = NativeChunk | InlineChunk | VirtualChunk


@dataclass(frozen=True, slots=True, eq=False)
class ChunkReferences:
    """References of one array, sorted by index. Every column has one element for each reference."""

    index: npt.NDArray[np.uint32]
    """Shape (dimensions, references)."""
    kind: npt.NDArray[np.uint8]
    """A `ReferenceKind` each."""
    offset: npt.NDArray[np.uint64]
    length: npt.NDArray[np.uint64]
    chunk_id: npt.NDArray[np.uint8]
    """Shape (references, 12)."""
    data_start: npt.NDArray[np.int64]
    """Where in `heap` the bytes of an inline chunk, or the location of a virtual one, begin."""
    data_length: npt.NDArray[np.int64]
    etag_start: npt.NDArray[np.int64]
    etag_length: npt.NDArray[np.int64]
    """-1 where the reference has no etag."""
    last_modified: npt.NDArray[np.uint32]
    heap: bytes

    def __len__(self) -> int:
        return len(self.kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkReferences):
            return NotImplemented
        return all(np.array_equal(getattr(self, column.name), getattr(other, column.name)) for column in fields(self))

    __hash__ = None  # type: ignore[assignment]

    @property
    def dimensions(self) -> int:
        """Return the number of dimensions of the array."""
        return len(self.index)

    @property
    def extents(self) -> Extents:
        """Return the smallest box that holds all references, of which there must be one at least."""
        return tuple((int(column.min()), int(column.max()) + 1) for column in self.index)

    def find(self, index: ChunkIndex) -> ChunkReference | None:
        """Return the reference of one chunk, or None if there is none."""
        low, high = 0, len(self)
        for column, coordinate in zip(self.index, index, strict=True):
            value = np.uint32(coordinate)
            low, high = (
                low + int(np.searchsorted(column[low:high], value, "left")),
                low + int(np.searchsorted(column[low:high], value, "right")),
            )
        return self[low] if low < high else None

    def __getitem__(self, number: int) -> ChunkReference:
        kind = self.kind[number]
        start = int(self.data_start[number])
        data = self.heap[start : start + int(self.data_length[number])]
        if kind == ReferenceKind.INLINE:
            return InlineChunk(data)
        offset, length = int(self.offset[number]), int(self.length[number])
        if kind == ReferenceKind.NATIVE:
            return NativeChunk(self.chunk_id[number].tobytes(), offset, length)
        etag_length, etag_start = int(self.etag_length[number]), int(self.etag_start[number])
        etag = self.heap[etag_start : etag_start + etag_length].decode() if etag_length >= 0 else None
        return VirtualChunk(data.decode(), offset, length, etag, int(self.last_modified[number]))

    def take(self, numbers: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> ChunkReferences:
        """Return some of the references, chosen by a mask or by ascending numbers."""
        if numbers.dtype == np.bool_ and numbers.all():
            return self
        columns = {
            column.name: getattr(self, column.name)[numbers]
            for column in fields(self)
            if column.name not in ("index", "heap")
        }
        return replace(self, index=self.index[:, numbers], **columns)

    def locations(self) -> set[str]:
        """Return the distinct locations of the virtual chunks."""
        virtual = self.kind == ReferenceKind.VIRTUAL
        columns = np.stack([self.data_start[virtual], self.data_length[virtual]])
        # Neighbours mostly share an object, and to sort is what takes long.
        differs = np.ones(columns.shape[1], bool)
        differs[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
        spans = np.unique(columns[:, differs], axis=1)
        return {self.heap[start : start + length].decode() for start, length in spans.T.tolist()}

    def inside(self, extents: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
        """Return which references lie within a box."""
        return is_inside(self.index, extents)


def references_from(dimensions: int, references: Mapping[ChunkIndex, ChunkReference]) -> ChunkReferences:
    """Return references, given by the index of their chunks, as columns."""
    indexes = sorted(references)
    rows = [references[index] for index in indexes]
    heap, starts = bytearray(), dict[bytes, int]()

    def add_to_heap(data: bytes) -> int:
        start = starts.get(data)
        if start is None:
            start = starts[data] = len(heap)
            heap.extend(data)
        return start

    # These are lists, as storing single numbers into arrays is slow.
    kinds: list[int] = []
    numbers: list[tuple[int, int, int, int, int, int, int]] = []
    chunk_ids: list[bytes] = []
    no_id = bytes(OBJECT_ID_LENGTH)
    for row in rows:
        if isinstance(row, InlineChunk):
            kinds.append(ReferenceKind.INLINE)
            numbers.append((0, 0, add_to_heap(row.data), len(row.data), 0, -1, 0))
            chunk_ids.append(no_id)
        elif isinstance(row, NativeChunk):
            kinds.append(ReferenceKind.NATIVE)
            numbers.append((row.offset, row.length, 0, 0, 0, -1, 0))
            chunk_ids.append(row.chunk_id)
        else:
            kinds.append(ReferenceKind.VIRTUAL)
            location = row.location.encode()
            etag = None if row.etag is None else row.etag.encode()
            etag_start, etag_length = (0, -1) if etag is None else (add_to_heap(etag), len(etag))
            numbers.append(
                (
                    row.offset,
                    row.length,
                    add_to_heap(location),
                    len(location),
                    etag_start,
                    etag_length,
                    row.last_modified,
                )
            )
            chunk_ids.append(no_id)
    count = len(rows)
    # Offsets and lengths take 63 bits at most; -1 stands for no etag.
    columns = np.array(numbers, np.int64).reshape(count, 7).T
    return ChunkReferences(
        index=np.ascontiguousarray(np.array(indexes, np.uint32).reshape(count, dimensions).T),
        kind=np.array(kinds, np.uint8),
        offset=columns[0].astype(np.uint64),
        length=columns[1].astype(np.uint64),
        chunk_id=np.frombuffer(b"".join(chunk_ids), np.uint8).reshape(count, OBJECT_ID_LENGTH),
        data_start=columns[2],
        data_length=columns[3],
        etag_start=columns[4],
        etag_length=columns[5],
        last_modified=columns[6].astype(np.uint32),
        heap=bytes(heap),
    )


def concatenated(parts: Sequence[ChunkReferences]) -> ChunkReferences:
    """Return the references of several parts merged and sorted.

    Of two with the same index, that of the later part is kept.
    """
    if len(parts) == 1:
        return parts[0]
    heap_starts = np.cumsum([0, *(len(part.heap) for part in parts)])
    columns = {
        column.name: np.concatenate([getattr(part, column.name) for part in parts])
        for column in fields(ChunkReferences)
        if column.name not in ("index", "heap", "data_start", "etag_start")
    }
    for name in ("data_start", "etag_start"):
        columns[name] = np.concatenate(
            [getattr(part, name) + start for part, start in zip(parts, heap_starts, strict=False)]
        )
    index = np.concatenate([part.index for part in parts], axis=1)
    whole = ChunkReferences(index=index, heap=b"".join(part.heap for part in parts), **columns)
    return sorted_references(whole)


def sorted_references(references: ChunkReferences) -> ChunkReferences:
    """Return references sorted by index. Of several with the same index, the last one is kept."""
    index, count = references.index, len(references)
    if _is_ascending(index):
        return references
    # lexsort is stable, and sorts by its last key first.
    order = np.lexsort(index[::-1]) if len(index) else np.arange(count)
    in_order = index[:, order]
    last_of_index = np.ones(count, bool)
    last_of_index[:-1] = (in_order[:, 1:] != in_order[:, :-1]).any(axis=0) if len(index) else False
    return references.take(order[last_of_index])


def _is_ascending(index: npt.NDArray[np.uint32]) -> bool:
    """Return whether each column of an array of shape (dimensions, chunks) comes after the one before it."""
    ascends, equal = np.zeros(max(0, index.shape[1] - 1), bool), np.ones(max(0, index.shape[1] - 1), bool)
    for coordinates in index:
        ascends |= equal & (coordinates[1:] > coordinates[:-1])
        equal &= coordinates[1:] == coordinates[:-1]
    return bool(ascends.all())


def is_inside(index: npt.NDArray[np.uint32], extents: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Return which columns of an array of shape (dimensions, chunks) lie within a box."""
    mask = np.ones(index.shape[1], bool)
    for column, (first, end) in zip(index, extents, strict=True):
        mask &= (column >= first) & (column < end)
    return mask


def overlap(extents: Extents, other: Extents) -> bool:
    """Return whether two boxes have chunks in common."""
    return all(first < end and start < last for (first, last), (start, end) in zip(extents, other, strict=True))


def is_in(index: npt.NDArray[np.uint32], other: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Return which columns of `index`, of shape (dimensions, chunks), are among those of `other`."""
    count = index.shape[1]
    if not count or not other.shape[1]:
        return np.zeros(count, bool)
    numbers = _numbers(np.concatenate([index, other], axis=1))
    return np.isin(numbers[:count], numbers[count:])


def _numbers(index: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return a number for each column. Equal columns have equal numbers."""
    lengths = [int(column.max()) + 1 for column in index]
    if math.prod(lengths) > _LARGEST_NUMBER:
        return np.unique(index, axis=1, return_inverse=True)[1].reshape(-1)
    numbers = np.zeros(index.shape[1], np.int64)
    for column, length in zip(index, lengths, strict=True):
        numbers = numbers * length + column
    return numbers
