"""Rebases the changes of a session onto the commits that came first, one commit at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.icechunk.ancestry import snapshots_between
from lake_core.icechunk.conflict_detector import RebaseStep
from lake_core.icechunk.diff import merged
from lake_core.icechunk.errors import NotInAncestry
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.snapshot import ArrayNode, Node, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.change_set import ChangeSet
    from lake_core.icechunk.conflict_solver import ConflictSolver


def rebase(
    assets: AssetManager, changes: ChangeSet, base_id: bytes, tip_id: bytes, solver: ConflictSolver
) -> Iterator[tuple[bytes, ChangeSet]]:
    """Yield the id of each commit, and the changes on top of it.

    Args:
        assets: The files of the repository.
        changes: Changes on top of the snapshot `base_id`.
        base_id: The snapshot that the changes are based on.
        tip_id: The last of the commits.
        solver: Resolves conflicts.

    Raises:
        NotInAncestry: The branch does not hold the base any longer.
        RebaseFailedError: The solver does not resolve a conflict. Changes that were yielded before are valid.
        MissingObject, DamagedObject: A snapshot or a transaction log cannot be read.
    """
    try:
        commits = snapshots_between(assets, base_id, tip_id)
    except NotInAncestry:
        raise NotInAncestry(
            f"the branch no longer holds the snapshot {encode_id(base_id)} of the session, because it was "
            "reset or amended, or its history has expired: write again in a new session"
        ) from None
    for snapshot_id, logs in commits.items():
        theirs = assets.snapshot(snapshot_id)
        log = merged(assets.transaction_log(log_id) for log_id in logs)
        step = RebaseStep(assets.snapshot(base_id), theirs, log, changes)
        base_id, changes = snapshot_id, _onto(theirs, solver.solve(step))
        yield base_id, changes


def _onto(snapshot: Snapshot, changes: ChangeSet) -> ChangeSet:
    """Return changes with the nodes of the snapshot that they are now based on."""
    # A node that both sides deleted stays in the list: a later commit may have created it again.
    deleted = [snapshot.nodes.get(node.path, node) for node in changes.deleted.values()]
    return replace(
        changes,
        nodes={path: _with_manifests(node, snapshot.nodes.get(path)) for path, node in changes.nodes.items()},
        deleted={node.node_id: node for node in deleted},
    )


def _with_manifests(node: Node, before: Node | None) -> Node:
    if isinstance(node, ArrayNode) and isinstance(before, ArrayNode) and node.node_id == before.node_id:
        return replace(node, manifests=before.manifests)
    return node
