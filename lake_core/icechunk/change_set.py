"""What a session has changed and not yet committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lake_core.icechunk.errors import UnmergeableFork
from lake_core.icechunk.manifest import ChunkIndex, ChunkReference
from lake_core.icechunk.snapshot import ArrayNode, Node


@dataclass(slots=True)
class ChangeSet:
    """Changes on top of a snapshot."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """New nodes, and nodes of the snapshot with other metadata, by path."""
    deleted: dict[bytes, Node] = field(default_factory=dict)
    """Nodes of the snapshot that are gone, by id."""
    chunks: dict[bytes, dict[ChunkIndex, ChunkReference | None]] = field(default_factory=dict)
    """Chunks that were written, and None for those that were erased, by the id of their array."""
    bounds: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """By the id of an array that was made smaller: the smallest grid of chunks that it had meanwhile. What lay outside is gone."""
    touched: bool = False
    """Whether anything was done, even if it was undone again."""

    def set_node(self, node: Node, before: Node | None) -> None:
        """Put a node in the place of the one before it, which has the same id if it is the same node."""
        self.touched = True
        self.nodes[node.path] = node
        if isinstance(node, ArrayNode) and isinstance(before, ArrayNode) and node.node_id == before.node_id:
            self._shrink(before, node)

    def _shrink(self, before: ArrayNode, after: ArrayNode) -> None:
        if len(before.shape) == len(after.shape) and any(new < old for new, old in zip(after.grid, before.grid, strict=True)):
            bounds = tuple(min(pair) for pair in zip(self.bounds.get(after.node_id, before.grid), after.grid, strict=True))
            self.bounds[after.node_id] = bounds
            chunks = self.chunks.get(after.node_id)
            if chunks is not None:
                self.chunks[after.node_id] = {index: chunk for index, chunk in chunks.items() if is_inside(index, bounds)}

    def delete_node(self, node: Node, in_snapshot: Node | None) -> None:
        """Delete a node. `in_snapshot`: what the snapshot has at its path."""
        self.touched = True
        self.nodes.pop(node.path, None)
        self.chunks.pop(node.node_id, None)
        self.bounds.pop(node.node_id, None)
        if in_snapshot is not None and in_snapshot.node_id == node.node_id:
            self.deleted[node.node_id] = in_snapshot

    def set_chunk(self, node_id: bytes, index: ChunkIndex, chunk: ChunkReference | None) -> None:
        """Write a chunk, or erase it with None."""
        self.touched = True
        self.chunks.setdefault(node_id, {})[index] = chunk

    def is_gone(self, node_id: bytes, index: ChunkIndex) -> bool:
        """Return whether the snapshot's chunk was cut off when its array was made smaller."""
        bounds = self.bounds.get(node_id)
        return bounds is not None and not is_inside(index, bounds)

    def references(self) -> Iterator[tuple[bytes, Mapping[ChunkIndex, ChunkReference | None]]]:
        """Yield the chunks of each array that were written or erased."""
        yield from self.chunks.items()

    def merge(self, other: ChangeSet) -> None:
        """Take over the changes of another fork of the same session.

        Raises:
            UnmergeableFork: Both changed the same node or chunk otherwise. Nothing was taken over then.
        """
        self._check_nodes(other)
        self._check_chunks(other)
        self.nodes.update(other.nodes)
        self.deleted.update(other.deleted)
        for node_id, chunks in other.chunks.items():
            self.chunks.setdefault(node_id, {}).update(chunks)
        for node_id, bounds in other.bounds.items():
            mine = self.bounds.get(node_id, bounds)
            self.bounds[node_id] = tuple(min(pair) for pair in zip(mine, bounds, strict=True))
        self.touched |= other.touched

    def _check_nodes(self, other: ChangeSet) -> None:
        for path, node in other.nodes.items():
            if path in self.nodes and self.nodes[path] != node:
                raise UnmergeableFork(
                    f"two forks changed the metadata of {path}: let one of them do so, or the session before it is forked"
                )
        for one, two in ((self, other), (other, self)):
            changed = {node.node_id for node in two.nodes.values()} | two.chunks.keys()
            for node_id, node in one.deleted.items():
                if node_id in changed:
                    raise UnmergeableFork(f"one fork deleted {node.path}, and another changed it")
            for path, node in one.nodes.items():
                if node.node_id in two.chunks and (node.node_id in one.bounds):
                    raise UnmergeableFork(f"one fork made {path} smaller, and another wrote chunks of it")

    def _check_chunks(self, other: ChangeSet) -> None:
        for node_id, chunks in other.chunks.items():
            mine = self.chunks.get(node_id, {})
            for index in mine.keys() & chunks.keys():
                if mine[index] != chunks[index]:
                    raise UnmergeableFork(f"two forks wrote the chunk {index} of one array: give each chunk to one fork")


def is_inside(index: ChunkIndex, grid: tuple[int, ...]) -> bool:
    """Return whether a chunk lies within a grid of chunks."""
    return len(index) == len(grid) and all(coordinate < count for coordinate, count in zip(index, grid, strict=True))
