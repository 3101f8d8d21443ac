"""The changes between two snapshots, from the transaction logs between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.ancestry import snapshots_between
from lake_core.icechunk.transaction_log import MovedNode, TransactionLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.snapshot import Node


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes by path."""

    new_groups: set[str] = field(default_factory=set)
    new_arrays: set[str] = field(default_factory=set)
    deleted_groups: set[str] = field(default_factory=set)
    deleted_arrays: set[str] = field(default_factory=set)
    updated_groups: set[str] = field(default_factory=set)
    updated_arrays: set[str] = field(default_factory=set)
    updated_chunks: dict[str, list[list[int]]] = field(default_factory=dict)
    """The coordinates of the chunks that were written or erased, by the path of their array."""
    moved_nodes: list[tuple[str, str]] = field(default_factory=list)
    """The old and the new path of each node that was moved, those below a moved group too.

    Between more than two snapshots, they are the moves of each commit, those of the newest one first.
    """

    def is_empty(self) -> bool:
        """Return whether nothing changed."""
        return not any(
            (
                *(self.new_groups, self.new_arrays, self.deleted_groups, self.deleted_arrays),
                *(self.updated_groups, self.updated_arrays, self.updated_chunks, self.moved_nodes),
            )
        )


def diff(assets: AssetManager, from_id: bytes, to_id: bytes) -> Diff:
    """Return what changed from one snapshot to a later one.

    Raises:
        NotInAncestry: The earlier snapshot is not in the history of the later one.
        MissingObject, DamagedObject: A snapshot or a transaction log cannot be read.
    """
    between = snapshots_between(assets, from_id, to_id)
    logs = [assets.transaction_log(log_id) for log_ids in between.values() for log_id in log_ids]
    moved = [(move.from_path, move.to_path) for log in reversed(logs) for move in log.moved_nodes]
    changes = describe(merged(logs), assets.snapshot(from_id).nodes, assets.snapshot(to_id).nodes)
    return replace(changes, moved_nodes=moved)


def merged(logs: Iterable[TransactionLog]) -> TransactionLog:
    """Return several logs, oldest first, merged into one."""
    several = list(logs)
    if len(several) == 1:
        return several[0]
    chunks: dict[bytes, list[npt.NDArray[np.uint32]]] = {}
    for log in several:
        for node_id, coordinates in log.updated_chunks.items():
            chunks.setdefault(node_id, []).append(coordinates)
    return TransactionLog(
        new_groups=frozenset().union(*(log.new_groups for log in several)),
        new_arrays=frozenset().union(*(log.new_arrays for log in several)),
        deleted_groups=frozenset().union(*(log.deleted_groups for log in several)),
        deleted_arrays=frozenset().union(*(log.deleted_arrays for log in several)),
        updated_groups=frozenset().union(*(log.updated_groups for log in several)),
        updated_arrays=frozenset().union(*(log.updated_arrays for log in several)),
        updated_chunks={node_id: _union(parts) for node_id, parts in chunks.items()},
        moved_nodes=_composed(several),
    )


def _composed(logs: Sequence[TransactionLog]) -> tuple[MovedNode, ...]:
    """Return the moves of several logs as one for each node, without those that led back."""
    moves: dict[bytes, MovedNode] = {}
    for log in logs:
        for move in log.moved_nodes:
            first = moves.get(move.node_id, move)
            moves[move.node_id] = replace(move, from_path=first.from_path)
    return tuple(move for move in moves.values() if move.from_path != move.to_path)


def _union(parts: list[npt.NDArray[np.uint32]]) -> npt.NDArray[np.uint32]:
    filled = [part for part in parts if len(part)]
    if (
        len({part.shape[1] for part in filled}) > 1
    ):  # the array was created again with other dimensions under the same id
        filled = filled[-1:]
    return np.unique(np.concatenate(filled), axis=0) if filled else parts[0]


def describe(log: TransactionLog, before: Mapping[str, Node], after: Mapping[str, Node]) -> Diff:
    """Return the changes of a log by paths. Nodes that exist neither before nor after are left out."""
    paths_before = {node.node_id: path for path, node in before.items()}
    paths_after = {node.node_id: path for path, node in after.items()}
    # The chunks of a node that was deleted are none of the one that was created at its path.
    paths = {node_id: path for node_id, path in paths_before.items() if path not in after} | paths_after

    def named(ids: Iterable[bytes], paths: Mapping[bytes, str]) -> set[str]:
        return {paths[node_id] for node_id in ids if node_id in paths}

    return Diff(
        new_groups=named(log.new_groups, paths_after),
        new_arrays=named(log.new_arrays, paths_after),
        deleted_groups=named(log.deleted_groups, paths_before),
        deleted_arrays=named(log.deleted_arrays, paths_before),
        updated_groups=named(log.updated_groups, paths),
        updated_arrays=named(log.updated_arrays, paths),
        updated_chunks={
            paths[node_id]: chunks.tolist() for node_id, chunks in log.updated_chunks.items() if node_id in paths
        },
        moved_nodes=[(move.from_path, move.to_path) for move in log.moved_nodes],
    )
