"""Transaction logs: the changes of one commit. Specification section: Transaction Log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.errors import DamagedObject
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL, FileType, decode_file, encode_file
from lake_core.icechunk.flatbuffer import FlatbufferError, Table, Tables, damage_of
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter, table_layout
from lake_core.icechunk.identifier import NODE_ID_LENGTH, OBJECT_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ID, _NEW_GROUPS, _NEW_ARRAYS, _DELETED_GROUPS, _DELETED_ARRAYS, _UPDATED_ARRAYS, _UPDATED_GROUPS, _UPDATED_CHUNKS = (
    range(8)
)
_MOVED_NODES = 8
_FROM, _TO, _MOVED_ID, _MOVED_TYPE = range(4)  # slots of MoveOperation
_NODE_ID, _CHUNKS = 0, 1  # slots of ArrayUpdatedChunks

_LOG_LAYOUT = table_layout(44, (4, 16, 20, 24, 28, 32, 36, 40))
_LOG_LAYOUT_V2 = table_layout(48, (4, 16, 20, 24, 28, 32, 36, 40, 44))
_MOVE_LAYOUT = table_layout(28, (4, 8, 12, 24))
_ARRAY_LAYOUT = table_layout(16, (4, 12))
_INDICES_LAYOUT = table_layout(8, (4,))


@dataclass(frozen=True, slots=True)
class MovedNode:
    """An array or group that has another path, and the same id."""

    from_path: str
    to_path: str
    node_id: bytes
    is_array: bool


@dataclass(frozen=True, slots=True)
class TransactionLog:
    """The changes of one commit, by node ids."""

    new_groups: frozenset[bytes] = frozenset()
    new_arrays: frozenset[bytes] = frozenset()
    deleted_groups: frozenset[bytes] = frozenset()
    deleted_arrays: frozenset[bytes] = frozenset()
    updated_groups: frozenset[bytes] = frozenset()
    updated_arrays: frozenset[bytes] = frozenset()
    updated_chunks: Mapping[bytes, npt.NDArray[np.uint32]] = field(default_factory=dict)
    """The chunks that were written or erased: an array of shape (chunks, dimensions) for each Zarr array, sorted.

    It may be empty.
    """
    moved_nodes: tuple[MovedNode, ...] = ()
    """Each moved node once, those below a moved group too, by their new paths. Only version 2 has them."""


def decode_transaction_log(data: bytes, path: str, snapshot_id: bytes) -> TransactionLog:
    """Return the transaction log of a snapshot in a file. Raises DamagedObject, UnsupportedSpecVersion."""
    body = decode_file(data, FileType.TRANSACTION_LOG, path)
    with damage_of(path):
        root = Table.root(body)
        if root.structure(_ID, OBJECT_ID_LENGTH) != snapshot_id:
            raise DamagedObject(path, "it holds the transaction log of another snapshot")
        arrays = root.tables(_UPDATED_CHUNKS)
        node_ids = arrays.required_structures(_NODE_ID, NODE_ID_LENGTH)
        return TransactionLog(
            new_groups=_ids(root, _NEW_GROUPS),
            new_arrays=_ids(root, _NEW_ARRAYS),
            deleted_groups=_ids(root, _DELETED_GROUPS),
            deleted_arrays=_ids(root, _DELETED_ARRAYS),
            updated_groups=_ids(root, _UPDATED_GROUPS),
            updated_arrays=_ids(root, _UPDATED_ARRAYS),
            updated_chunks={
                row.tobytes(): _coordinates(arrays[number].tables(_CHUNKS)) for number, row in enumerate(node_ids)
            },
            moved_nodes=tuple(_moved_nodes(root.tables(_MOVED_NODES, required=False))),
        )


def _moved_nodes(tables: Tables) -> Iterator[MovedNode]:
    for number in range(len(tables)):
        table = tables[number]
        node_id = table.structure(_MOVED_ID, NODE_ID_LENGTH)
        yield MovedNode(table.string(_FROM), table.string(_TO), node_id, table.uint8(_MOVED_TYPE) == 1)


def _ids(root: Table, slot: int) -> frozenset[bytes]:
    return frozenset(row.tobytes() for row in root.array(slot, f"V{NODE_ID_LENGTH}"))


def _coordinates(chunks: Tables) -> npt.NDArray[np.uint32]:
    starts, ranks = chunks.vectors(0, 4, required=True)
    if not len(chunks):
        return np.empty((0, 0), np.uint32)
    dimensions = int(ranks.max())
    fitting = starts[ranks == dimensions]
    if len(fitting) * dimensions * 4 > len(chunks.buffer):
        raise FlatbufferError("the coordinates of its chunks would not fit into it")
    coordinates = np.empty((len(fitting), dimensions), np.uint32)
    if dimensions:
        words: npt.NDArray[np.uint32] = np.ndarray((len(chunks.buffer) - 3,), "<u4", chunks.buffer, strides=(1,))
        for axis in range(dimensions):
            coordinates[:, axis] = words[fitting + 4 * axis]
        # Other writers sort them within each manifest only.
        coordinates = coordinates[np.lexsort(coordinates.T[::-1])]
    return coordinates


def encode_transaction_log(
    log: TransactionLog, snapshot_id: bytes, level: int = DEFAULT_COMPRESSION_LEVEL, spec_version: int = 1
) -> bytes:
    """Return a file with the transaction log of a snapshot."""
    writer = FlatbufferWriter()
    root = writer.root(_LOG_LAYOUT if spec_version == 1 else _LOG_LAYOUT_V2)
    writer.put(root + 4, snapshot_id)
    id_lists = (
        log.new_groups,
        log.new_arrays,
        log.deleted_groups,
        log.deleted_arrays,
        log.updated_arrays,
        log.updated_groups,
    )
    for number, ids in enumerate(id_lists):
        writer.vector(root + 16 + 4 * number, np.frombuffer(b"".join(sorted(ids)), f"V{NODE_ID_LENGTH}"))
    entries = writer.offsets(root + 40, len(log.updated_chunks))
    for number, node_id in enumerate(sorted(log.updated_chunks)):
        table = writer.table(_ARRAY_LAYOUT)
        writer.link(entries + 4 * number, table)
        writer.put(table + 4, node_id)
        _write_coordinates(writer, table + 12, log.updated_chunks[node_id])
    if spec_version != 1:
        _write_moved_nodes(writer, root + 44, log.moved_nodes)
    return encode_file(FileType.TRANSACTION_LOG, writer.finish(), level, spec_version)


def _write_moved_nodes(writer: FlatbufferWriter, field: int, moved_nodes: Sequence[MovedNode]) -> None:
    entries = writer.offsets(field, len(moved_nodes))
    # Their order is that of a tree, unlike that of a snapshot's nodes.
    for number, moved in enumerate(sorted(moved_nodes, key=lambda moved: moved.to_path.split("/"))):
        table = writer.table(_MOVE_LAYOUT)
        writer.link(entries + 4 * number, table)
        writer.put(table + 12, moved.node_id)
        writer.put(table + 24, bytes((moved.is_array,)))
        writer.blob(table + 4, moved.from_path.encode())
        writer.blob(table + 8, moved.to_path.encode())


def _write_coordinates(writer: FlatbufferWriter, field: int, coordinates: npt.NDArray[np.uint32]) -> None:
    count, dimensions = coordinates.shape
    vtable = writer.vtable(_INDICES_LAYOUT)
    entries = writer.offsets(field, count)
    # Each table is followed by its vector: table offset, link, number of dimensions, coordinates.
    records = np.zeros((count, 3 + dimensions), "<u4")
    position = writer.align()
    positions = position + records.itemsize * (3 + dimensions) * np.arange(count, dtype=np.int64)
    records[:, 0] = positions - vtable
    records[:, 1] = 4
    records[:, 2] = dimensions
    records[:, 3:] = coordinates
    writer.block(records)
    offset_positions = entries + 4 * np.arange(count, dtype=np.int64)
    offsets = (positions - offset_positions).astype("<u4").tobytes()
    writer.put(entries, offsets)
