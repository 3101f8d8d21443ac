"""Moves of nodes: other paths for a node and all nodes below it, which keep their ids, metadata and manifests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.icechunk.errors import InvalidHierarchy
from lake_core.icechunk.snapshot import ArrayNode, Node, sort_key
from lake_core.icechunk.transaction_log import MovedNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Move:
    """A move of one node, with those below it."""

    from_path: str
    to_path: str

    def apply(self, path: str) -> str:
        """Return the path of a node after the move."""
        return _replaced(path, self.from_path, self.to_path)

    def undo(self, path: str) -> str:
        """Return the path that a node had before the move."""
        return _replaced(path, self.to_path, self.from_path)


def _replaced(path: str, before: str, after: str) -> str:
    if path == before or path.startswith(before + "/"):
        return after + path[len(before) :]
    return path


def moved_path(moves: Sequence[Move], path: str) -> str:
    """Return the path of a node after several moves."""
    for move in moves:
        path = move.apply(path)
    return path


def original_path(moves: Sequence[Move], path: str) -> str | None:
    """Return the path before several moves of the node that is at a path after them, or None if there can be none."""
    original = path
    for move in reversed(moves):
        original = move.undo(original)
    return original if moved_path(moves, original) == path else None


def moved_node(moves: Sequence[Move], nodes: Mapping[str, Node], path: str) -> Node | None:
    """Return the node that is at a path after several moves. `nodes`: those before the moves."""
    original = original_path(moves, path)
    node = None if original is None else nodes.get(original)
    return None if node is None else replace(node, path=path)


def moved_nodes(moves: Sequence[Move], nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return all nodes after several moves, sorted. Raises InvalidHierarchy if two would have one path."""
    moved: dict[str, Node] = {}
    for path, node in nodes.items():
        target = moved_path(moves, path)
        if target in moved:
            raise InvalidHierarchy(f"{target} would have two nodes: move one of them to another path")
        moved[target] = node if target == path else replace(node, path=target)
    return {path: moved[path] for path in sorted(moved, key=sort_key)}


def logged_moves(moves: Sequence[Move], nodes: Mapping[str, Node]) -> Iterator[MovedNode]:
    """Yield each node that has another path after several moves, as a transaction log lists it."""
    for path, node in nodes.items() if moves else ():
        target = moved_path(moves, path)
        if target != path:
            yield MovedNode(path, target, node.node_id, isinstance(node, ArrayNode))
