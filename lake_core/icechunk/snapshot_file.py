"""Snapshot files, read and written. Nodes are decoded on demand. Specification section: Snapshot Files."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
import numpy as np

from lake_core.icechunk.errors import DamagedObject, InvalidArrayMetadata
from lake_core.icechunk.file_header import (
    DEFAULT_COMPRESSION_LEVEL,
    FileType,
    decode_file,
    encode_file,
    is_foreign,
    spec_version_of,
)
from lake_core.icechunk.flatbuffer import FlatbufferError, Table, Tables, check_total, damage_of
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter, table_layout
from lake_core.icechunk.identifier import NODE_ID_LENGTH, OBJECT_ID_LENGTH
from lake_core.icechunk.metadata_items import read_metadata, write_metadata
from lake_core.icechunk.node_metadata import array_layout
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, ManifestFileInfo, ManifestRef, Node, Snapshot, sort_key

# Slots of Snapshot. Version 2 fills the last one instead of the one before it, and has parents in the object `repo`.
_ID, _PARENT_ID, _NODES, _FLUSHED_AT, _MESSAGE, _METADATA, _MANIFEST_FILES, _MANIFEST_FILES_V2 = range(8)
_NODE_ID, _PATH, _USER_DATA, _NODE_TYPE, _NODE_DATA = range(5)  # slots of NodeSnapshot
_MANIFESTS = 2  # the slot of ArrayNodeData that is read: zarr.json says what the others do
_ARRAY, _GROUP = 1, 2  # members of the union NodeData

_FILE_INFO = np.dtype(
    {"names": ["id", "size", "refs"], "formats": ["V12", "<u8", "<u4"], "offsets": [0, 16, 24], "itemsize": 32}
)
_FILE_INFO_FIELDS = struct.Struct("<12s4xQI4x")
_EXTENT = struct.Struct("<II")

# Offsets of fields in tables that are written.
_SNAPSHOT_LAYOUT = table_layout(56, (16, 28, 4, 8, 40, 44, 48))
_ROOT_SNAPSHOT_LAYOUT = table_layout(56, (16, 0, 4, 8, 40, 44, 48))
_SNAPSHOT_LAYOUT_V2 = table_layout(56, (16, 0, 4, 8, 40, 44, 48, 52))
_FILE_INFO_LAYOUT_V2 = table_layout(28, (4, 16, 24))
_METADATA_LAYOUT = table_layout(12, (4, 8))
_NODE_LAYOUT = table_layout(28, (4, 12, 16, 24, 20))
_ARRAY_LAYOUT = table_layout(16, (4, 8, 12))
_ARRAY_WITHOUT_NAMES_LAYOUT = table_layout(16, (4, 0, 12))
_ARRAY_LAYOUT_V2 = table_layout(20, (4, 8, 12, 16))
_ARRAY_WITHOUT_NAMES_LAYOUT_V2 = table_layout(20, (4, 0, 12, 16))
_DIMENSION_LAYOUT_V2 = table_layout(16, (8, 4))
_GROUP_LAYOUT = table_layout(4, ())
_NAME_LAYOUT = table_layout(8, (4,))
_NO_NAME_LAYOUT = table_layout(4, ())
_MANIFEST_REF_LAYOUT = table_layout(20, (4, 16))


def decode_snapshot(data: bytes, path: str) -> Snapshot:
    """Return the snapshot in a file. Raises DamagedObject, UnsupportedSpecVersion, as does looking up nodes."""
    body = decode_file(data, FileType.SNAPSHOT, path)
    with damage_of(path):
        root = Table.root(body)
        start, count = root.vector(_MANIFEST_FILES, _FILE_INFO.itemsize)
        files = memoryview(body)[start : start + count * _FILE_INFO.itemsize]
        root.vector(_NODES, 4)
        root.vector(_METADATA, 4)
        spec_version = spec_version_of(data)
        return Snapshot(
            snapshot_id=root.structure(_ID, OBJECT_ID_LENGTH),
            parent_id=root.optional_structure(_PARENT_ID, OBJECT_ID_LENGTH),
            flushed_at=root.uint64(_FLUSHED_AT),
            message=root.string(_MESSAGE),
            metadata=_metadata(root.tables(_METADATA)) if spec_version == 1 else read_metadata(root, _METADATA, path),
            manifest_files={info[0]: ManifestFileInfo(*info) for info in _FILE_INFO_FIELDS.iter_unpack(files)}
            | _manifest_files_v2(root.tables(_MANIFEST_FILES_V2, required=False)),
            nodes=_Nodes(root, path, spec_version),
            is_foreign=is_foreign(data),
        )


def _manifest_files_v2(tables: Tables) -> dict[bytes, ManifestFileInfo]:
    ids = tables.required_structures(0, OBJECT_ID_LENGTH)
    names = [row.tobytes() for row in ids]
    sizes, counts = tables.numbers(1, "<u8").tolist(), tables.numbers(2, "<u4").tolist()
    return {info[0]: ManifestFileInfo(*info) for info in zip(names, sizes, counts, strict=True)}


def _metadata(items: Tables) -> dict[str, Any]:
    metadata = {}
    for number in range(len(items)):
        item = items[number]
        try:
            metadata[item.string(0)] = msgpack.unpackb(item.blob(1), strict_map_key=False)
        except (ValueError, msgpack.UnpackException, TypeError):
            raise FlatbufferError("a value of the commit's metadata is not MessagePack") from None
    return metadata


class _Nodes(Mapping[str, Node]):
    """The nodes of a snapshot file, by path."""

    def __init__(self, snapshot: Table, file_path: str, spec_version: int) -> None:
        self._snapshot = snapshot
        self._spec_version = spec_version
        self._tables_of_nodes: Tables | None = None
        self._file_path = file_path
        self._numbers_of_paths: dict[str, int] | None = None
        self._decoded: dict[str, Node] = {}

    @property
    def _tables(self) -> Tables:
        if self._tables_of_nodes is None:
            with damage_of(self._file_path):
                self._tables_of_nodes = self._snapshot.tables(_NODES)
        return self._tables_of_nodes

    @property
    def _numbers(self) -> dict[str, int]:
        if self._numbers_of_paths is None:
            with damage_of(self._file_path):
                starts, lengths = self._tables.vectors(_PATH, 1, required=True)
                buffer = self._tables.buffer
                check_total(int(lengths.sum()), buffer)
                paths = [
                    buffer[start : start + length].decode()
                    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
                ]
            numbers = {path: number for number, path in enumerate(paths)}
            if len(numbers) != len(paths):
                twice = next(path for number, path in enumerate(paths) if numbers[path] != number)
                raise DamagedObject(self._file_path, f"it has two nodes of the path {twice!r}")
            self._numbers_of_paths = numbers
        return self._numbers_of_paths

    def __getitem__(self, path: str) -> Node:
        node = self._decoded.get(path)
        if node is None:
            number = self._numbers[path]
            with damage_of(self._file_path):
                node = self._decoded[path] = _node(self._tables[number], path, self._spec_version)
        return node

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._tables)


def _node(table: Table, path: str, spec_version: int) -> Node:
    node_id, user_data = table.structure(_NODE_ID, NODE_ID_LENGTH), table.blob(_USER_DATA)
    kind = table.uint8(_NODE_TYPE)
    if kind == _GROUP:
        return GroupNode(node_id, path, user_data)
    if kind != _ARRAY:
        raise FlatbufferError(f"the node {path!r} is neither an array nor a group")
    try:
        layout = array_layout(path, user_data)
    except InvalidArrayMetadata as error:
        raise FlatbufferError(str(error)) from None
    if layout.chunk_runs is not None and spec_version == 1:
        raise FlatbufferError(f"the chunk grid of {path} is rectilinear, which version 1 of the specification has not")
    manifests = _manifest_refs(table.table(_NODE_DATA), len(layout.shape))
    return ArrayNode(
        node_id,
        path,
        user_data,
        layout.shape,
        layout.chunk_shape,
        layout.dimension_names,
        manifests,
        layout.chunk_runs,
    )


def _manifest_refs(array: Table, dimensions: int) -> tuple[ManifestRef, ...]:
    start, count = array.vector(_MANIFESTS, 4)
    refs = []
    for number in range(count):
        ref = array.nth(start, number)
        extents_start, extents_count = ref.vector(1, _EXTENT.size)
        if extents_count != dimensions:
            raise FlatbufferError(
                f"a manifest's extents have {extents_count} dimensions, but its array has {dimensions}"
            )
        extents = tuple(
            _EXTENT.unpack_from(array.buffer, extents_start + axis * _EXTENT.size) for axis in range(dimensions)
        )
        refs.append(ManifestRef(ref.structure(0, OBJECT_ID_LENGTH), extents))
    return tuple(refs)


def encode_snapshot(snapshot: Snapshot, level: int = DEFAULT_COMPRESSION_LEVEL, spec_version: int = 1) -> bytes:
    """Return a snapshot file. `level` is that of zstd."""
    writer = FlatbufferWriter()
    has_parent = spec_version == 1 and snapshot.parent_id is not None
    layout_v1 = _SNAPSHOT_LAYOUT if has_parent else _ROOT_SNAPSHOT_LAYOUT
    root = writer.root(layout_v1 if spec_version == 1 else _SNAPSHOT_LAYOUT_V2)
    writer.put(root + 8, struct.pack("<Q", snapshot.flushed_at))
    writer.put(root + 16, snapshot.snapshot_id)
    if has_parent and snapshot.parent_id is not None:
        writer.put(root + 28, snapshot.parent_id)
    writer.blob(root + 40, snapshot.message.encode())
    if spec_version == 1:
        _write_metadata(writer, root + 44, snapshot.metadata)
        files = np.zeros(len(snapshot.manifest_files), _FILE_INFO)
        for number, info in enumerate(_sorted_files(snapshot)):
            files[number] = (info.id_bytes, info.size_bytes, info.num_chunk_refs)
        writer.vector(root + 48, files)
    else:
        write_metadata(writer, root + 44, snapshot.metadata)
        writer.offsets(root + 48, 0)
        entries = writer.offsets(root + 52, len(snapshot.manifest_files))
        for number, info in enumerate(_sorted_files(snapshot)):
            table = writer.table(_FILE_INFO_LAYOUT_V2)
            writer.link(entries + 4 * number, table)
            writer.put(table + 4, info.id_bytes + struct.pack("<QI", info.size_bytes, info.num_chunk_refs))
    nodes = writer.offsets(root + 4, len(snapshot.nodes))
    for number, path in enumerate(sorted(snapshot.nodes, key=sort_key)):
        writer.link(nodes + 4 * number, _write_node(writer, snapshot.nodes[path], spec_version))
    return encode_file(FileType.SNAPSHOT, writer.finish(), level, spec_version)


def _sorted_files(snapshot: Snapshot) -> list[ManifestFileInfo]:
    return [snapshot.manifest_files[manifest_id] for manifest_id in sorted(snapshot.manifest_files)]


def _write_metadata(writer: FlatbufferWriter, field: int, metadata: Mapping[str, Any]) -> None:
    items = writer.offsets(field, len(metadata))
    for number, name in enumerate(sorted(metadata, key=str.encode)):
        item = writer.table(_METADATA_LAYOUT)
        writer.link(items + 4 * number, item)
        writer.blob(item + 4, name.encode())
        writer.blob(item + 8, msgpack.packb(metadata[name]))


def with_parent(data: bytes, path: str, parent_id: bytes, level: int = DEFAULT_COMPRESSION_LEVEL) -> bytes:
    """Return a snapshot file with another parent and no other change.

    Raises DamagedObject, also for a snapshot without a parent.
    """
    body = bytearray(decode_file(data, FileType.SNAPSHOT, path))
    with damage_of(path):
        position = Table.root(bytes(body)).field(_PARENT_ID)
        if not position or position + OBJECT_ID_LENGTH > len(body):
            raise FlatbufferError("it has no parent that could be replaced")
    body[position : position + OBJECT_ID_LENGTH] = parent_id
    return encode_file(FileType.SNAPSHOT, body, level)


def _write_node(writer: FlatbufferWriter, node: Node, spec_version: int) -> int:
    position = writer.table(_NODE_LAYOUT)
    writer.put(position + 4, node.node_id)
    writer.blob(position + 12, node.path.encode())
    writer.blob(position + 16, node.user_data)
    is_array = isinstance(node, ArrayNode)
    writer.put(position + 24, bytes((_ARRAY if is_array else _GROUP,)))
    writer.link(
        position + 20,
        _write_array(writer, node, spec_version) if isinstance(node, ArrayNode) else writer.table(_GROUP_LAYOUT),
    )
    return position


def _write_array(writer: FlatbufferWriter, node: ArrayNode, spec_version: int) -> int:
    named, unnamed = (
        (_ARRAY_LAYOUT, _ARRAY_WITHOUT_NAMES_LAYOUT)
        if spec_version == 1
        else (_ARRAY_LAYOUT_V2, _ARRAY_WITHOUT_NAMES_LAYOUT_V2)
    )
    position = writer.table(unnamed if node.dimension_names is None else named)
    if spec_version == 1:
        lengths = list(zip(node.shape, node.chunk_shape, strict=True))
        writer.vector(position + 4, np.array(lengths, "<u8").reshape(-1, 2))
    else:
        writer.vector(position + 4, np.empty((0, 2), "<u8"))
        dimensions = writer.offsets(position + 16, len(node.shape))
        for number, (length, count) in enumerate(zip(node.shape, node.grid, strict=True)):
            table = writer.table(_DIMENSION_LAYOUT_V2)
            writer.link(dimensions + 4 * number, table)
            writer.put(table + 4, struct.pack("<IQ", count, length))
    if node.dimension_names is not None:
        names = writer.offsets(position + 8, len(node.dimension_names))
        for number, name in enumerate(node.dimension_names):
            table = writer.table(_NO_NAME_LAYOUT if name is None else _NAME_LAYOUT)
            writer.link(names + 4 * number, table)
            if name is not None:
                writer.blob(table + 4, name.encode())
    refs = writer.offsets(position + 12, len(node.manifests))
    for number, ref in enumerate(node.manifests):
        table = writer.table(_MANIFEST_REF_LAYOUT)
        writer.link(refs + 4 * number, table)
        writer.put(table + 4, ref.manifest_id)
        writer.vector(table + 16, np.array(ref.extents, "<u4").reshape(-1, 2))
    return position
