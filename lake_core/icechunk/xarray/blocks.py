"""Writes the values of variables to the cells of arrays, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.icechunk.xarray.stored_variable import without_warnings

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import xarray as xr
    import zarr

    from lake_core.icechunk.xarray.stored_variable import StoredVariable


@dataclass(frozen=True, slots=True)
class Block:
    """Values, and the box of an array that they are written to."""

    values: xr.Variable
    stored: StoredVariable
    array: zarr.Array[Any]
    box: tuple[slice, ...]


def block(
    values: xr.Variable, stored: StoredVariable, array: zarr.Array[Any], region: Mapping[Hashable, slice]
) -> Block:
    """Return a block whose box is the whole array, but for the dimensions of a region."""
    box = tuple(
        region.get(dimension, slice(0, length)) for dimension, length in zip(values.dims, array.shape, strict=True)
    )
    if array.dtype.kind == "c":
        # Zarr leaves out chunks that equal the fill value, and to it a complex zero equals one with negative parts.
        array = array.with_config({"write_empty_chunks": True})
    return Block(values, stored, array, box)


def write_blocks(blocks: Sequence[Block]) -> None:
    """Write blocks of different arrays. Arrays of dask are computed together, so what they share is computed once.

    Blocks of one array must be written by one call after another: two of them may have parts of one chunk.

    Raises UnstorableValues if an array cannot hold a value.
    """
    with without_warnings():
        _write_blocks(blocks)


def _write_blocks(blocks: Sequence[Block]) -> None:
    sources, targets, boxes = [], [], []
    for part in blocks:
        chunks = part.values.chunks
        if chunks is None:
            part.array[part.box or ...] = part.stored.encode(np.asarray(part.values.values), concurrently=True)
            continue
        data: Any = part.values.data.rechunk(aligned_chunks(chunks, part.array, part.box))
        nothing = np.empty((0,) * data.ndim, part.stored.cells)
        sources.append(data.map_blocks(part.stored.encode, dtype=part.stored.cells, meta=nothing))
        targets.append(part.array)
        boxes.append(part.box)
    if sources:
        import dask.array as da

        # Each task writes whole chunks or shards, so none needs a lock.
        da.store(sources, targets, regions=boxes, lock=False)  # type: ignore[arg-type]


def aligned_chunks(
    chunks: Sequence[Sequence[int]], array: zarr.Array[Any], box: Sequence[slice]
) -> tuple[tuple[int, ...], ...]:
    """Return chunks of dask that end where chunks, or shards, of an array end, close to the given ones.

    Two tasks that write parts of one chunk or shard at the same time would lose cells.
    """
    units = array.shards or array.chunks
    return tuple(_aligned(lengths, unit, part.start) for lengths, unit, part in zip(chunks, units, box, strict=True))


def _aligned(lengths: Sequence[int], unit: int, start: int) -> tuple[int, ...]:
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    inner = (ends[:-1] + start) // unit * unit - start
    bounds = [0, *np.unique(inner[(inner > 0) & (inner < total)]).tolist(), total]
    return tuple(stop - begin for begin, stop in pairwise(bounds))
