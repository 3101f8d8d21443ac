"""Conflicts between the changes of a session and one earlier commit.

Both sides are compared as transaction logs, by the ids of nodes. Rules about paths follow: a rebase must never leave
two nodes at one path, or a node whose group is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lake_core.icechunk.commit import change_log
from lake_core.icechunk.conflict import Conflict, ConflictType
from lake_core.icechunk.errors import RebaseFailedError
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.manifest import is_in
from lake_core.icechunk.moves import moved_path, original_path
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, Node, Snapshot, parent_path
from lake_core.icechunk.transaction_log import TransactionLog

if TYPE_CHECKING:
    from lake_core.icechunk.change_set import ChangeSet

_Ids = Callable[[TransactionLog], frozenset[bytes]]


@dataclass(frozen=True, slots=True)
class RebaseStep:
    """The changes of a session, and the first commit after the snapshot that they are based on."""

    base: Snapshot
    theirs: Snapshot
    """The snapshot of the commit. Its parent is `base`."""
    log: TransactionLog
    """The transaction log of the commit."""
    changes: ChangeSet
    settled: frozenset[bytes] = frozenset()
    """Ids of arrays that a solver has rebased onto `theirs`, metadata and chunks.

    Their metadata no longer conflicts.
    """

    def failed(self, why: str = "") -> RebaseFailedError:
        """Return the error that names all conflicts of this step."""
        return RebaseFailedError(encode_id(self.theirs.snapshot_id), self.conflicts(), why)

    def conflicts(self) -> list[Conflict]:
        """Return all conflicts, sorted by type and path."""
        if self.log.moved_nodes:
            return [Conflict(ConflictType.MoveOperationCannotBeRebased, "")]
        if self.changes.moves:
            return sorted(dict.fromkeys(self._of_moves()), key=lambda conflict: conflict.path)
        ours = change_log(self.changes, self.base)
        conflicts = [*self._by_node(ours), *self._of_chunks(ours), *self._of_deletes(), *self._by_path()]
        return sorted(dict.fromkeys(conflicts), key=lambda conflict: (conflict.conflict_type.name, conflict.path))

    def _of_moves(self) -> Iterator[Conflict]:
        """Yield the moves of ours for whose nodes, or at whose new paths, theirs left no place."""
        moves = self.changes.moves
        for number, move in enumerate(moves):
            path = original_path(moves[:number], move.from_path)
            # Where theirs has created the node again, the new one is moved.
            if path is not None and path in self.base.nodes and path not in self.theirs.nodes:
                yield Conflict(_DELETED_NODES[type(self.base.nodes[path])], path)
        nodes: dict[str, Node] = {}
        for path, node in self.theirs.nodes.items():
            target = moved_path(moves, path)
            if target in nodes:
                yield Conflict(ConflictType.NewNodeConflictsWithExistingNode, target)
            nodes[target] = node
        for path in nodes:
            above = parent_path(path)
            if above != path and original_path(moves, path) != path and not isinstance(nodes.get(above), GroupNode):
                yield Conflict(ConflictType.NewNodeInInvalidGroup, above)

    def _by_node(self, ours: TransactionLog) -> Iterator[Conflict]:
        """Yield the conflicts of `_RULES`."""
        hits = [
            (kind, node_id)
            for kind, our_ids, their_ids in _RULES
            for node_id in our_ids(ours) & their_ids(self.log)
            if node_id not in self.settled
        ]
        paths = self._paths({node_id for _, node_id in hits})
        for kind, node_id in hits:
            yield Conflict(kind, paths[node_id])

    def _of_chunks(self, ours: TransactionLog) -> Iterator[Conflict]:
        """Yield the chunks that both sides wrote or erased, and chunks of theirs that ours cut off."""
        paths = self._paths(self.log.updated_chunks.keys() & (ours.updated_chunks.keys() | self.changes.bounds.keys()))
        for node_id, path in paths.items():
            theirs = self.log.updated_chunks[node_id]
            array = self.changes.nodes.get(path, self.base.nodes[path])
            if not len(theirs) or not isinstance(array, ArrayNode) or theirs.shape[1] != len(array.shape):
                continue
            both = np.zeros(len(theirs), bool)
            our_chunks = ours.updated_chunks.get(node_id)
            if our_chunks is not None and len(our_chunks):
                both = is_in(theirs.T, our_chunks.T)
            bounds = self.changes.bounds.get(node_id)
            if bounds is not None:  # where the array has grown again, these chunks of theirs would be lost
                both |= (theirs >= np.array(bounds, np.int64)).any(axis=1) & (
                    theirs < np.array(array.grid, np.int64)
                ).all(axis=1)
            if both.any():
                yield Conflict(ConflictType.ChunkDoubleUpdate, path, theirs[both])

    def _of_deletes(self) -> Iterator[Conflict]:
        """Yield the nodes that ours deleted and theirs changed or created again."""
        changed = self.log.updated_arrays | self.log.updated_groups | self.log.updated_chunks.keys()
        for node_id, deleted in self.changes.deleted.items():
            node = self.theirs.nodes.get(deleted.path)
            if node is not None and (node.node_id in changed or node.node_id != node_id):
                kind = (
                    ConflictType.DeleteOfUpdatedArray
                    if isinstance(node, ArrayNode)
                    else ConflictType.DeleteOfUpdatedGroup
                )
                yield Conflict(kind, deleted.path)

    def _by_path(self) -> Iterator[Conflict]:
        """Yield the conflicts that would leave two nodes at one path, or a node outside of a group."""
        created = [node for path, node in self.changes.nodes.items() if not _is_same(node, self.base.nodes.get(path))]
        for node in created:
            existing = self.theirs.nodes.get(node.path)
            if existing is not None and existing.node_id not in self.changes.deleted:
                yield Conflict(ConflictType.NewNodeConflictsWithExistingNode, node.path)
            yield from self._in_invalid_group(node, self.changes.nodes, self.theirs.nodes)
        new_ids = self.log.new_arrays | self.log.new_groups
        deletes_or_adds_arrays = self.changes.deleted or any(isinstance(node, ArrayNode) for node in created)
        if new_ids and deletes_or_adds_arrays:
            remaining = {
                path: node for path, node in self.base.nodes.items() if node.node_id not in self.changes.deleted
            }
            for path, node in self.theirs.nodes.items():
                if node.node_id in new_ids and path not in self.changes.nodes:
                    yield from self._in_invalid_group(node, self.theirs.nodes, {**remaining, **self.changes.nodes})

    def _in_invalid_group(
        self, node: Node, nodes: Mapping[str, Node], others: Mapping[str, Node]
    ) -> Iterator[Conflict]:
        """Yield a conflict for each group around a new node that the other side has deleted or replaced by an array."""
        path = node.path
        while path != "/":
            path = parent_path(path)
            other = others.get(path)
            deleted = (
                other is None
                and path in self.base.nodes
                and not (path in nodes and not _is_same(nodes[path], self.base.nodes[path]))
            )
            if deleted or isinstance(other, ArrayNode):
                yield Conflict(ConflictType.NewNodeInInvalidGroup, path)

    def _paths(self, node_ids: set[bytes]) -> dict[bytes, str]:
        """Return the paths of nodes of the base, by id."""
        if not node_ids:
            return {}
        return {node.node_id: path for path, node in self.base.nodes.items() if node.node_id in node_ids}


_DELETED_NODES: dict[type[Node], ConflictType] = {
    ArrayNode: ConflictType.ZarrMetadataUpdateOfDeletedArray,
    GroupNode: ConflictType.ZarrMetadataUpdateOfDeletedGroup,
}
_RULES: tuple[tuple[ConflictType, _Ids, _Ids], ...] = (
    (ConflictType.ZarrMetadataDoubleUpdate, lambda ours: ours.updated_arrays, lambda theirs: theirs.updated_arrays),
    (ConflictType.ZarrMetadataDoubleUpdate, lambda ours: ours.updated_groups, lambda theirs: theirs.updated_groups),
    (
        ConflictType.ZarrMetadataUpdateOfDeletedArray,
        lambda ours: ours.updated_arrays,
        lambda theirs: theirs.deleted_arrays,
    ),
    (
        ConflictType.ZarrMetadataUpdateOfDeletedGroup,
        lambda ours: ours.updated_groups,
        lambda theirs: theirs.deleted_groups,
    ),
    (
        ConflictType.ChunksUpdatedInDeletedArray,
        lambda ours: frozenset(ours.updated_chunks),
        lambda theirs: theirs.deleted_arrays,
    ),
    (
        ConflictType.ChunksUpdatedInUpdatedArray,
        lambda ours: frozenset(ours.updated_chunks),
        lambda theirs: theirs.updated_arrays,
    ),
)
"""A conflict, and the ids of nodes that ours and theirs must share for it."""


class ConflictDetector:
    """A solver that resolves nothing: any conflict fails the rebase."""

    def solve(self, step: RebaseStep) -> ChangeSet:
        """Return the changes as they are. Raises RebaseFailedError where anything conflicts."""
        if step.conflicts():
            raise step.failed()
        return step.changes


def _is_same(node: Node, other: Node | None) -> bool:
    return other is not None and node.node_id == other.node_id
