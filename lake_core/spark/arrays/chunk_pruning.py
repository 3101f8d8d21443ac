"""Finds the parts of arrays that may match a predicate on coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.expression import And, EvaluationFailed, Or, Predicate, columns, evaluate
from lake_core.icechunk.chunk_grid import grid_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.spark.arrays.coordinates import Coordinates

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pruning:
    """The parts to read of arrays that are divided into a grid of boxes."""

    positions: tuple[Mask, ...]
    """For each dimension, the positions whose rows may match the predicate."""
    boxes: npt.NDArray[np.int64]
    """The numbers of the boxes that may have such rows, in the order of the grid."""


def prune(predicate: Predicate | None, coordinates: Sequence[Coordinates], box_shape: Sequence[int]) -> Pruning:
    """Return the parts of arrays with these coordinates that may match a predicate. Without one, return all parts."""
    dimensions = _Dimensions(coordinates, box_shape)
    if predicate is None:
        positions = tuple(np.ones(len(dimension.values), bool) for dimension in coordinates)
        return Pruning(positions, np.arange(dimensions.box_count, dtype=np.int64))
    parts = predicate.operands if isinstance(predicate, And) else (predicate,)
    return Pruning(dimensions.positions(parts), np.flatnonzero(dimensions.boxes(predicate)).astype(np.int64))


class _Dimensions:
    """The dimensions of arrays, and the grid of boxes that they are cut into."""

    def __init__(self, coordinates: Sequence[Coordinates], box_shape: Sequence[int]) -> None:
        self._coordinates = {dimension.dimension: dimension.values for dimension in coordinates}
        self._box_shape = tuple(box_shape)
        self._grid = grid_of([len(dimension.values) for dimension in coordinates], box_shape)
        self.box_count = int(np.prod(self._grid, dtype=np.int64))

    def positions(self, parts: Sequence[Predicate]) -> tuple[Mask, ...]:
        """Return the positions along each dimension that match all predicates on only this dimension."""
        masks = {name: np.ones(len(values), bool) for name, values in self._coordinates.items()}
        for part in parts:
            name = self._only_dimension(part)
            if name is not None:
                masks[name] &= self._mask(name, part)
        return tuple(masks.values())

    def boxes(self, predicate: Predicate) -> Mask:
        """Return, for each box of the grid, whether it may have rows that match a predicate."""
        name = self._only_dimension(predicate)
        if name is not None:
            return self._boxes_of(name, self._mask(name, predicate))
        kept = np.ones(self._grid, bool)
        if isinstance(predicate, And):
            for name, mask in zip(self._coordinates, self.positions(predicate.operands), strict=True):
                kept &= self._boxes_of(name, mask)
            for operand in predicate.operands:
                if self._only_dimension(operand) is None:
                    kept &= self.boxes(operand)
        elif isinstance(predicate, Or):
            kept[...] = False
            for operand in predicate.operands:
                kept |= self.boxes(operand)
        return kept

    def _only_dimension(self, predicate: Predicate) -> str | None:
        """Return the only dimension that a predicate uses, or None if it uses several, or the values of an array."""
        names = {column.path[0] for column in columns(predicate)}
        return names.pop() if len(names) == 1 and names <= self._coordinates.keys() else None

    def _mask(self, name: str, predicate: Predicate) -> Mask:
        values = self._coordinates[name]
        try:
            mask: Mask = (
                evaluate(predicate, pa.table({name: values}))
                .combine_chunks()
                .fill_null(False)
                .to_numpy(zero_copy_only=False)
            )
        except EvaluationFailed:
            # Other parts of the predicate may drop the rows for which it fails.
            return np.ones(len(values), bool)
        return mask.astype(bool)

    def _boxes_of(self, name: str, mask: Mask) -> Mask:
        """Return, for each box of the grid, whether the mask of one dimension is true anywhere in it."""
        axis = list(self._coordinates).index(name)
        length = self._box_shape[axis]
        padded = np.zeros(self._grid[axis] * length, bool)
        padded[: len(mask)] = mask
        shape = [1] * len(self._grid)
        shape[axis] = self._grid[axis]
        return np.broadcast_to(padded.reshape(-1, length).any(axis=1).reshape(shape), self._grid).copy()
