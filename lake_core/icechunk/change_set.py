"""The uncommitted changes of a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.errors import UnmergeableFork
from lake_core.icechunk.manifest import (
    ChunkIndex,
    ChunkReference,
    ChunkReferences,
    concatenated,
    is_in,
    references_from,
)
from lake_core.icechunk.snapshot import ArrayNode, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.icechunk.moves import Move


@dataclass(slots=True)
class ChangeSet:
    """Changes on top of a snapshot."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """New nodes, and nodes of the snapshot with other metadata, by path."""
    deleted: dict[bytes, Node] = field(default_factory=dict)
    """Deleted nodes of the snapshot, by id."""
    chunks: dict[bytes, dict[ChunkIndex, ChunkReference | None]] = field(default_factory=dict)
    """Chunks that were written one by one, and None for those that were erased, by the id of their array."""
    columns: dict[bytes, list[ChunkReferences]] = field(default_factory=dict)
    """Chunks that were written in bulk, by the id of their array.

    Later ones take precedence, and those in `chunks` over all of them.
    """
    bounds: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    """By the id of an array that was shrunk: the smallest grid of chunks that it had in the meantime.

    Chunks outside of it are gone.
    """
    touched: bool = False
    """Whether there was any change, even if it was undone again."""
    moves: list[Move] = field(default_factory=list)
    """Moves of nodes, in their order. A session has either these or other changes."""

    def copy(self) -> ChangeSet:
        """Return a copy, which later changes of this one leave as it is."""
        return ChangeSet(
            dict(self.nodes),
            dict(self.deleted),
            {node_id: dict(chunks) for node_id, chunks in self.chunks.items()},
            {node_id: list(parts) for node_id, parts in self.columns.items()},
            dict(self.bounds),
            self.touched,
            list(self.moves),
        )

    def move(self, move: Move) -> None:
        """Move a node, and those below it."""
        self.touched = True
        self.moves.append(move)

    def set_node(self, node: Node, before: Node | None) -> None:
        """Replace the node at a path. The new node has the same id if it is the same node."""
        self.touched = True
        self.nodes[node.path] = node
        if isinstance(node, ArrayNode) and isinstance(before, ArrayNode) and node.node_id == before.node_id:
            self._shrink(before, node)

    def _shrink(self, before: ArrayNode, after: ArrayNode) -> None:
        if len(before.shape) != len(after.shape):
            # The bounds were those of other dimensions, and the array has no chunks.
            self.bounds.pop(after.node_id, None)
        elif any(new < old for new, old in zip(after.grid, before.grid, strict=True)):
            grid = after.grid
            self.bounds[after.node_id] = tuple(
                min(pair) for pair in zip(self.bounds.get(after.node_id, before.grid), grid, strict=True)
            )
            # Chunks that were written after an earlier cut may be outside of it, and stay.
            chunks = self.chunks.get(after.node_id)
            if chunks is not None:
                self.chunks[after.node_id] = {index: chunk for index, chunk in chunks.items() if is_inside(index, grid)}
            if after.node_id in self.columns:
                box = [(0, end) for end in grid]
                self.columns[after.node_id] = [part.take(part.inside(box)) for part in self.columns[after.node_id]]

    def delete_node(self, node: Node, in_snapshot: Node | None) -> None:
        """Delete a node. `in_snapshot`: the node of the snapshot at its path."""
        self.touched = True
        self.nodes.pop(node.path, None)
        self.chunks.pop(node.node_id, None)
        self.columns.pop(node.node_id, None)
        self.bounds.pop(node.node_id, None)
        if in_snapshot is not None and in_snapshot.node_id == node.node_id:
            self.deleted[node.node_id] = in_snapshot

    def set_chunk(self, node_id: bytes, index: ChunkIndex, chunk: ChunkReference | None) -> None:
        """Write a chunk, or erase it with None."""
        self.touched = True
        self.chunks.setdefault(node_id, {})[index] = chunk

    def is_gone(self, node_id: bytes, index: ChunkIndex) -> bool:
        """Return whether the snapshot's chunk was cut off when its array was shrunk."""
        bounds = self.bounds.get(node_id)
        return bounds is not None and not is_inside(index, bounds)

    def set_chunks(self, node_id: bytes, references: ChunkReferences) -> None:
        """Write many chunks of an array."""
        self.touched = True
        single = self.chunks.get(node_id)
        if single:
            self.chunks[node_id] = {index: chunk for index, chunk in single.items() if references.find(index) is None}
        self.columns.setdefault(node_id, []).append(references)

    def changed_arrays(self) -> set[bytes]:
        """Return the ids of the arrays of which chunks were written or erased."""
        return {*self.chunks, *self.columns}

    def changes_chunk(self, node_id: bytes, index: ChunkIndex) -> bool:
        """Return whether a chunk was written or erased."""
        return index in self.chunks.get(node_id, {}) or any(
            part.find(index) is not None for part in self.columns.get(node_id, ())
        )

    def chunk(self, node_id: bytes, index: ChunkIndex) -> ChunkReference | None:
        """Return a chunk as it was written last, or None if it was erased or not changed."""
        single = self.chunks.get(node_id, {})
        if index in single:
            return single[index]
        parts = reversed(self.columns.get(node_id, ()))
        return next((reference for part in parts if (reference := part.find(index)) is not None), None)

    def written(self, node_id: bytes, grid: tuple[int, ...]) -> ChunkReferences:
        """Return the chunks of an array that were written and not erased, within a grid of chunks."""
        single = self.chunks.get(node_id, {})
        present = {index: chunk for index, chunk in single.items() if chunk is not None and is_inside(index, grid)}
        parts = self.columns.get(node_id)
        if not parts:
            return references_from(len(grid), present)
        box = [(0, end) for end in grid]
        several = concatenated([*parts, references_from(len(grid), present)] if present else parts)
        return several.take(several.inside(box) & ~is_in(several.index, self.erased(node_id, len(grid))))

    def erased(self, node_id: bytes, dimensions: int) -> npt.NDArray[np.uint32]:
        """Return the indexes of the chunks of an array that were erased: shape (dimensions, chunks)."""
        indexes = [index for index, chunk in self.chunks.get(node_id, {}).items() if chunk is None]
        return np.array(indexes, np.uint32).reshape(len(indexes), dimensions).T

    def changed_chunks(self, node_id: bytes, grid: tuple[int, ...]) -> npt.NDArray[np.uint32]:
        """Return the sorted indexes of an array's written or erased chunks in a grid: shape (chunks, dimensions)."""
        chunks = self.chunks.get(node_id, {})
        single = np.array(list(chunks), np.uint32).reshape(len(chunks), len(grid))
        single = single[(single < np.array(grid, np.int64)).all(axis=1)]
        if grid:
            # lexsort sorts by its last key first.
            single = single[np.lexsort(single.T[::-1])]
        parts = self.columns.get(node_id)
        if not parts:
            return single
        several = concatenated(parts)
        several = several.take(several.inside([(0, end) for end in grid]))
        return several.index.T if not len(single) else np.unique(np.concatenate([single, several.index.T]), axis=0)

    def merge(self, other: ChangeSet) -> None:
        """Merge the changes of another fork of the same session.

        Raises:
            UnmergeableFork: Both changed the same node or chunk in different ways. Nothing was merged.
        """
        self._check_nodes(other)
        self._check_chunks(other)
        self.nodes.update(other.nodes)
        self.deleted.update(other.deleted)
        for node_id, chunks in other.chunks.items():
            self.chunks.setdefault(node_id, {}).update(chunks)
        for node_id, parts in other.columns.items():
            self.columns.setdefault(node_id, []).extend(parts)
        for node_id, bounds in other.bounds.items():
            previous = self.bounds.get(node_id, bounds)
            self.bounds[node_id] = tuple(min(pair) for pair in zip(previous, bounds, strict=True))
        self.touched |= other.touched

    def _check_nodes(self, other: ChangeSet) -> None:
        for path, node in other.nodes.items():
            if path in self.nodes and self.nodes[path] != node:
                raise UnmergeableFork(
                    f"two forks changed the metadata of {path}: "
                    "let one of them do so, or the session before it is forked"
                )
        for fork, counterpart in ((self, other), (other, self)):
            changed = {node.node_id for node in counterpart.nodes.values()} | counterpart.changed_arrays()
            for node_id, node in fork.deleted.items():
                if node_id in changed:
                    raise UnmergeableFork(f"one fork deleted {node.path}, and another fork changed it")
            for path, node in fork.nodes.items():
                if node.node_id in counterpart.changed_arrays() and node.node_id in fork.bounds:
                    raise UnmergeableFork(f"one fork made {path} smaller, and another fork wrote chunks of it")

    def _check_chunks(self, other: ChangeSet) -> None:
        for node_id in self.changed_arrays() & other.changed_arrays():
            for index in self._common_chunks(other, node_id):
                if self.chunk(node_id, index) != other.chunk(node_id, index):
                    raise UnmergeableFork(
                        f"two forks wrote the chunk {index} of one array: give each chunk to one fork"
                    )

    def _common_chunks(self, other: ChangeSet, node_id: bytes) -> Iterator[ChunkIndex]:
        """Yield the indexes of the chunks of an array that both have written or erased."""
        ours, theirs = self.chunks.get(node_id, {}), other.chunks.get(node_id, {})
        yield from ours.keys() & theirs.keys()
        for fork, counterpart, single in ((self, other, theirs), (other, self, ours)):
            for part in fork.columns.get(node_id, ()):
                yield from (index for index in single if part.find(index) is not None)
                for another in counterpart.columns.get(node_id, ()):
                    yield from map(tuple, part.index[:, is_in(part.index, another.index)].T.tolist())


def is_inside(index: ChunkIndex, grid: tuple[int, ...]) -> bool:
    """Return whether a chunk lies within a grid of chunks."""
    return len(index) == len(grid) and all(coordinate < count for coordinate, count in zip(index, grid, strict=True))
