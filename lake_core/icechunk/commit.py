"""Commits: manifests, then the snapshot, then its transaction log.

Moving the branch, as the last step, publishes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgpack

from lake_core.icechunk.change_set import ChangeSet
from lake_core.icechunk.errors import IcechunkError
from lake_core.icechunk.flexbuffer import encode_flexbuffer
from lake_core.icechunk.hierarchy import check_hierarchy
from lake_core.icechunk.identifier import encode_id, new_object_id
from lake_core.icechunk.manifest_update import ManifestUpdater
from lake_core.icechunk.marker import RESERVED, Marker, marker_metadata, recorded_markers
from lake_core.icechunk.moves import logged_moves, moved_nodes
from lake_core.icechunk.snapshot import (
    ArrayNode,
    GroupNode,
    ManifestFileInfo,
    ManifestRef,
    Node,
    Snapshot,
    microseconds,
    sort_key,
)
from lake_core.icechunk.splitting import split, split_sizes
from lake_core.icechunk.transaction_log import TransactionLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.clock import AwareClock
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.manifest import ChunkReferences
    from lake_core.txn import Txn

_SMALL = 1_000
"""Up to how many references of an array share a manifest with those of other arrays."""
_MOST_SHARED = 10_000
"""How many references a manifest holds at most that several arrays share."""
_MOST_SHARED_BYTES = 2**22


class CommitResult(str):
    """The id of the snapshot that a commit made, or that had recorded the same txn before."""

    skipped: bool
    """Whether nothing was committed, as the branch had recorded the txn already."""

    def __new__(cls, snapshot_id: str, *, skipped: bool = False) -> CommitResult:
        """Make a result of a snapshot's id."""
        self = super().__new__(cls, snapshot_id)
        self.skipped = skipped
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, bool]]:
        return (str(self),), {"skipped": self.skipped}


@dataclass(frozen=True, slots=True)
class Commit:
    """The data that is committed with the changes of a session."""

    assets: AssetManager
    config: RepositoryConfig
    clock: AwareClock
    message: str
    metadata: Mapping[str, Any]
    txn: Txn | None = None
    txn_retention: int | None = None
    """For how many microseconds markers count; None for ever."""

    def __post_init__(self) -> None:
        if not isinstance(self.message, str):
            raise TypeError(f"the message of a commit must be text, not {type(self.message).__name__}")
        reserved = next((key for key in self.metadata if str(key).startswith(RESERVED)), None)
        if reserved is not None:
            raise IcechunkError(
                f"the metadata key {reserved!r} is reserved for the transaction identifiers of commits: "
                "use another key, or pass txn=…"
            )
        # Other clients read the metadata as JSON, and no commit of a branch whose metadata is not.
        check_json_metadata(self.metadata)

    def _now(self) -> int:
        return microseconds(self.clock())

    def recorded(self, tip: bytes) -> CommitResult | None:
        """Return the commit that recorded the txn before, by the markers at a branch's tip, or None."""
        if self.txn is None:
            return None
        app_id, version = self.txn
        marker = recorded_markers(self.assets, self.assets.snapshot(tip), self._now(), self.txn_retention).get(app_id)
        return CommitResult(marker.snapshot, skipped=True) if marker is not None and marker.version >= version else None

    def write(
        self,
        changes: ChangeSet,
        parent: Snapshot,
        *,
        log: TransactionLog | None = None,
        markers: Mapping[str, Marker] | None = None,
        writes: int | None = 1,
    ) -> Snapshot:
        """Write everything except the branch. Return the new snapshot, which nothing refers to yet.

        Args:
            changes: The changes from the parent to the snapshot.
            parent: The parent, or the parent with changes to its nodes that `log` contains.
            log: The transaction log; by default that of the changes.
            markers: The markers that count from then on; by default the parent's, and that of `txn`.
            writes: How many writes become this commit; None if that is unknown.

        Raises InvalidHierarchy before anything is written.
        """
        if changes.moves:
            log = change_log(changes, parent) if log is None else log
            parent = replace(parent, nodes=moved_nodes(changes.moves, parent.nodes))
            changes = ChangeSet()
        check_hierarchy(changes, parent)
        return self._write(changes, parent, _Manifests(self.assets, self.config, changes, parent), log, markers, writes)

    def rewrite(self, parent: Snapshot, log: TransactionLog | None = None) -> Snapshot:
        """Write all manifests again, and everything else except the branch, as `write` does."""
        changes = ChangeSet()
        return self._write(changes, parent, _RewrittenManifests(self.assets, self.config, changes, parent), log)

    def _write(
        self,
        changes: ChangeSet,
        parent: Snapshot,
        nodes: _Manifests,
        log: TransactionLog | None = None,
        markers: Mapping[str, Marker] | None = None,
        writes: int | None = 1,
    ) -> Snapshot:
        snapshot_id = new_object_id()
        # Readers treat a snapshot that is not later than its parent as damaged.
        flushed_at = max(self._now(), parent.flushed_at + 1)
        markers = self._markers(parent, snapshot_id, flushed_at) if markers is None else markers
        written = nodes.write()
        used = {ref.manifest_id for node in written.values() if isinstance(node, ArrayNode) for ref in node.manifests}
        files = {**parent.manifest_files, **nodes.files}
        snapshot = Snapshot(
            snapshot_id,
            parent.snapshot_id,
            flushed_at,
            self.message,
            {**self.metadata, **marker_metadata(markers, writes)},
            {manifest_id: files.get(manifest_id) or self._file_info(manifest_id) for manifest_id in used},
            written,
        )
        self.assets.write_snapshot(snapshot)
        self.assets.write_transaction_log(snapshot_id, change_log(changes, parent) if log is None else log)
        return snapshot

    def _markers(self, parent: Snapshot, snapshot_id: bytes, flushed_at: int) -> dict[str, Marker]:
        markers = recorded_markers(self.assets, parent, flushed_at, self.txn_retention)
        if self.txn is not None:
            app_id, version = self.txn
            markers[app_id] = Marker(version, flushed_at, encode_id(snapshot_id))
        return markers

    def _file_info(self, manifest_id: bytes) -> ManifestFileInfo:
        """Return the entry for a manifest that the parent's list lacks: other clients refuse a snapshot without it."""
        path = f"manifests/{encode_id(manifest_id)}"
        manifest = self.assets.manifest(manifest_id)
        count = sum(map(len, manifest.arrays()))
        return ManifestFileInfo(manifest_id, self.assets.store.head(path).size, count)


def check_json_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise IcechunkError for metadata that JSON cannot hold."""
    try:
        _check_json(dict(metadata))
        for value in metadata.values():
            msgpack.packb(value)
            encode_flexbuffer(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise IcechunkError(f"the metadata cannot be written as JSON: {error}") from None


def _check_json(value: Any) -> None:
    """Raise TypeError or ValueError for a value that JSON cannot hold."""
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is not the name of a value: names are texts")
            _check_json(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check_json(each)
    elif isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"bytes such as {bytes(value[:20])!r} are no text: decode them, or encode them in Base64")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number of JSON: use None, or a text")


def change_log(changes: ChangeSet, parent: Snapshot) -> TransactionLog:
    """Return changes as the transaction log of a commit on `parent`."""
    before = {node.node_id: node for path in changes.nodes if (node := parent.nodes.get(path)) is not None}
    new = [node for node in changes.nodes.values() if node.node_id not in before]
    updated = [node for node in changes.nodes.values() if node.node_id in before]
    return TransactionLog(
        new_groups=_ids(new, GroupNode),
        new_arrays=_ids(new, ArrayNode),
        deleted_groups=_ids(changes.deleted.values(), GroupNode),
        deleted_arrays=_ids(changes.deleted.values(), ArrayNode),
        updated_groups=_ids(updated, GroupNode),
        updated_arrays=_ids(updated, ArrayNode),
        updated_chunks=dict(_changed_chunks(changes, parent)),
        moved_nodes=tuple(logged_moves(changes.moves, parent.nodes)),
    )


def _ids(nodes: Any, kind: type[Node]) -> frozenset[bytes]:
    return frozenset(node.node_id for node in nodes if isinstance(node, kind))


def _changed_chunks(changes: ChangeSet, parent: Snapshot) -> Iterator[tuple[bytes, Any]]:
    arrays = _changed_arrays(changes, parent)
    for node_id in changes.changed_arrays():
        yield node_id, changes.changed_chunks(node_id, arrays[node_id].grid)


def _changed_arrays(changes: ChangeSet, parent: Snapshot) -> dict[bytes, ArrayNode]:
    """Return the arrays whose chunks or metadata have changed, as they are now, by id."""
    arrays = {node.node_id: node for node in changes.nodes.values() if isinstance(node, ArrayNode)}
    missing = changes.changed_arrays() - arrays.keys()
    if missing:
        arrays.update(
            {
                node.node_id: node
                for node in parent.nodes.values()
                if isinstance(node, ArrayNode) and node.node_id in missing
            }
        )
    return arrays


@dataclass(slots=True)
class _Manifests:
    """The manifests of a commit."""

    assets: AssetManager
    config: RepositoryConfig
    changes: ChangeSet
    parent: Snapshot
    files: dict[bytes, ManifestFileInfo] = field(default_factory=dict)
    """Those that were written."""
    _pending: list[tuple[bytes, ChunkReferences]] = field(default_factory=list)
    _refs: dict[bytes, list[ManifestRef]] = field(default_factory=dict)

    def write(self) -> dict[str, Node]:
        """Write the new manifests. Return all nodes, sorted."""
        arrays = self._update_all()
        nodes = {path: node for path, node in self.parent.nodes.items() if node.node_id not in self.changes.deleted}
        nodes.update({node.path: self._rebased(node) for node in self.changes.nodes.values()})
        for node_id, refs in self._refs.items():
            array = nodes[arrays[node_id].path]
            assert isinstance(array, ArrayNode)
            nodes[array.path] = replace(array, manifests=tuple(refs))
        return {path: nodes[path] for path in sorted(nodes, key=sort_key)}

    def _update_all(self) -> dict[bytes, ArrayNode]:
        """Write the manifests of all arrays whose references change. Return these arrays by id."""
        arrays = _changed_arrays(self.changes, self.parent)
        for node_id in sorted(self.changes.changed_arrays() | self.changes.bounds.keys()):
            self._update(arrays[node_id])
        self._flush()
        return arrays

    def _rebased(self, node: Node) -> Node:
        """Return a changed node with the manifests that it has in the parent: the session may have been rebased."""
        if not isinstance(node, ArrayNode):
            return node
        before = self.parent.nodes.get(node.path)
        same = isinstance(before, ArrayNode) and before.node_id == node.node_id
        return replace(node, manifests=before.manifests if same and isinstance(before, ArrayNode) else ())

    def _update(self, node: ArrayNode) -> None:
        array = self._rebased(node)
        assert isinstance(array, ArrayNode)
        update = ManifestUpdater(
            array,
            self.changes.written(array.node_id, array.grid),
            self.changes.erased(array.node_id, len(array.shape)),
            self.changes.bounds.get(array.node_id, array.grid),
            split_sizes(self.config.splitting, array),
            lambda ref: self._read(array, ref),
            self._count,
        ).update()
        self._refs[array.node_id] = list(update.kept)
        self._pending += ((array.node_id, references) for references in update.new if len(references))

    def _read(self, array: ArrayNode, ref: ManifestRef) -> ChunkReferences:
        return self.assets.manifest(ref.manifest_id).array(array.node_id).references(len(array.shape))

    def _count(self, ref: ManifestRef) -> int:
        info = self.parent.manifest_files.get(ref.manifest_id)
        return 0 if info is None else info.num_chunk_refs

    def _flush(self) -> None:
        """Write the pending references: many of one array to a manifest of their own, few of several together."""
        shared: dict[bytes, ChunkReferences] = {}
        count = size = 0
        for node_id, references in self._pending:
            own_bytes = int(references.data_length.sum())
            if len(references) > _SMALL or own_bytes > _MOST_SHARED_BYTES:
                self._write({node_id: references})
                continue
            if node_id in shared or count + len(references) > _MOST_SHARED or size + own_bytes > _MOST_SHARED_BYTES:
                self._write(shared)
                shared, count, size = {}, 0, 0
            shared[node_id] = references
            count, size = count + len(references), size + own_bytes
        self._write(shared)
        self._pending.clear()

    def _write(self, arrays: Mapping[bytes, ChunkReferences]) -> None:
        if not arrays:
            return
        info = self.assets.write_manifest(arrays)
        self.files[info.id_bytes] = info
        for node_id, references in arrays.items():
            self._refs[node_id].append(ManifestRef(info.id_bytes, references.extents))


class _RewrittenManifests(_Manifests):
    """The manifests of a commit that only changes how references are spread over manifests."""

    def _update_all(self) -> dict[bytes, ArrayNode]:
        arrays = {node.node_id: node for node in self.parent.nodes.values() if isinstance(node, ArrayNode)}
        for array in arrays.values():
            self._refs[array.node_id] = []
            pieces = split(self.assets.references(array), split_sizes(self.config.splitting, array))
            self._pending += ((array.node_id, piece) for piece in pieces)
            if sum(len(references) for _, references in self._pending) > _MOST_SHARED:
                self._flush()
        self._flush()
        return arrays
