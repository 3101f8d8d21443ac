"""Splitting: which manifest the reference of a chunk belongs to, by the rules of the configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.icechunk.config import ManifestSplitCondition, ManifestSplitDimCondition, SplitSizes
    from lake_core.icechunk.manifest import ChunkReferences, Extents
    from lake_core.icechunk.snapshot import ArrayNode

NO_SPLIT = 2**32 - 1
"""The size of a split that holds all chunks along a dimension."""


def split_sizes(rules: SplitSizes, array: ArrayNode) -> tuple[int, ...]:
    """Return how many chunks along each dimension of an array go into one manifest."""
    return tuple(_size_along(rules, array, axis) for axis in range(len(array.shape)))


def _size_along(rules: SplitSizes, array: ArrayNode, axis: int) -> int:
    for condition, sizes in rules:
        if _matches_array(condition, array.path):
            for dimension, number in sizes:
                if _matches_dimension(dimension, array, axis):
                    return number
    return NO_SPLIT


def _matches_array(condition: ManifestSplitCondition, path: str) -> bool:
    argument = condition.argument
    if isinstance(argument, tuple):
        matches = (_matches_array(part, path) for part in argument)
        return all(matches) if condition.kind == "and" else any(matches)
    if argument is None:
        return True
    return re.search(argument, path if condition.kind == "path_matches" else path.rpartition("/")[2]) is not None


def _matches_dimension(condition: ManifestSplitDimCondition, array: ArrayNode, axis: int) -> bool:
    argument = condition.argument
    if argument is None:
        return True
    if isinstance(argument, int):
        return argument == axis
    name = None if array.dimension_names is None else array.dimension_names[axis]
    return name is not None and re.search(argument, name) is not None


def split_cell(extents: Extents, sizes: tuple[int, ...]) -> Extents:
    """Return the cell of the grid of splits that a box begins in."""
    return tuple((first // size, first // size + 1) for (first, _), size in zip(extents, sizes, strict=True))


def split(references: ChunkReferences, sizes: tuple[int, ...]) -> Iterator[ChunkReferences]:
    """Yield the references of each manifest, given the number of chunks in a manifest along each dimension."""
    if not len(references):
        return
    if all(size == NO_SPLIT for size in sizes):
        yield references
        return
    cells = references.index // np.array(sizes, np.uint32)[:, None]
    _, cell_of = np.unique(cells, axis=1, return_inverse=True)
    order = np.argsort(cell_of.reshape(-1), kind="stable")
    bounds = np.flatnonzero(np.diff(cell_of.reshape(-1)[order])) + 1
    for numbers in np.split(order, bounds):
        yield references.take(numbers)
