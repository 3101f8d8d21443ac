"""Reading and writing the immutable files of a repository, with a bounded cache of those that were read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.clock import AwareClock, system_clock
from lake_core.errors import NotFound
from lake_core.icechunk.errors import DamagedObject, MissingObject, UnsupportedSpecVersion
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL, HEADER_LENGTH, spec_version_of
from lake_core.icechunk.folders import MANIFESTS, SNAPSHOTS, TRANSACTIONS
from lake_core.icechunk.identifier import encode_id, new_object_id
from lake_core.icechunk.layouts import layout_of
from lake_core.icechunk.manifest import ChunkReferences, concatenated, references_from
from lake_core.icechunk.manifest_file import Manifest, decode_manifest, encode_manifest
from lake_core.icechunk.snapshot import ArrayNode, ManifestFileInfo, ManifestRef, Snapshot
from lake_core.icechunk.snapshot_file import decode_snapshot, encode_snapshot
from lake_core.icechunk.transaction_log import TransactionLog, decode_transaction_log, encode_transaction_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from lake_core.icechunk.repository_layout import RepositoryLayout
    from lake_core.store import ObjectBytes, ObjectStore

_LARGEST_CACHE = 256 * 2**20
"""How many bytes of decoded manifests are cached."""
_CACHED_SNAPSHOTS = 16


class AssetManager:
    """The snapshots, manifests, transaction logs and chunks of one repository.

    Safe to use from many threads, picklable.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        compression_level: int = DEFAULT_COMPRESSION_LEVEL,
        clock: AwareClock = system_clock,
        layout: RepositoryLayout | None = None,
    ) -> None:
        """Make them. `layout`: by default that of the store, whatever it is at each time."""
        self.store = store
        self.compression_level = compression_level
        self._clock = clock
        self._layout = layout
        self._is_given = layout is not None
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[bytes, Snapshot] = OrderedDict()
        self._manifests: OrderedDict[bytes, Manifest] = OrderedDict()
        self._cached_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "compression_level": self.compression_level,
            "_clock": self._clock,
            "_layout": self._layout,
            "_is_given": self._is_given,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._start()

    @property
    def layout(self) -> RepositoryLayout:
        """Return where the branches, tags and history are. It is looked up again until the repository is upgraded."""
        layout = self._layout
        if layout is None or (layout.spec_version == 1 and not self._is_given):
            level, clock = self.compression_level, self._clock
            layout = self._layout = layout_of(self.store, compression_level=level, clock=clock)
        return layout

    @property
    def _spec_version(self) -> int:
        """Return the version of new files, as of the last look. Version 2 reads files of version 1, too."""
        return (self._layout or self.layout).spec_version

    def snapshot(self, snapshot_id: bytes) -> Snapshot:
        """Return a snapshot. Raises MissingObject, DamagedObject, UnsupportedSpecVersion."""
        with self._lock:
            cached = self._snapshots.get(snapshot_id)
            if cached is not None:
                self._snapshots.move_to_end(snapshot_id)
                return cached
        snapshot = self.read_snapshot(snapshot_id)
        with self._lock:
            self._snapshots[snapshot_id] = snapshot
            while len(self._snapshots) > _CACHED_SNAPSHOTS:
                self._snapshots.popitem(last=False)
        return snapshot

    def read_snapshot(self, snapshot_id: bytes) -> Snapshot:
        """Return the current state of a snapshot: expiring a history changes the parent of old snapshots in place."""
        path = SNAPSHOTS + encode_id(snapshot_id)
        return self._decoded(self._get(path), path, snapshot_id)

    def read_snapshots(self, snapshot_ids: Sequence[bytes]) -> list[Snapshot]:
        """Return several snapshots in their current states, read concurrently.

        Raises MissingObject, DamagedObject, UnsupportedSpecVersion.
        """
        paths = [SNAPSHOTS + encode_id(snapshot_id) for snapshot_id in snapshot_ids]
        return list(map(self._decoded, self._get_many(paths), paths, snapshot_ids))

    def _decoded(self, data: ObjectBytes, path: str, snapshot_id: bytes) -> Snapshot:
        snapshot = decode_snapshot(self._checked(data, path), path)
        if snapshot.snapshot_id != snapshot_id:
            raise DamagedObject(path, "it holds a snapshot with another id")
        return snapshot

    def _checked(self, data: ObjectBytes, path: str) -> ObjectBytes:
        """Return an object. Raise UnsupportedSpecVersion if it is of version 2 in a repository of version 1."""
        if len(data) > HEADER_LENGTH and spec_version_of(data) == 2 and self.layout.spec_version == 1:
            raise UnsupportedSpecVersion(
                f"{path} follows version 2 of the Icechunk specification in a repository of version 1: "
                "restore it from a copy, or reset the branch to an undamaged snapshot"
            )
        return data

    def forget_snapshot(self, snapshot_id: bytes) -> None:
        """Remove a rewritten snapshot from the cache, so that it is read again."""
        with self._lock:
            self._snapshots.pop(snapshot_id, None)

    def read_manifests(self, manifest_ids: Sequence[bytes]) -> list[Manifest]:
        """Return several manifests, read concurrently and not cached.

        Raises MissingObject, DamagedObject, UnsupportedSpecVersion.
        """
        paths = [MANIFESTS + encode_id(manifest_id) for manifest_id in manifest_ids]
        objects = zip(self._get_many(paths), paths, manifest_ids, strict=True)
        return [decode_manifest(self._checked(data, path), path, manifest_id) for data, path, manifest_id in objects]

    def manifest(self, manifest_id: bytes) -> Manifest:
        """Return a manifest. Raises MissingObject, DamagedObject, UnsupportedSpecVersion."""
        with self._lock:
            cached = self._manifests.get(manifest_id)
            if cached is not None:
                self._manifests.move_to_end(manifest_id)
                return cached
        path = MANIFESTS + encode_id(manifest_id)
        manifest = decode_manifest(self._checked(self._get(path), path), path, manifest_id)
        with self._lock:
            if manifest_id not in self._manifests:
                self._cached_bytes += manifest.size
            self._manifests[manifest_id] = manifest
            while self._cached_bytes > _LARGEST_CACHE and len(self._manifests) > 1:
                self._cached_bytes -= self._manifests.popitem(last=False)[1].size
        return manifest

    def references(
        self, array: ArrayNode, bounds: tuple[int, ...] | None = None, *, without: Set[ManifestRef] = frozenset()
    ) -> ChunkReferences:
        """Return the references of an array. That of a chunk is in the first manifest whose extents hold the chunk.

        Args:
            array: The array.
            bounds: The grid of chunks outside of which references are left out; by default that of the array.
            without: Manifests to leave out, which are not read.

        Raises MissingObject, DamagedObject, UnsupportedSpecVersion.
        """
        dimensions = len(array.shape)
        extents = np.array([ref.extents for ref in array.manifests], np.int64).reshape(
            len(array.manifests), dimensions, 2
        )
        box = [(0, count) for count in (array.grid if bounds is None else bounds)]
        first, end = extents[:, :, 0], extents[:, :, 1]
        parts = [references_from(dimensions, {})]
        for number, ref in enumerate(array.manifests):
            if ref in without:
                continue
            references = self.manifest(ref.manifest_id).array(array.node_id).references(dimensions)
            visible = references.inside(box) & references.inside(ref.extents)
            overlaps = ((first[:number] < end[number]) & (first[number] < end[:number])).all(axis=1)
            for earlier in np.flatnonzero(overlaps).tolist():
                visible &= ~references.inside(array.manifests[earlier].extents)
            parts.append(references.take(visible))
        return concatenated(parts)

    def transaction_log(self, snapshot_id: bytes) -> TransactionLog:
        """Return the transaction log of a snapshot. Raises MissingObject, DamagedObject, UnsupportedSpecVersion."""
        path = TRANSACTIONS + encode_id(snapshot_id)
        return decode_transaction_log(self._checked(self._get(path), path), path, snapshot_id)

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot under its id."""
        data = encode_snapshot(snapshot, self.compression_level, self._spec_version)
        self._put(SNAPSHOTS, snapshot.snapshot_id, data)

    def write_manifest(self, arrays: Mapping[bytes, ChunkReferences]) -> ManifestFileInfo:
        """Write a new manifest that holds references of these arrays, given by their node ids."""
        manifest_id = new_object_id()
        data = encode_manifest(manifest_id, arrays, self.compression_level, self._spec_version)
        self._put(MANIFESTS, manifest_id, data)
        return ManifestFileInfo(manifest_id, len(data), sum(len(references) for references in arrays.values()))

    def write_transaction_log(self, snapshot_id: bytes, log: TransactionLog) -> None:
        """Write the transaction log of a snapshot."""
        data = encode_transaction_log(log, snapshot_id, self.compression_level, self._spec_version)
        self._put(TRANSACTIONS, snapshot_id, data)

    def _put(self, folder: str, object_id: bytes, data: bytes | memoryview) -> None:
        self.store.put(folder + encode_id(object_id), data, unique=True)

    def _get(self, path: str, start: int | None = None, end: int | None = None) -> ObjectBytes:
        try:
            return self.store.get(path, start, end)
        except NotFound:
            raise MissingObject(path, "the repository refers to it, but it does not exist") from None

    def _get_many(self, paths: Sequence[str]) -> list[ObjectBytes]:
        try:
            return self.store.get_many(paths)
        except NotFound as error:
            raise MissingObject(error.key or paths[0], "the repository refers to it, but it does not exist") from None
