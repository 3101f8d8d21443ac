"""The state of a session: the nodes and chunks of a snapshot, with changes on top of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from lake_core.clock import AwareClock, system_clock
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.change_set import ChangeSet, is_inside
from lake_core.icechunk.chunk_file import read_chunk, write_chunk
from lake_core.icechunk.chunk_grid import keeps_chunks
from lake_core.icechunk.chunk_moves import reindexed, shifted
from lake_core.icechunk.errors import (
    EmptyChunk,
    InvalidArrayMetadata,
    InvalidChunkIndex,
    NodeNotFound,
    ReadOnlySession,
    UnconfirmedCommit,
    WrongSessionMode,
)
from lake_core.icechunk.hierarchy import check_path, checked_move
from lake_core.icechunk.identifier import encode_id, new_node_id
from lake_core.icechunk.manifest import (
    ChunkIndex,
    ChunkReference,
    ChunkReferences,
    Extents,
    InlineChunk,
    NativeChunk,
    VirtualChunk,
    concatenated,
    is_in,
    overlap,
)
from lake_core.icechunk.moves import moved_node, moved_nodes
from lake_core.icechunk.node_metadata import parse_node
from lake_core.icechunk.snapshot import ArrayNode, Node, Snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.chunk_moves import ChunkMap
    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.virtual import VirtualChunks


class SessionMode(Enum):
    """What a session may change."""

    readonly = 0
    writable = 1
    rearrange = 2
    """Only the paths of nodes."""


class ChunkType(Enum):
    """The kind of storage that has the bytes of a chunk."""

    UNINITIALIZED = 0
    """The chunk was never written, and has the fill value."""
    NATIVE = 1
    VIRTUAL = 2
    INLINE = 3


_TYPES = {NativeChunk: ChunkType.NATIVE, VirtualChunk: ChunkType.VIRTUAL, InlineChunk: ChunkType.INLINE}


class SessionState:
    """The state of a repository at one snapshot; a writable session also holds changes, until they are committed."""

    def __init__(
        self,
        assets: AssetManager,
        config: RepositoryConfig,
        virtual_chunks: VirtualChunks,
        snapshot_id: bytes,
        branch: str | None,
        *,
        clock: AwareClock = system_clock,
        default_metadata: Mapping[str, Any] | None = None,
        txn_retention: int | None = None,
    ) -> None:
        self.assets = assets
        self.change_set = ChangeSet()
        self._config = config
        self.virtual_chunks = virtual_chunks
        self._base_id = snapshot_id
        self._branch = branch
        self._clock = clock
        self._default_metadata = dict(default_metadata or {})
        self._txn_retention = txn_retention
        self._read_only = branch is None
        self._rearranges = False
        self._forked = False
        self._unconfirmed: set[bytes] = set()
        """Snapshots that the branch may have been moved to: the store has not answered."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.snapshot_id}, "
            f"{'read-only' if self.read_only else f'on branch {self._branch}'}>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SessionState):
            return NotImplemented
        state = (self.assets.store.url(), self._base_id, self._branch, self.change_set)
        return state == (other.assets.store.url(), other._base_id, other._branch, other.change_set)

    __hash__ = object.__hash__

    # What it is

    @property
    def read_only(self) -> bool:
        """Return whether the session is read-only."""
        return self._read_only

    @property
    def mode(self) -> SessionMode:
        """Return what the session may change."""
        if self.read_only:
            return SessionMode.readonly
        return SessionMode.rearrange if self._rearranges else SessionMode.writable

    @property
    def snapshot_id(self) -> str:
        """Return the id of the snapshot that the session is based on."""
        return encode_id(self._base_id)

    @property
    def branch(self) -> str | None:
        """Return the branch that a commit moves; None for a read-only session."""
        return self._branch

    @property
    def config(self) -> RepositoryConfig:
        """Return the configuration of the repository."""
        return self._config

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot that the session is based on."""
        return self.assets.snapshot(self._base_id)

    @property
    def has_uncommitted_changes(self) -> bool:
        """Return whether there are changes to commit."""
        return self.change_set.touched

    def discard_changes(self) -> None:
        """Discard all changes."""
        self.check_not_read_only()
        self.change_set = ChangeSet()
        self._unconfirmed.clear()

    def check_writable(self) -> None:
        """Raise ReadOnlySession or UnconfirmedCommit unless the session can be written."""
        self.check_not_read_only()
        if self._unconfirmed:
            raise UnconfirmedCommit(
                "it is unknown whether the session's commit was published, because the store gave no clear "
                "answer: commit again before making other changes, or discard these"
            )

    def check_editable(self) -> None:
        """Raise what `check_writable` raises, and WrongSessionMode if the session only moves nodes."""
        self.check_writable()
        if self._rearranges:
            raise WrongSessionMode(
                "the session only moves nodes: write in another one, from Repository.writable_session(branch)"
            )

    def check_not_read_only(self) -> None:
        """Raise ReadOnlySession if the session is read-only."""
        if self.read_only:
            raise ReadOnlySession(
                "the session is read-only: open a writable one with Repository.writable_session(branch)"
            )

    # Nodes

    def node(self, path: str) -> Node | None:
        """Return the array or group at an absolute path, or None."""
        if self.change_set.moves:
            return moved_node(self.change_set.moves, self.snapshot.nodes, path)
        node = self.change_set.nodes.get(path)
        if node is None:
            node = self.snapshot.nodes.get(path)
            if node is not None and node.node_id in self.change_set.deleted:
                return None
        return node

    def array(self, path: str) -> ArrayNode:
        """Return the array at an absolute path. Raises NodeNotFound."""
        node = self.node(path)
        if not isinstance(node, ArrayNode):
            raise NodeNotFound(f"the session has no array {path}")
        return node

    def node_paths(self) -> Iterator[str]:
        """Yield the paths of all nodes."""
        nodes = self.snapshot.nodes
        if self.change_set.moves:
            yield from moved_nodes(self.change_set.moves, nodes)
            return
        for path in nodes:
            if path not in self.change_set.nodes and (not self.change_set.deleted or self.node(path) is not None):
                yield path
        yield from list(self.change_set.nodes)

    def set_metadata(self, path: str, document: bytes) -> None:
        """Store the `zarr.json` of a node, and create the node if there is none. An equal document is not a change.

        Raises InvalidArrayMetadata, ReadOnlySession; InvalidStoreKey for a path that no new node can have.
        """
        self.check_editable()
        before = self.node(path)
        if before is None:
            check_path(path)
        elif before.user_data == document:
            return
        node = parse_node(path, document, new_node_id() if before is None else before.node_id)
        if isinstance(node, ArrayNode) and node.chunk_runs is not None and self.assets.layout.spec_version == 1:
            raise InvalidArrayMetadata(
                f"the chunk grid of {path} is rectilinear, but this repository follows version 1 of the Icechunk "
                "specification, which has regular grids only: upgrade it, or use chunks of one shape"
            )
        if before is not None and type(before) is not type(node):
            self.delete_node(path)
            node = parse_node(path, document, new_node_id())
        elif isinstance(before, ArrayNode) and isinstance(node, ArrayNode):
            if not _keeps_chunks(before, node) and self._has_chunks(before):
                raise InvalidArrayMetadata(
                    f"the array {path} has chunks of the shape {before.chunk_runs or before.chunk_shape}: "
                    f"delete it before one with chunks of {node.chunk_runs or node.chunk_shape} takes its place"
                )
            node = replace(node, manifests=before.manifests)
        self.change_set.set_node(node, before)

    def _has_chunks(self, array: ArrayNode) -> bool:
        return bool(array.manifests) or array.node_id in self.change_set.changed_arrays()

    def delete_node(self, path: str) -> None:
        """Delete an array, or a group and all nodes below it. Do nothing if there is none."""
        self.check_editable()
        prefix = "/" if path == "/" else path + "/"
        for other in [other for other in self.node_paths() if other == path or other.startswith(prefix)]:
            node = self.node(other)
            if node is not None:
                self.change_set.delete_node(node, self.snapshot.nodes.get(other))

    def move(self, from_path: str, to_path: str) -> None:
        """Move an array, or a group with all nodes below it, to another path. No data is copied.

        Raises:
            WrongSessionMode: The session is not one of `Repository.rearrange_session`.
            InvalidMove: There is no such node, another one is at the new path, or no group is above it. Or the node is
                the root, or the new path is its own or below it.
            InvalidStoreKey: No node can have the new path.
        """
        self.check_writable()
        if not self._rearranges:
            raise WrongSessionMode(
                "a writable session does not move nodes: commit it, and move them in a session of "
                "Repository.rearrange_session(branch)"
            )
        self.change_set.move(checked_move(_absolute(from_path), _absolute(to_path), self.node))

    def get_node_id(self, path: str) -> str:
        """Return the id of an array or group, which it keeps when it is moved. Raises NodeNotFound."""
        node = self.node(_absolute(path))
        if node is None:
            raise NodeNotFound(f"the session has no array or group {path}")
        return encode_id(node.node_id)

    # Chunks

    def reference(self, array: ArrayNode, index: ChunkIndex) -> ChunkReference | None:
        """Return where the bytes of a chunk are, or None if the chunk was never written.

        Raises MissingObject and DamagedObject where a manifest cannot be read.
        """
        if self.change_set.changes_chunk(array.node_id, index):
            return self.change_set.chunk(array.node_id, index)
        if not is_inside(index, array.grid) or self.change_set.is_gone(array.node_id, index):
            return None
        for ref in array.manifests:
            if ref.contains(index):
                return self.assets.manifest(ref.manifest_id).array(array.node_id).find(index)
        return None

    def fetch(self, chunk: ChunkReference, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of a chunk. A range past the end is cut."""
        return read_chunk(self.assets.store, self.virtual_chunks, chunk, start, end)

    def write_chunk(self, path: str, index: ChunkIndex, data: bytes | memoryview) -> None:
        """Write a chunk. Its bytes go to an object of its own unless they are few.

        Raises NodeNotFound, InvalidChunkIndex, EmptyChunk, ReadOnlySession.
        """
        self.check_editable()
        self._check_index(path, index)
        if not len(data):
            raise EmptyChunk(
                f"the chunk {index} of {path} has no bytes, so it could not be read: erase it if it is to have the "
                "fill value"
            )
        self.set_reference(path, index, write_chunk(self.assets.store, data, self._config.inline_threshold))

    def set_reference(self, path: str, index: ChunkIndex, chunk: ChunkReference | None) -> None:
        """Set the reference of a chunk, or erase the chunk with None.

        Raises NodeNotFound, InvalidChunkIndex, ReadOnlySession.
        """
        self.check_editable()
        self.change_set.set_chunk(self._check_index(path, index).node_id, index, chunk)

    def set_references(self, path: str, references: ChunkReferences) -> None:
        """Set the references of many chunks of an array. Raises NodeNotFound, InvalidChunkIndex, ReadOnlySession."""
        self.check_editable()
        array = self.array(path)
        outside = ~references.inside([(0, end) for end in array.grid])
        if outside.any():
            index = tuple(references.index[:, int(outside.argmax())].tolist())
            raise InvalidChunkIndex(
                f"the chunk {index} lies outside of the array {path}, which has {array.grid} chunks"
            )
        self.change_set.set_chunks(array.node_id, references)

    def _check_index(self, path: str, index: ChunkIndex) -> ArrayNode:
        array = self.array(path)
        if not is_inside(index, array.grid):
            raise InvalidChunkIndex(
                f"the chunk {index} lies outside of the array {path}, which has {array.grid} chunks"
            )
        return array

    def erase_chunk(self, path: str, index: ChunkIndex) -> None:
        """Erase a chunk. Do nothing if there is no such array, or the chunk is outside of it.

        The change is recorded even if the chunk was never written: its cells are set to the fill value, and another
        session may write it in the meantime.
        """
        self.check_editable()
        node = self.node(path)
        if isinstance(node, ArrayNode) and is_inside(index, node.grid):
            self.change_set.set_chunk(node.node_id, index, None)

    def chunk_indexes(self, array: ArrayNode) -> npt.NDArray[np.uint32]:
        """Return which chunks of an array were written: shape (chunks, dimensions), sorted."""
        return self._references(array).index.T

    def references(self, array: ArrayNode, extents: Extents | None = None) -> ChunkReferences:
        """Return the references of all written chunks of an array, or of those in a box of its grid.

        Raises MissingObject and DamagedObject where a manifest cannot be read.
        """
        return self._references(array, extents)

    def _references(self, array: ArrayNode, extents: Extents | None = None) -> ChunkReferences:
        outside = frozenset(ref for ref in array.manifests if extents is not None and not overlap(ref.extents, extents))
        references = self.assets.references(array, self.change_set.bounds.get(array.node_id), without=outside)
        if array.node_id in self.change_set.changed_arrays():
            unchanged = ~is_in(references.index, self.change_set.changed_chunks(array.node_id, array.grid).T)
            references = concatenated([references.take(unchanged), self.change_set.written(array.node_id, array.grid)])
        return references if extents is None else references.take(references.inside(extents))

    def shift_array(self, array_path: str, chunk_offset: Iterable[int]) -> None:
        """Move all chunks of an array by an offset, in chunks, without reading them.

        Chunks that leave the array are erased: to keep them, resize it first. Where no chunk comes to, cells have the
        fill value.

        Raises:
            NodeNotFound: There is no such array.
            InvalidChunkIndex: The offset has another number of dimensions, or the chunks have several shapes.
        """
        array = self._regular_array(_absolute(array_path))
        self._move_chunks(array, shifted(self._references(array), array.grid, list(chunk_offset)))

    def reindex_array(self, array_path: str, forward: ChunkMap, backward: ChunkMap | None = None) -> None:
        """Move the chunks of an array to where a function says, without reading them.

        Args:
            array_path: The path of the array.
            forward: Maps the index of a chunk to its new one, or to None if it stays.
            backward: The inverse. With it, chunks are erased that none comes to the place of; without it they stay.

        Raises:
            NodeNotFound: There is no such array.
            InvalidChunkIndex: An index lies outside of the array, or the chunks have several shapes.
        """
        array = self._regular_array(_absolute(array_path))
        self._move_chunks(array, reindexed(self._references(array), array.grid, forward, backward))

    def _regular_array(self, path: str) -> ArrayNode:
        self.check_editable()
        array = self.array(path)
        if array.chunk_runs is not None:
            raise InvalidChunkIndex(f"chunks of {path} have several shapes, so that a chunk has no other place in it")
        return array

    def _move_chunks(self, array: ArrayNode, moves: tuple[ChunkReferences, npt.NDArray[np.uint32]]) -> None:
        moved, vacated = moves
        if len(moved):
            self.set_references(array.path, moved)
        for index in vacated.tolist():
            self.erase_chunk(array.path, tuple(index))

    async def chunk_coordinates(self, array_path: str, batch_size: int = 1000) -> AsyncIterator[ChunkIndex]:
        """Yield the coordinates of the chunks of an array that were written, sorted. Raises NodeNotFound.

        `batch_size` is accepted for compatibility: all coordinates are computed at once.
        """
        for index in (await asyncio.to_thread(self.chunk_indexes, self.array(_absolute(array_path)))).tolist():
            yield tuple(index)

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """Return where the bytes of a chunk are. Raises NodeNotFound."""
        reference = self.reference(self.array(_absolute(array_path)), tuple(chunk_coordinates))
        return ChunkType.UNINITIALIZED if reference is None else _TYPES[type(reference)]

    def all_virtual_chunk_locations(self) -> list[str]:
        """Return the distinct locations of virtual chunks as absolute URLs, sorted.

        Raises InvalidVirtualReference for a location that is relative to an unknown container.
        """
        locations: set[str] = set()
        for path in list(self.node_paths()):
            node = self.node(path)
            if isinstance(node, ArrayNode):
                locations |= self._references(node).locations()
        return sorted({self.virtual_chunks.absolute(location) for location in locations})

    get_node_id_async = asynchronous(get_node_id)
    move_async = asynchronous(move)
    chunk_type_async = asynchronous(chunk_type)
    all_virtual_chunk_locations_async = asynchronous(all_virtual_chunk_locations)


def _keeps_chunks(before: ArrayNode, after: ArrayNode) -> bool:
    if before.chunk_runs is not None and after.chunk_runs is not None:
        return keeps_chunks(before.chunk_runs, after.chunk_runs)
    return (before.chunk_shape, before.chunk_runs) == (after.chunk_shape, after.chunk_runs)


def _absolute(path: str) -> str:
    return "/" + path.strip("/")
