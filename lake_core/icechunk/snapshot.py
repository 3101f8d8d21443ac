"""Snapshots: the nodes of a hierarchy at one commit. Specification section: Snapshot Files."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from lake_core.icechunk.chunk_grid import ChunkRuns, grid_of
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.icechunk.manifest import ChunkIndex, Extents

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest that holds references of an array, and the box that contains them."""

    manifest_id: bytes
    extents: Extents

    def contains(self, index: ChunkIndex) -> bool:
        """Return whether a chunk is within the manifest's extents."""
        return all(first <= coordinate < end for coordinate, (first, end) in zip(index, self.extents, strict=False))


@dataclass(frozen=True, slots=True)
class ManifestFileInfo:
    """The description of a manifest file in a snapshot."""

    id_bytes: bytes
    size_bytes: int
    num_chunk_refs: int

    @property
    def id(self) -> str:
        """Return the manifest's id, as in its file name."""
        return encode_id(self.id_bytes)


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group."""

    node_id: bytes
    path: str
    """Absolute: "/" for the root."""
    user_data: bytes
    """The whole `zarr.json` document."""


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """An array."""

    node_id: bytes
    path: str
    user_data: bytes
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None = None
    manifests: tuple[ManifestRef, ...] = ()
    chunk_runs: tuple[ChunkRuns, ...] | None = None
    """The lengths of the chunks of a rectilinear grid, for each dimension; None for a regular grid."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the number of chunks along each dimension."""
        if self.chunk_runs is not None:
            return tuple(sum(count for _, count in runs) for runs in self.chunk_runs)
        return grid_of(self.shape, self.chunk_shape)


Node: TypeAlias = GroupNode | ArrayNode


def sort_key(path: str) -> bytes:
    """Return the key that sorts nodes: the bytes of their paths, which is not the order of a tree."""
    return path.encode()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a repository at one commit."""

    snapshot_id: bytes
    parent_id: bytes | None
    flushed_at: int
    """When it was written: microseconds since the epoch."""
    message: str
    metadata: Mapping[str, Any]
    manifest_files: Mapping[bytes, ManifestFileInfo]
    nodes: Mapping[str, Node]
    """By path, in the order of the paths' bytes."""
    is_foreign: bool = False
    """Whether the file was written by another client, which does not copy the metadata of its parent."""

    @property
    def written_at(self) -> datetime:
        """Return when it was written."""
        return timestamp(self.flushed_at)


def timestamp(microseconds: int) -> datetime:
    """Return a time of the format as a datetime in UTC. Times after the year 9999 become its end."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """Return a time as microseconds since the epoch."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def check_zone(name: str, time: datetime) -> datetime:
    """Return the time of an argument with this name. Raises ValueError if it has no zone."""
    if time.tzinfo is None:
        raise ValueError(f"{name} must be a time with a time zone, such as datetime.now(UTC) - timedelta(...)")
    return time


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A commit, as the history of a repository lists it."""

    id: str
    parent_id: str | None
    written_at: datetime
    message: str
    metadata: dict[str, Any] = field(default_factory=dict)
    manifests: list[ManifestFileInfo] | None = None
    """None in version 2, whose history is read without the snapshots: `list_manifest_files` returns them."""


def snapshot_document(snapshot: Snapshot, parent_id: bytes | None) -> dict[str, Any]:
    """Return the contents of a snapshot as a JSON document."""
    return {
        "id": encode_id(snapshot.snapshot_id),
        **({} if parent_id is None else {"parent_id": encode_id(parent_id)}),
        "flushed_at": _rfc3339(snapshot.written_at),
        "commit_message": snapshot.message,
        "metadata": dict(snapshot.metadata),
        "manifests": [
            {"id": manifest.id, "size_bytes": manifest.size_bytes, "num_chunk_refs": manifest.num_chunk_refs}
            for manifest in snapshot.manifest_files.values()
        ],
        "nodes": [_node_document(node) for node in snapshot.nodes.values()],
    }


def _rfc3339(time: datetime) -> str:
    """Return a time with as many groups of three decimals as it needs, as icechunk prints it."""
    timespec = "microseconds" if time.microsecond % 1000 else "milliseconds" if time.microsecond else "seconds"
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def _node_document(node: Node) -> dict[str, Any]:
    document: dict[str, Any] = {"id": encode_id(node.node_id), "path": node.path, "node_type": "group"}
    if isinstance(node, ArrayNode):
        refs = [
            {"id": encode_id(ref.manifest_id), "extents": [list(extent) for extent in ref.extents]}
            for ref in node.manifests
        ]
        document |= {"node_type": "array", "manifest_refs": refs}
    return document


def initial_snapshot(flushed_at: int, spec_version: int = 1) -> Snapshot:
    """Return the snapshot that every repository begins with. `flushed_at`: microseconds since the epoch."""
    metadata = {"__root": True} if spec_version == 1 else {"__icechunk": {"is_root": True}}
    return Snapshot(INITIAL_SNAPSHOT, None, flushed_at, "Repository initialized", metadata, {}, {})


def parent_path(path: str) -> str:
    """Return the path of a node's parent group."""
    return path.rpartition("/")[0] or "/"
