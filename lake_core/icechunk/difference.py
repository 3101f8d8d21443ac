"""Differences between two snapshots of one repository by their contents: neither needs to be the other's ancestor."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.change_set import ChangeSet
from lake_core.icechunk.manifest import ChunkReferences, ReferenceKind
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, ManifestRef, Node, Snapshot
from lake_core.icechunk.transaction_log import MovedNode, TransactionLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.icechunk.asset_manager import AssetManager


@dataclass(frozen=True, slots=True)
class ChunkDifference:
    """The chunks of one array that differ."""

    written: ChunkReferences
    """References to the chunks of the later snapshot that the earlier one lacks, or stores elsewhere."""
    erased: npt.NDArray[np.uint32]
    """Shape (chunks, dimensions): those that only the earlier snapshot has."""

    def coordinates(self) -> npt.NDArray[np.uint32]:
        """Return the coordinates of all these chunks, sorted: shape (chunks, dimensions)."""
        both = np.concatenate([self.written.index.T, self.erased])
        return both[np.lexsort(both.T[::-1])] if both.shape[1] else both[:1]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two snapshots. Nodes with the same id are the same node."""

    before: Snapshot
    after: Snapshot
    created: Mapping[str, Node]
    """By path, as the later snapshot has them."""
    updated: Mapping[str, Node]
    """Nodes with another `zarr.json`, by path, as the later snapshot has them."""
    deleted: Mapping[bytes, Node]
    """By id, as the earlier snapshot has them."""
    chunks: Mapping[bytes, ChunkDifference]
    """By the id of their array."""
    moved: Mapping[bytes, MovedNode] = field(default_factory=dict)
    """By id, the nodes that are among the created and the deleted ones because only their path differs."""
    moved_chunks: Mapping[bytes, ChunkDifference] = field(default_factory=dict)
    """By id, the chunks of moved arrays that differ."""

    def is_empty(self) -> bool:
        """Return whether nothing differs."""
        return not (self.created or self.updated or self.deleted or self.chunks)

    def log(self) -> TransactionLog:
        """Return the difference as the transaction log of a commit."""
        deleted = {node.path: node for node_id, node in self.deleted.items() if node_id not in self.moved}
        created = {path: node for path, node in self.created.items() if node.node_id not in self.moved}
        updated = dict(self.updated)
        for node_id, move in self.moved.items():
            node = self.after.nodes[move.to_path]
            if node.user_data != self.deleted[node_id].user_data:
                updated[move.to_path] = node
        chunks = {node_id: chunks for node_id, chunks in self.chunks.items() if node_id not in self.moved}
        return TransactionLog(
            new_groups=_ids(created, GroupNode),
            new_arrays=_ids(created, ArrayNode),
            deleted_groups=_ids(deleted, GroupNode),
            deleted_arrays=_ids(deleted, ArrayNode),
            updated_groups=_ids(updated, GroupNode),
            updated_arrays=_ids(updated, ArrayNode),
            updated_chunks={node_id: each.coordinates() for node_id, each in {**chunks, **self.moved_chunks}.items()},
            moved_nodes=tuple(self.moved.values()),
        )

    def change_set(self) -> ChangeSet:
        """Return the difference as changes on top of the earlier snapshot.

        Chunks of created arrays stay in their manifests.
        """
        changes = ChangeSet(nodes={**self.created, **self.updated}, deleted=dict(self.deleted), touched=True)
        created = {node.node_id for node in self.created.values()}
        for node_id, chunks in self.chunks.items():
            if node_id not in created:
                written = chunks.written
                references = {tuple(index): written[number] for number, index in enumerate(written.index.T.tolist())}
                changes.chunks[node_id] = references | dict.fromkeys(map(tuple, chunks.erased.tolist()))
        for path, node in self.updated.items():
            before = self.before.nodes[path]
            if isinstance(node, ArrayNode) and isinstance(before, ArrayNode) and len(node.shape) == len(before.shape):
                bounds = tuple(min(pair) for pair in zip(before.grid, node.grid, strict=True))
                if bounds != before.grid:
                    changes.bounds[node.node_id] = bounds
        return changes


def difference(assets: AssetManager, before: Snapshot, after: Snapshot) -> Difference:
    """Return the difference between two snapshots. Manifests that both have are not read.

    Raises MissingObject and DamagedObject where a manifest cannot be read.
    """
    old = {node.node_id: node for node in before.nodes.values()}
    new = {node.node_id: node for node in after.nodes.values()}
    # A node at another path is another node here. Version 2 records it as moved, version 1 as deleted and created.
    same = {node_id for node_id, node in new.items() if node_id in old and _is_same(old[node_id], node)}
    moved = dict(_moves(old, new)) if assets.layout.spec_version > 1 else {}
    arrays = [(old[node_id], new[node_id]) for node_id, move in moved.items() if move.is_array]
    moved_chunks = {
        node.node_id: chunk_difference(assets, earlier, node)
        for earlier, node in arrays
        if isinstance(earlier, ArrayNode) and isinstance(node, ArrayNode)
    }
    return Difference(
        before,
        after,
        moved=moved,
        moved_chunks={
            node_id: chunks for node_id, chunks in moved_chunks.items() if len(chunks.written) or len(chunks.erased)
        },
        created={node.path: node for node_id, node in new.items() if node_id not in same},
        updated={
            new[node_id].path: new[node_id] for node_id in same if new[node_id].user_data != old[node_id].user_data
        },
        deleted={node_id: node for node_id, node in old.items() if node_id not in same},
        chunks=_chunk_differences(assets, {node_id: old[node_id] for node_id in same}, new),
    )


def _moves(old: Mapping[bytes, Node], new: Mapping[bytes, Node]) -> Iterator[tuple[bytes, MovedNode]]:
    """Yield the nodes whose path alone, or whose path and contents differ, by id."""
    for node_id, node in new.items():
        before = old.get(node_id)
        if before is None or before.path == node.path or not _is_same(replace(before, path=node.path), node):
            continue
        yield node_id, MovedNode(before.path, node.path, node_id, isinstance(node, ArrayNode))


def _chunk_differences(
    assets: AssetManager, same: Mapping[bytes, Node], new: Mapping[bytes, Node]
) -> dict[bytes, ChunkDifference]:
    """Return the chunks that differ, by the id of their array.

    Args:
        assets: The files of the repository.
        same: The earlier nodes that still exist, by id.
        new: The later nodes, by id.
    """
    differences = {}
    for node_id, node in new.items():
        if isinstance(node, ArrayNode):
            earlier = same.get(node_id)
            chunks = chunk_difference(assets, earlier if isinstance(earlier, ArrayNode) else None, node)
            if len(chunks.written) or len(chunks.erased):
                differences[node_id] = chunks
    return differences


def _is_same(before: Node, after: Node) -> bool:
    if isinstance(before, ArrayNode) and isinstance(after, ArrayNode):
        return before.path == after.path and len(before.shape) == len(after.shape)
    return before.path == after.path and type(before) is type(after)


def chunk_difference(assets: AssetManager, before: ArrayNode | None, after: ArrayNode) -> ChunkDifference:
    """Return the chunks that differ between two states of an array; all of the later one if there is no earlier."""
    dimensions = len(after.shape)
    shared = _shared(before, after)
    new = assets.references(after, without=shared)
    if before is None:
        return ChunkDifference(new, np.empty((0, dimensions), np.uint32))
    old = assets.references(before, without=shared)
    old_numbers, new_numbers = _chunk_numbers(old, new)
    old_both, new_both = _common(old_numbers, new_numbers)
    changed = np.ones(len(new), bool)
    changed[new_both] = ~_equal(old, old_both, new, new_both)
    gone = np.ones(len(old), bool)
    gone[old_both] = False
    return ChunkDifference(new.take(changed), old.index.T[gone])


def _shared(before: ArrayNode | None, after: ArrayNode) -> frozenset[ManifestRef]:
    """Return the manifests whose references the array has both before and after."""
    if before is None:
        return frozenset()
    grid = tuple(min(pair) for pair in zip(before.grid, after.grid, strict=True))
    both = set(before.manifests) & set(after.manifests)
    return frozenset(
        ref for ref in both if all(end <= count for (_, end), count in zip(ref.extents, grid, strict=False))
    )


def _chunk_numbers(old: ChunkReferences, new: ChunkReferences) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return numbers for the chunks of both, equal ones for equal coordinates."""
    if not old.dimensions:
        return np.zeros(len(old), np.int64), np.zeros(len(new), np.int64)
    _, numbers = np.unique(np.concatenate([old.index.T, new.index.T]), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    return numbers[: len(old)], numbers[len(old) :]


def _common(
    old: npt.NDArray[np.int64], new: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    _, in_old, in_new = np.intersect1d(old, new, assume_unique=True, return_indices=True)
    return in_old, in_new


def _equal(
    old: ChunkReferences, in_old: npt.NDArray[np.intp], new: ChunkReferences, in_new: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Return which pairs of references are to the same bytes."""
    equal = np.ones(len(in_old), bool)
    for name in ("kind", "offset", "length", "data_length", "etag_length", "last_modified"):
        equal &= getattr(old, name)[in_old] == getattr(new, name)[in_new]
    equal &= (old.chunk_id[in_old] == new.chunk_id[in_new]).all(axis=1)
    for index in np.flatnonzero(equal & (old.kind[in_old] != ReferenceKind.NATIVE)).tolist():
        equal[index] = old[in_old[index]] == new[in_new[index]]
    return equal


def _ids(nodes: Mapping[str, Node], kind: type[Node]) -> frozenset[bytes]:
    return frozenset(node.node_id for node in nodes.values() if isinstance(node, kind))
