"""A solver that moves an append after an earlier one. No chunk is copied: its reference gets another index."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.icechunk.conflict_detector import ConflictDetector, RebaseStep
from lake_core.icechunk.node_metadata import parse_node
from lake_core.icechunk.snapshot import ArrayNode, Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.icechunk.change_set import ChangeSet
    from lake_core.icechunk.conflict_solver import ConflictSolver
    from lake_core.icechunk.manifest import ChunkIndex, ChunkReference, ChunkReferences


@dataclass(frozen=True, slots=True)
class _Append:
    """An append to an array, on top of an append of theirs."""

    ours: ArrayNode
    theirs: ArrayNode
    axis: int
    first: int
    """The length along the axis before both appends."""

    @property
    def shift(self) -> int:
        """Return how many elements theirs appended."""
        return self.theirs.shape[self.axis] - self.first

    @property
    def appended_chunks(self) -> int:
        """Return how many chunks theirs appended."""
        return self.shift // self.ours.chunk_shape[self.axis]

    @property
    def is_of_whole_chunks(self) -> bool:
        """Return whether the chunks of ours keep their bounds after the move."""
        size = self.ours.chunk_shape[self.axis]
        return self.first % size == 0 and self.shift % size == 0

    def node(self) -> ArrayNode:
        """Return the array with both appends."""
        document = _document(self.theirs)
        document["shape"][self.axis] += self.ours.shape[self.axis] - self.first
        text = json.dumps(document, indent=2, ensure_ascii=False).encode()
        node = parse_node(self.ours.path, text, self.ours.node_id)
        assert isinstance(node, ArrayNode)
        return replace(node, manifests=self.theirs.manifests)

    def shifted_chunks(self, changes: ChangeSet) -> dict[ChunkIndex, ChunkReference | None]:
        """Return the chunks of ours, moved by the number of chunks that theirs appended."""
        count = self.appended_chunks
        before, after = slice(0, self.axis), slice(self.axis + 1, None)
        chunks = changes.chunks.get(self.ours.node_id, {})
        return {(*index[before], index[self.axis] + count, *index[after]): chunk for index, chunk in chunks.items()}

    def shifted_columns(self, references: ChunkReferences) -> ChunkReferences:
        """Return references of ours, moved by the number of chunks that theirs appended."""
        index = references.index.copy()
        index[self.axis] += np.uint32(self.appended_chunks)
        return replace(references, index=index)


@dataclass(frozen=True, slots=True)
class AppendSolver:
    """A solver that moves the appends of a session along a dimension after those of an earlier commit.

    All arrays of a group that have the dimension move together. The length before both appends and the length of the
    earlier append must fill whole chunks. All other conflicts are left to another solver.

    Attributes:
        dimension: The name of the dimension, as in the arrays' `dimension_names`.
        otherwise: Resolves conflicts other than appends.
    """

    dimension: str
    otherwise: ConflictSolver = field(default_factory=ConflictDetector)

    def solve(self, step: RebaseStep) -> ChangeSet:
        """Return the changes, moved after the appends of theirs.

        Raises:
            RebaseFailedError: An append cannot be moved, or anything else conflicts and is not resolved.
        """
        appends = list(self._appends(step))
        if not appends:
            return self.otherwise.solve(step)
        self._check(appends, step)
        nodes, chunks, columns = dict(step.changes.nodes), dict(step.changes.chunks), dict(step.changes.columns)
        for append in appends:
            nodes[append.ours.path] = append.node()
            if append.ours.node_id in chunks:
                chunks[append.ours.node_id] = append.shifted_chunks(step.changes)
            if append.ours.node_id in columns:
                columns[append.ours.node_id] = [append.shifted_columns(part) for part in columns[append.ours.node_id]]
        settled = step.settled | {append.ours.node_id for append in appends}
        changes = replace(step.changes, nodes=nodes, chunks=chunks, columns=columns)
        return self.otherwise.solve(replace(step, changes=changes, settled=settled))

    def _appends(self, step: RebaseStep) -> Iterator[_Append]:
        """Yield the arrays that both sides appended to and changed in no other way."""
        for path, ours in step.changes.nodes.items():
            base, theirs = step.base.nodes.get(path), step.theirs.nodes.get(path)
            axis = self._axis(ours)
            if (
                axis is None
                or not isinstance(ours, ArrayNode)
                or not isinstance(base, ArrayNode)
                or not isinstance(theirs, ArrayNode)
            ):
                continue
            if _grew(base, ours, axis) and _grew(base, theirs, axis) and _writes_behind(base, ours, axis, step.changes):
                yield _Append(ours, theirs, axis, base.shape[axis])

    def _axis(self, node: Node) -> int | None:
        """Return the axis of the dimension in an array; None where it has none, or more than one."""
        names = node.dimension_names if isinstance(node, ArrayNode) and node.chunk_runs is None else None
        return names.index(self.dimension) if names is not None and names.count(self.dimension) == 1 else None

    def _check(self, appends: list[_Append], step: RebaseStep) -> None:
        """Raise RebaseFailedError unless whole chunks are moved, and all arrays of a group by the same length."""
        for append in appends:
            if not append.is_of_whole_chunks:
                raise step.failed(
                    f"the chunks of {append.ours.path} hold {append.ours.chunk_shape[append.axis]} elements along "
                    f"{self.dimension}, and appending {append.shift} elements to {append.first} does not fill whole "
                    "chunks: append whole chunks"
                )
        shifts: dict[str, int] = {}
        moved = {append.ours.path for append in appends}
        for append in appends:
            group = append.ours.path.rpartition("/")[0]
            if shifts.setdefault(group, append.shift) != append.shift:
                raise step.failed(
                    f"the arrays of {group or '/'} were appended to by different lengths along {self.dimension}"
                )
        for path, node in step.changes.nodes.items():
            if path.rpartition("/")[0] in shifts and path not in moved and self._changes_length(node, step):
                raise step.failed(
                    f"{path} has the dimension {self.dimension} too, "
                    "and cannot be moved with the arrays that were appended to"
                )

    def _changes_length(self, node: Node, step: RebaseStep) -> bool:
        """Return whether ours gave an array another length along the dimension, or created it."""
        axis, base = self._axis(node), step.base.nodes.get(node.path)
        if axis is None or not isinstance(node, ArrayNode):
            return False
        return not isinstance(base, ArrayNode) or base.node_id != node.node_id or base.shape != node.shape


def _document(array: ArrayNode) -> dict[str, Any]:
    return dict(json.loads(array.user_data))


def _grew(before: ArrayNode, after: ArrayNode, axis: int) -> bool:
    """Return whether an array has grown along an axis, with no other change of its metadata."""
    if (
        before.node_id != after.node_id
        or len(before.shape) != len(after.shape)
        or after.shape[axis] <= before.shape[axis]
    ):
        return False
    shape = [*before.shape]
    shape[axis] = after.shape[axis]
    return {**_document(before), "shape": shape} == _document(after)


def _writes_behind(base: ArrayNode, ours: ArrayNode, axis: int, changes: ChangeSet) -> bool:
    """Return whether all chunks of ours come after those of the base along the axis."""
    if ours.node_id in changes.bounds:
        return False
    first = base.shape[axis] // ours.chunk_shape[axis]
    return bool((changes.changed_chunks(ours.node_id, ours.grid)[:, axis] >= first).all())
