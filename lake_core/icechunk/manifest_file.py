"""Manifest files, read and written without a Python object for each reference.

Specification section: Chunk Manifest Files.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.compressed_locations import LocationDecoder
from lake_core.icechunk.errors import DamagedObject
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL, FileType, decode_file, encode_file
from lake_core.icechunk.flatbuffer import FlatbufferError, Positions, Table, Tables, damage_of
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter, TableLayout, table_layout
from lake_core.icechunk.identifier import NODE_ID_LENGTH, OBJECT_ID_LENGTH
from lake_core.icechunk.manifest import (
    ChunkIndex,
    ChunkReference,
    ChunkReferences,
    InlineChunk,
    NativeChunk,
    ReferenceKind,
    VirtualChunk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ID, _ARRAYS, _DICTIONARY = range(3)  # slots of Manifest
_NODE_ID, _REFS = 0, 1  # slots of ArrayManifest
# Slots of ChunkRef. Only version 2 has the last one.
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _LAST_MODIFIED, _COMPRESSED_LOCATION = range(9)

_MANIFEST = table_layout(20, (4, 16))
_MANIFEST_V2 = table_layout(24, (4, 16, 0, 20))
"""With the compression of locations, as its default is zstd: its value here is 0, for none."""
_ARRAY = table_layout(16, (4, 12))


@dataclass(frozen=True, slots=True)
class NativeChunks:
    """The locations of native chunks: one element of each column for each chunk."""

    chunk_id: npt.NDArray[np.uint8]
    """Shape (chunks, 12)."""
    offset: npt.NDArray[np.uint64]
    length: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class VirtualChunks:
    """The locations of virtual chunks: one element of each column for each chunk."""

    locations: tuple[str, ...]
    """Each once."""
    location: npt.NDArray[np.int64]
    """The number of a chunk's location among these."""
    offset: npt.NDArray[np.uint64]
    length: npt.NDArray[np.uint64]


class ArrayManifest:
    """The references of one array in a manifest. They are looked up one by one, or decoded at once."""

    __slots__ = ("_buffer", "_columns", "_count", "_decoder", "_path", "_start")

    def __init__(self, table: Table, path: str, decoder: LocationDecoder) -> None:
        self._buffer = table.buffer
        self._path = path
        self._decoder = decoder
        self._start, self._count = table.vector(_REFS, 4)
        self._columns: dict[int, ChunkReferences] = {}

    def __len__(self) -> int:
        return self._count

    def find(self, index: ChunkIndex) -> ChunkReference | None:
        """Return the reference of one chunk, or None if there is none.

        Takes time in proportion to the logarithm of the references.
        """
        columns = self._columns.get(len(index))
        if columns is not None:
            return columns.find(index)
        with damage_of(self._path):
            low, high = 0, self._count
            while low < high:
                middle = (low + high) // 2
                table = self._table(middle)
                current = self._index(table)
                if current == index:
                    return _reference(table, self._decoder)
                if current < index:
                    low = middle + 1
                else:
                    high = middle
        return None

    def references(self, dimensions: int) -> ChunkReferences:
        """Return all references as columns.

        Those of another number of dimensions are left out, as nothing uses them.
        """
        if dimensions not in self._columns:
            with damage_of(self._path):
                self._columns[dimensions] = _decode_references(self._tables(), dimensions, self._decoder)
        return self._columns[dimensions]

    def native_chunks(self) -> NativeChunks:
        """Return the locations of all native chunks, of any number of dimensions."""
        with damage_of(self._path):
            tables = self._tables()
            native, chunk_id = tables.structures(_CHUNK_ID, OBJECT_ID_LENGTH)
            return NativeChunks(
                chunk_id[native], tables.numbers(_OFFSET, "<u8")[native], tables.numbers(_LENGTH, "<u8")[native]
            )

    def virtual_chunks(self) -> VirtualChunks:
        """Return the locations of all virtual chunks, of any number of dimensions."""
        with damage_of(self._path):
            tables = self._tables()
            heap, start, length = _locations(tables, self._decoder)
            virtual = ~tables.structures(_CHUNK_ID, OBJECT_ID_LENGTH)[0] & (start >= 0)
            spans, location = np.unique(np.stack([start[virtual], length[virtual]]), axis=1, return_inverse=True)
            locations = tuple(heap[first : first + size].decode() for first, size in spans.T.tolist())
            return VirtualChunks(
                locations,
                location.reshape(-1),
                tables.numbers(_OFFSET, "<u8")[virtual],
                tables.numbers(_LENGTH, "<u8")[virtual],
            )

    def inline_bytes(self) -> int:
        """Return how many bytes the inline chunks have."""
        with damage_of(self._path):
            tables = self._tables()
            virtual = (tables.fields(_LOCATION) != 0) | (tables.fields(_COMPRESSED_LOCATION) != 0)
            inline = ~tables.structures(_CHUNK_ID, OBJECT_ID_LENGTH)[0] & ~virtual
            return int(tables.vectors(_INLINE, 1)[1][inline].sum())

    def _tables(self) -> Tables:
        positions = self._start + 4 * np.arange(self._count, dtype=np.int64)
        targets = np.frombuffer(self._buffer, "<u4", self._count, self._start if self._count else 0)
        return Tables(self._buffer, positions + targets)

    def _table(self, number: int) -> Table:
        position = self._start + 4 * number
        return Table(self._buffer, position + int.from_bytes(self._buffer[position : position + 4], "little"))

    def _index(self, table: Table) -> ChunkIndex:
        start, count = table.vector(_INDEX, 4)
        return struct.unpack_from(f"<{count}I", self._buffer, start)


class Manifest:
    """A decoded manifest file."""

    __slots__ = ("_arrays", "_decoder", "_path", "size")

    def __init__(self, body: bytes, path: str, manifest_id: bytes) -> None:
        self.size = len(body)
        self._path = path
        with damage_of(path):
            root = Table.root(body)
            if root.structure(_ID, OBJECT_ID_LENGTH) != manifest_id:
                raise DamagedObject(path, "it holds a manifest with another id")
            self._decoder = LocationDecoder(root.optional_blob(_DICTIONARY))
            arrays = root.tables(_ARRAYS)
            ids = arrays.required_structures(_NODE_ID, NODE_ID_LENGTH)
            self._arrays: dict[bytes, Table | ArrayManifest] = {
                row.tobytes(): arrays[number] for number, row in enumerate(ids)
            }

    def arrays(self) -> Iterator[ArrayManifest]:
        """Yield the references of each array."""
        return map(self.array, self._arrays)

    def array(self, node_id: bytes) -> ArrayManifest:
        """Return the references of an array, of which a snapshot says that the manifest has some. Raises DamagedObject.

        Chunks that have no reference are read as the fill value, so a lack of all of them must not be taken for that.
        """
        array = self._arrays.get(node_id)
        if array is None:
            raise DamagedObject(self._path, "it holds nothing of an array that has chunks in it, by its snapshot")
        if isinstance(array, Table):
            with damage_of(self._path):
                array = self._arrays[node_id] = ArrayManifest(array, self._path, self._decoder)
        return array


def decode_manifest(data: bytes, path: str, manifest_id: bytes) -> Manifest:
    """Return the manifest in a file, which must have this id. Raises DamagedObject, UnsupportedSpecVersion."""
    return Manifest(decode_file(data, FileType.MANIFEST, path), path, manifest_id)


def _reference(table: Table, decoder: LocationDecoder) -> ChunkReference:
    chunk_id = table.optional_structure(_CHUNK_ID, OBJECT_ID_LENGTH)
    if chunk_id is not None:
        return NativeChunk(chunk_id, table.uint64(_OFFSET), table.uint64(_LENGTH))
    compressed = table.optional_blob(_COMPRESSED_LOCATION)
    location = table.optional_string(_LOCATION) if compressed is None else decoder.decode(compressed).decode()
    if location is not None:
        etag = table.optional_string(_ETAG)
        return VirtualChunk(location, table.uint64(_OFFSET), table.uint64(_LENGTH), etag, table.uint32(_LAST_MODIFIED))
    if table.field(_INLINE):
        return InlineChunk(table.blob(_INLINE))
    raise FlatbufferError("a chunk reference has neither a chunk id, a location nor bytes")


def _locations(tables: Tables, decoder: LocationDecoder) -> tuple[bytes, Positions, Positions]:
    """Return a heap, and the start and length in it of each reference's location; the start is -1 without one."""
    buffer = tables.buffer
    start, length = tables.vectors(_LOCATION, 1)
    start = np.where(start == 0, -1, start)
    frame_start, frame_length = tables.vectors(_COMPRESSED_LOCATION, 1)
    compressed = frame_start != 0
    if not compressed.any():
        return buffer, start, length
    locations, starts, lengths = decoder.decode_many(buffer, frame_start[compressed], frame_length[compressed])
    start[compressed], length[compressed] = len(buffer) + starts, lengths
    return buffer + locations, start, length


def _decode_references(tables: Tables, dimensions: int, decoder: LocationDecoder) -> ChunkReferences:
    index_starts, ranks = tables.vectors(_INDEX, 4, required=True)
    if not (ranks == dimensions).all():
        fitting = ranks == dimensions
        tables = Tables(tables.buffer, tables.positions[fitting])
        index_starts = index_starts[fitting]
    count = len(tables)
    if count * dimensions * 4 > len(tables.buffer):
        raise FlatbufferError("the indexes of its chunk references would not fit into it")
    words: npt.NDArray[Any] = (
        np.ndarray((len(tables.buffer) - 3,), "<u4", tables.buffer, strides=(1,))
        if count and dimensions
        else np.empty(0, "<u4")
    )
    index = np.empty((dimensions, count), np.uint32)
    for dimension in range(dimensions):
        index[dimension] = words[index_starts + 4 * dimension]
    native, chunk_id = tables.structures(_CHUNK_ID, OBJECT_ID_LENGTH)
    heap, location_start, location_length = _locations(tables, decoder)
    inline_start, inline_length = tables.vectors(_INLINE, 1)
    etag_start, etag_length = tables.vectors(_ETAG, 1)
    virtual = ~native & (location_start >= 0)
    inline = ~native & ~virtual
    if (inline_start[inline] == 0).any():
        raise FlatbufferError("a chunk reference has neither a chunk id, a location nor bytes")
    kind = np.select([native, virtual], [ReferenceKind.NATIVE, ReferenceKind.VIRTUAL], ReferenceKind.INLINE).astype(
        np.uint8
    )
    return ChunkReferences(
        index=index,
        kind=kind,
        offset=np.where(inline, 0, tables.numbers(_OFFSET, "<u8")),
        length=np.where(inline, 0, tables.numbers(_LENGTH, "<u8")),
        chunk_id=chunk_id,
        data_start=np.select([native, virtual], [0, location_start], inline_start),
        data_length=np.select([native, virtual], [0, location_length], inline_length),
        etag_start=etag_start,
        etag_length=np.where(virtual & (etag_start != 0), etag_length, -1),
        last_modified=tables.numbers(_LAST_MODIFIED, "<u4"),
        heap=heap,
    )


def encode_manifest(
    manifest_id: bytes,
    arrays: Mapping[bytes, ChunkReferences],
    level: int = DEFAULT_COMPRESSION_LEVEL,
    spec_version: int = 1,
) -> bytes:
    """Return a manifest file that holds references of these arrays, given by their node ids."""
    writer = FlatbufferWriter()
    root = writer.root(_MANIFEST if spec_version == 1 else _MANIFEST_V2)
    writer.put(root + 4, manifest_id)
    node_ids = sorted(arrays)
    entries = writer.offsets(root + 16, len(node_ids))
    for number, node_id in enumerate(node_ids):
        writer.align()
        array = writer.table(_ARRAY)
        writer.link(entries + 4 * number, array)
        writer.put(array + 4, node_id)
        _write_references(writer, array + 12, arrays[node_id])
    return encode_file(FileType.MANIFEST, writer.finish(), level, spec_version)


# Tables of references of one kind are written as one block of fixed-size records, each followed by its index.
_NATIVE_LAYOUT = table_layout(36, (4, 0, 8, 16, 24))
_INLINE_LAYOUT = table_layout(12, (4, 8))
_VIRTUAL_LAYOUTS = tuple(
    table_layout(36, (4, 0, 8, 16, 0, 24, 28 if has_etag else 0, 32 if has_time else 0))
    for has_etag in (False, True)
    for has_time in (False, True)
)


def _write_references(writer: FlatbufferWriter, field: int, references: ChunkReferences) -> None:
    entries = writer.offsets(field, len(references))
    positions = np.zeros(len(references), np.int64)
    links: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for kind, block_writer in (
        (ReferenceKind.NATIVE, _write_native),
        (ReferenceKind.INLINE, _write_inline),
        (ReferenceKind.VIRTUAL, _write_virtual),
    ):
        mask = references.kind == kind
        if mask.any():
            positions[mask] = block_writer(writer, references if mask.all() else references.take(mask), links)
    offset_positions = entries + 4 * np.arange(len(references), dtype=np.int64)
    view = np.frombuffer(writer.buffer, np.uint8)
    _store_words(view, offset_positions, positions - offset_positions)
    del view  # a buffer with views of it cannot grow
    if links:
        _write_data(writer, references.heap, links)


_Fields: TypeAlias = tuple[tuple[str, str, int], ...]
"""Fields of a record: the name, the format of numpy, and the offset of each."""

Links = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]]
"""Offset fields to link with bytes of a heap: positions of the fields, starts of the bytes, numbers of bytes."""


def _records(references: ChunkReferences, fixed: _Fields, size: int) -> npt.NDArray[Any]:
    """Return empty records of a table of `size` bytes with the given fields, followed by the index of the chunk."""
    records = np.zeros(len(references), _record_type(fixed, size, references.dimensions))
    records["index_link"] = size - 4
    records["dimensions"] = references.dimensions
    records["index"] = references.index.T
    return records


@lru_cache
def _record_type(fixed: _Fields, size: int, dimensions: int) -> np.dtype[Any]:
    names = [name for name, _, _ in fixed] + ["vtable", "index_link", "dimensions", "index"]
    formats = [kind for _, kind, _ in fixed] + ["<i4", "<u4", "<u4", f"({dimensions},)<u4"]
    offsets = [offset for _, _, offset in fixed] + [0, 4, size, size + 4]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": (size + 4 + 4 * dimensions + 7) // 8 * 8}
    )


def _write_block(
    writer: FlatbufferWriter, records: npt.NDArray[Any], vtables: int | npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Write records of tables, each with its vtable. Return their positions."""
    positions = writer.align() + records.itemsize * np.arange(len(records), dtype=np.int64)
    records["vtable"] = positions - vtables
    writer.block(records)
    return positions


def _write_native(writer: FlatbufferWriter, references: ChunkReferences, links: Links) -> npt.NDArray[np.int64]:
    records = _records(
        references, (("offset", "<u8", 8), ("length", "<u8", 16), ("chunk_id", "(12,)u1", 24)), _NATIVE_LAYOUT.size
    )
    records["offset"], records["length"], records["chunk_id"] = (
        references.offset,
        references.length,
        references.chunk_id,
    )
    return _write_block(writer, records, writer.vtable(_NATIVE_LAYOUT))


def _write_inline(writer: FlatbufferWriter, references: ChunkReferences, links: Links) -> npt.NDArray[np.int64]:
    positions = _write_block(writer, _records(references, (), _INLINE_LAYOUT.size), writer.vtable(_INLINE_LAYOUT))
    links.append((positions + 8, references.data_start, references.data_length))
    return positions


def _write_virtual(writer: FlatbufferWriter, references: ChunkReferences, links: Links) -> npt.NDArray[np.int64]:
    fixed = (("offset", "<u8", 8), ("length", "<u8", 16), ("last_modified", "<u4", 32))
    records = _records(references, fixed, 36)
    records["offset"], records["length"] = references.offset, references.length
    records["last_modified"] = references.last_modified
    has_etag = references.etag_length >= 0
    layouts: tuple[TableLayout, ...] = _VIRTUAL_LAYOUTS
    vtables = np.array([writer.vtable(layout) for layout in layouts], np.int64)
    positions = _write_block(writer, records, vtables[2 * has_etag + (references.last_modified != 0)])
    links.append((positions + 24, references.data_start, references.data_length))
    if has_etag.any():
        links.append((positions[has_etag] + 28, references.etag_start[has_etag], references.etag_length[has_etag]))
    return positions


def _write_data(writer: FlatbufferWriter, heap: bytes, links: Links) -> None:
    """Write the distinct parts of a heap that offset fields refer to, and link the fields."""
    fields, starts, lengths = (np.concatenate(column) for column in zip(*links, strict=True))
    # One number for each part: much faster to compare than pairs. A heap is far too short for it to overflow.
    _, parts, part_of = np.unique(starts * (lengths.max() + 1) + lengths, return_index=True, return_inverse=True)
    starts, lengths = starts[parts], lengths[parts]
    # Each part is a vector: its length, its bytes, and at least one zero, which ends a text.
    sizes = (lengths + 4 + 1 + 3) // 4 * 4
    ends = np.cumsum(sizes)
    begins = ends - sizes
    block = np.zeros(int(ends[-1]), np.uint8)
    _store_words(block, begins, lengths)
    total = int(lengths.sum())
    within = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    block[np.repeat(begins + 4, lengths) + within] = np.frombuffer(heap, np.uint8)[np.repeat(starts, lengths) + within]
    first = writer.block(block)
    view = np.frombuffer(writer.buffer, np.uint8)
    _store_words(view, fields, first + begins[part_of] - fields)
    del view


def _store_words(block: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> None:
    """Store numbers of 4 bytes at aligned positions."""
    block[: len(block) // 4 * 4].view("<u4")[positions // 4] = values
