"""A session as a Zarr store."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.buffer.core import default_buffer_prototype

from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.errors import InvalidChunkIndex, InvalidStoreKey, InvalidVirtualReference, ReadOnlySession
from lake_core.icechunk.location import stored_location, without_secrets
from lake_core.icechunk.manifest import ChunkIndex, ChunkReference, InlineChunk, sorted_references
from lake_core.icechunk.snapshot import ArrayNode
from lake_core.icechunk.virtual import VirtualChunkSpec, is_relative, virtual_chunk
from lake_core.icechunk.virtual_references import references_of_box, virtual_references
from lake_core.store import FolderStore, LocalStore, MemoryStore, ObjectStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    import numpy.typing as npt

    from lake_core.icechunk.manifest import ChunkReferences
    from lake_core.icechunk.session_state import SessionState

_METADATA = "zarr.json"
_CHUNK = re.compile(r"(?:(.+)/)?c((?:/(?:0|[1-9][0-9]{0,9}))*)", re.DOTALL)
_LARGEST_COORDINATE = 2**32 - 1
_V2_NAMES = (".zarray", ".zgroup", ".zattrs", ".zmetadata")

T = TypeVar("T")


class IcechunkStore(Store):
    """The contents of a session under the keys of Zarr v3: `zarr.json` documents and chunks."""

    supports_writes = True
    supports_deletes = True
    supports_partial_writes = False
    supports_listing = True
    supports_consolidated_metadata = False

    def __init__(self, session: SessionState, *, read_only: bool | None = None) -> None:
        super().__init__(read_only=session.read_only if read_only is None else read_only or session.read_only)
        self._session = session
        nearest = _innermost(session.assets.store)
        self._is_local = isinstance(nearest, LocalStore | MemoryStore)
        self._writes_wait = not isinstance(nearest, MemoryStore)

    @property
    def session(self) -> SessionState:
        """Return the session that the store reads and writes."""
        return self._session

    @property
    def read_only(self) -> bool:
        """Return whether the store is read-only, as it is after a commit of its session."""
        return self._read_only or self._session.read_only

    def _check_writable(self) -> None:
        """Raise ReadOnlySession, which is a ValueError, if the store is read-only."""
        if self.read_only:
            raise ReadOnlySession(
                "the store is read-only: write in a session, to session.icechunk(path).store of a session of the lake, "
                "or to the store of Repository.writable_session(branch)"
            )

    def with_read_only(self, read_only: bool = False) -> IcechunkStore:
        """Return a store of the same session. Raises ValueError for a writable store of a read-only session."""
        if not read_only and self._session.read_only:
            raise ValueError("the session is read-only: open a writable one with Repository.writable_session(branch)")
        return IcechunkStore(self._session, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IcechunkStore) and self._read_only == other._read_only and self._session == other._session
        )

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return f"icechunk://{self._session.snapshot_id}"

    def __repr__(self) -> str:
        return f"IcechunkStore({self._session!r})"

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that may wait for the store, in another thread unless that costs more than the wait."""
        if self._is_local:
            return function(*arguments)
        return await asyncio.to_thread(function, *arguments)

    # Reading

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the value of a key, or None if there is none.

        Raises an IcechunkError if there is one that cannot be read.
        """
        return await self._run(self._get, key, prototype, byte_range)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the value of a key, or None if there is none."""
        return self._get(key, prototype, byte_range)

    def _get(self, key: str, prototype: BufferPrototype | None, byte_range: ByteRequest | None) -> Buffer | None:
        data = self._read(key, byte_range)
        return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return the values of several ranges of keys."""
        return list(await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether a key has a value."""
        return await self._run(self._exists, key)

    def _exists(self, key: str) -> bool:
        return self._reference(key) is not None

    def _read(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        reference = self._reference(key)
        if reference is None:
            return None
        start, end = _range(byte_range, reference.length)
        return self._session.fetch(reference, start, end)

    def _reference(self, key: str) -> ChunkReference | None:
        """Return where the bytes of a key are, or None if it has none."""
        metadata_path = _node_path_of_metadata(key)
        if metadata_path is not None:
            document = self._session.node(metadata_path)
            return None if document is None else InlineChunk(document.user_data)
        path_and_index = _parse_chunk_key(key)
        if path_and_index is None:
            return None
        path, index = path_and_index
        node = self._session.node(path)
        return self._session.reference(node, index) if isinstance(node, ArrayNode) else None

    async def getsize(self, key: str) -> int:
        """Return the length of a value in bytes. Raises FileNotFoundError if there is none."""
        reference = await self._run(self._reference, key)
        if reference is None:
            raise FileNotFoundError(key)
        return reference.length

    # Writing

    async def set(self, key: str, value: Buffer) -> None:
        """Store a `zarr.json` document or a chunk.

        Raises InvalidStoreKey, InvalidArrayMetadata, NodeNotFound, InvalidChunkIndex; ValueError if the store is
        read-only.
        """
        if self._writes_wait and len(value) > self._session.config.inline_threshold:
            # This makes several chunks durable at once.
            await asyncio.to_thread(self._set, key, value)
        else:
            self._set(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        """Store a `zarr.json` document or a chunk."""
        self._set(key, value)

    def _set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(
                f"IcechunkStore.set(): `value` must be a Buffer instance. Got an instance of {type(value)} instead."
            )
        path = _node_path_of_metadata(key)
        if path is not None:
            self._session.set_metadata(path, value.to_bytes())
            return
        path, index = _parse_checked_chunk_key(key)
        self._session.write_chunk(
            path, index, memoryview(np.ascontiguousarray(value.as_numpy_array()).view(np.uint8).data)
        )

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Store a value unless the key has one."""
        self._check_writable()
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        """Delete a value. Deleting the `zarr.json` of a group deletes all nodes below it."""
        await self._run(self._delete, key)

    def delete_sync(self, key: str) -> None:
        """Delete a value."""
        self._delete(key)

    def _delete(self, key: str) -> None:
        self._check_writable()
        path = _node_path_of_metadata(key)
        if path is not None:
            self._session.delete_node(path)
            return
        path_and_index = _parse_chunk_key(key)
        if path_and_index is not None:
            self._session.erase_chunk(*path_and_index)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all values below a prefix."""
        await self._run(self._delete_dir, prefix.strip("/"))

    def _delete_dir(self, prefix: str) -> None:
        self._check_writable()
        path_and_index = _parse_chunk_key(prefix)
        if path_and_index is not None and isinstance(self._session.node(path_and_index[0]), ArrayNode):
            path, begin = path_and_index
            for index in self._session.chunk_indexes(self._session.array(path)).tolist():
                if tuple(index[: len(begin)]) == begin:
                    self._session.erase_chunk(path, tuple(index))
            return
        self._session.delete_node("/" + prefix)

    async def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Raise NotImplementedError: values are stored whole."""
        raise NotImplementedError("values of a repository are stored whole: use set")

    # Virtual references

    def set_virtual_ref(
        self,
        key: str,
        location: str,
        *,
        offset: int,
        length: int,
        checksum: str | datetime | None = None,
        validate_container: bool = True,
    ) -> None:
        """Set a chunk to a range of an object outside of the repository.

        Args:
            key: The chunk's key, such as `array/c/0/0`.
            location: The object's absolute URL. In version 2 also `vcc://name/path`: the name of a virtual chunk
                container, and what follows its URL prefix.
            offset: The range's first byte.
            length: The range's length in bytes.
            checksum: The etag that the object must have, or a time since which it must not have changed, when the chunk
                is read.
            validate_container: Whether a virtual chunk container of the repository must hold the location.

        Raises:
            InvalidVirtualReference: The location, range or checksum is not valid, or no container holds the location.
        """
        self._check_writable()
        path, index = _parse_checked_chunk_key(key)
        chunk = virtual_chunk(location, offset, length, checksum)
        self._check_location(chunk.location, is_held=validate_container)
        self._session.set_reference(path, index, chunk)

    def set_virtual_refs(
        self, array_path: str, chunks: Iterable[VirtualChunkSpec], *, validate_containers: bool = True
    ) -> None:
        """Set several chunks of an array to ranges of objects outside of the repository.

        Args:
            array_path: The path of the array.
            chunks: The references. None of them is set if one is not valid.
            validate_containers: Whether virtual chunk containers of the repository must hold all locations.

        Raises:
            InvalidVirtualReference: A location, range or checksum is not valid, or no container holds a location.
            InvalidChunkIndex: A reference is of a chunk that the array does not have.
        """
        self._check_writable()
        path = "/" + array_path.strip("/")
        self._set_virtual(
            path, virtual_references([*chunks], len(self._session.array(path).shape)), is_held=validate_containers
        )

    def set_virtual_refs_arr(
        self,
        array_path: str,
        chunk_grid_shape: Sequence[int],
        locations: Sequence[str],
        offsets: npt.ArrayLike,
        lengths: npt.ArrayLike,
        *,
        validate_containers: bool = True,
        arr_offset: Sequence[int] | None = None,
        checksum: datetime | str | None = None,
    ) -> None:
        """Set the chunks of a box of an array's grid to ranges of objects outside of the repository.

        Args:
            array_path: The path of the array.
            chunk_grid_shape: The lengths of the box, in chunks.
            locations: The URLs of the objects, one for each chunk, the last dimension fastest. A chunk whose location
                is empty stays as it is.
            offsets: The first byte of each range.
            lengths: The length of each range in bytes.
            validate_containers: Whether virtual chunk containers of the repository must hold all locations.
            arr_offset: The index of the box's first chunk. The default is the first of the array.
            checksum: The etag that the objects must have, or a time since which they must not have changed.

        Raises:
            InvalidVirtualReference: A location, range or checksum is not valid, or no container holds a location.
            InvalidChunkIndex: A reference is of a chunk that the array does not have, or there are not as many
                locations, offsets and lengths as chunks.
        """
        self._check_writable()
        path = "/" + array_path.strip("/")
        dimensions = len(self._session.array(path).shape)
        first = [0] * dimensions if arr_offset is None else arr_offset
        references = references_of_box(chunk_grid_shape, first, locations, offsets, lengths, checksum)
        if references.dimensions != dimensions:
            raise InvalidChunkIndex(f"{path} has {dimensions} dimensions, but the box has {references.dimensions}")
        self._set_virtual(path, references, is_held=validate_containers)

    def _set_virtual(self, path: str, references: ChunkReferences, *, is_held: bool) -> None:
        for location in sorted(references.locations()):
            self._check_location(location, is_held=is_held)
        if len(references):
            self._session.set_references(path, sorted_references(references))

    def _check_location(self, location: str, *, is_held: bool) -> None:
        """Check that a repository of this version can store a location, and, on request, that a container holds it."""
        if is_relative(location) and self._session.assets.layout.spec_version == 1:
            raise InvalidVirtualReference(
                f"{without_secrets(location)[:200]} names its container, which clients of version 1 of the "
                "specification cannot read: give the absolute URL, or upgrade the repository"
            )
        if is_held:
            chunks = self._session.virtual_chunks
            chunks.check_held(stored_location(chunks.absolute(location)))

    set_virtual_ref_async = asynchronous(set_virtual_ref)
    set_virtual_refs_async = asynchronous(set_virtual_refs)
    set_virtual_refs_arr_async = asynchronous(set_virtual_refs_arr)

    def sync_clear(self) -> None:
        """Delete all arrays and groups."""
        self._delete_dir("")

    # Listing

    def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with a prefix."""
        for key in await self._run(lambda: [*self._keys(prefix)]):
            yield key

    def _keys(self, prefix: str) -> Iterator[str]:
        for path in [*self._session.node_paths()]:
            folder = path[1:] + "/" if path != "/" else ""
            if not folder.startswith(prefix) and not prefix.startswith(folder):
                continue
            if (folder + _METADATA).startswith(prefix):
                yield folder + _METADATA
            node = self._session.node(path)
            if isinstance(node, ArrayNode) and _may_hold(folder, prefix):
                for index in self._session.chunk_indexes(node).tolist():
                    key = folder + "/".join(("c", *map(str, index)))
                    if key.startswith(prefix):
                        yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly under a prefix."""
        for name in await self._run(self._names, prefix.strip("/")):
            yield name

    def _names(self, prefix: str) -> Iterable[str]:
        folder = prefix + "/" if prefix else ""
        names: dict[str, None] = {}
        node = self._session.node("/" + prefix)
        if node is not None:
            names[_METADATA] = None
        path_and_index = _parse_chunk_key(prefix)
        array = None if path_and_index is None else self._session.node(path_and_index[0])
        if path_and_index is not None and isinstance(array, ArrayNode):
            begin = path_and_index[1]
            level = len(begin)
            for index in self._session.chunk_indexes(array).tolist():
                if tuple(index[:level]) == begin and len(index) > level:
                    names[str(index[level])] = None
        elif isinstance(node, ArrayNode) and len(self._session.chunk_indexes(node)):
            names["c"] = None
        start = 1 + len(folder)
        for path in self._session.node_paths():
            if path.startswith("/" + folder) and len(path) > start:
                names[path[start:].partition("/")[0]] = None
        return names


def _innermost(store: ObjectStore) -> ObjectStore:
    """Return the store at the root of nested folder stores."""
    while isinstance(store, FolderStore):
        store = store.inner
    return store


def _may_hold(folder: str, prefix: str) -> bool:
    chunks = folder + "c"
    return chunks.startswith(prefix) or prefix.startswith(chunks)


def _node_path_of_metadata(key: str) -> str | None:
    if key == _METADATA:
        return "/"
    return "/" + key[: -len(_METADATA) - 1] if key.endswith("/" + _METADATA) else None


def _parse_chunk_key(key: str) -> tuple[str, ChunkIndex] | None:
    """Return the path of an array and the index of its chunk that a key stands for, or None for any other key."""
    match = _CHUNK.fullmatch(key)
    if match is None:
        return None
    path, coordinates = match.groups()
    index = tuple(map(int, coordinates.split("/")[1:]))
    return ("/" + (path or ""), index) if all(coordinate <= _LARGEST_COORDINATE for coordinate in index) else None


def _parse_checked_chunk_key(key: str) -> tuple[str, ChunkIndex]:
    path_and_index = _parse_chunk_key(key)
    if path_and_index is None:
        version = " (Zarr v2 is not supported)" if key.rpartition("/")[2] in _V2_NAMES else ""
        raise InvalidStoreKey(
            f"a repository cannot store the key {key[:200]!r}{version}: "
            "it stores zarr.json documents and chunks, such as c/0/0"
        )
    return path_and_index


def _range(request: ByteRequest | None, length: int) -> tuple[int, int]:
    """Return the first byte of a range and the one after its last, both within `length` bytes."""
    if request is None:
        return 0, length
    if isinstance(request, RangeByteRequest):
        return min(request.start, length), min(request.end, length)
    if isinstance(request, OffsetByteRequest):
        return min(request.offset, length), length
    if isinstance(request, SuffixByteRequest):
        return max(0, length - request.suffix), length
    raise ValueError(f"Unexpected byte_range, got {request}.")
