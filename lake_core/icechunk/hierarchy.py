"""The rules of a hierarchy: names of nodes, one node at a path, and a group above each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.icechunk.errors import InvalidHierarchy, InvalidMove, InvalidStoreKey
from lake_core.icechunk.moves import Move
from lake_core.icechunk.snapshot import ArrayNode, GroupNode, Node, Snapshot, parent_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.icechunk.change_set import ChangeSet


def check_path(path: str) -> None:
    """Raise InvalidStoreKey for a path that a new node cannot have, because Zarr or icechunk takes it for another."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidStoreKey(f"the path {path[:200]!r} holds half of a surrogate pair, which is no text") from None
    if path != "/" and not {"", ".", ".."}.isdisjoint(path[1:].split("/")):
        raise InvalidStoreKey(f"the path {path[:200]!r} has a part that is empty, '.' or '..': choose another name")


def check_hierarchy(changes: ChangeSet, parent: Snapshot) -> None:
    """Raise InvalidHierarchy unless the nodes of a snapshot still form a hierarchy after the changes.

    Nodes that `parent` has already are not checked: icechunk stores nodes without the groups above them. No listing of
    icechunk or Zarr shows such a node, so new ones are refused. Only the root may be missing, as Zarr opens an array at
    a path without it.
    """
    nodes = parent.nodes
    for path, node in changes.nodes.items():
        before = nodes.get(path)
        if before is not None and before.node_id != node.node_id and before.node_id not in changes.deleted:
            raise InvalidHierarchy(
                f"{path} would have two nodes, because another commit has created it too: "
                "write to a new session of the branch instead"
            )
        _check_parent(path, changes, parent)
    deleted = (node.path for node in changes.deleted.values() if isinstance(node, GroupNode))
    gone = {path for path in deleted if not isinstance(changes.nodes.get(path), GroupNode)}
    if gone:
        for path in nodes:
            if parent_path(path) in gone and _node(path, changes, parent) is not None:
                _check_parent(path, changes, parent)


def _check_parent(path: str, changes: ChangeSet, parent: Snapshot) -> None:
    above = parent_path(path)
    if path == "/":
        return
    node = _node(above, changes, parent)
    if isinstance(node, ArrayNode):
        raise InvalidHierarchy(f"{path} would lie inside the array {above}: delete one of them, or choose another path")
    if node is None and above != "/":
        raise InvalidHierarchy(
            f"{path} would have no parent, because there is no group {above}: "
            f"create that group first, or delete {path} too"
        )


def _node(path: str, changes: ChangeSet, parent: Snapshot) -> Node | None:
    node = changes.nodes.get(path) or parent.nodes.get(path)
    return None if node is None or node.node_id in changes.deleted else node


def checked_move(from_path: str, to_path: str, node_at: Callable[[str], Node | None]) -> Move:
    """Return a move. `node_at`: returns the node at a path now.

    Raises InvalidMove, and InvalidStoreKey for a path that no node can have.
    """
    check_path(to_path)
    if node_at(from_path) is None:
        raise InvalidMove(f"there is no array or group {from_path} that could be moved")
    if from_path == "/":
        raise InvalidMove("the root group cannot be moved: move the nodes in it")
    if to_path == from_path or to_path.startswith(from_path + "/"):
        raise InvalidMove(f"{from_path} cannot be moved into itself, to {to_path}: choose a path outside of it")
    if node_at(to_path) is not None:
        raise InvalidMove(f"{from_path} cannot be moved to {to_path}, as a node is there: move or delete that one")
    above = parent_path(to_path)
    if not isinstance(node_at(above), GroupNode):
        kind = "an array" if node_at(above) is not None else "missing"
        raise InvalidMove(
            f"{from_path} cannot be moved to {to_path}, as its parent {above} is {kind}: "
            "create that group first, in a writable session"
        )
    return Move(from_path, to_path)
