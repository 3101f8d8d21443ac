"""The layout of new arrays: encodings of their variables, and empty arrays to write regions to."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from lake_core.icechunk import IcechunkStore
from lake_core.icechunk.xarray.new_arrays import create_arrays, source_encoding
from lake_core.icechunk.xarray.stored_dataset import StoredDataset
from lake_orch.assets.arrays.settings import ENCODING
from lake_orch.errors import InvalidDefinition

_MOST_BYTES = 64 << 20
"""The largest size in bytes of a chunk whose shape is not set by an encoding."""
_COORDINATES = 8192
"""The number of coordinates in one chunk. It is large because readers load all coordinates of a dimension."""
_OF_TIMES = ("units", "calendar", "dtype")


def create_empty(
    store: IcechunkStore,
    dataset: xr.Dataset,
    encoding: Mapping[str, Mapping[str, Any]],
    growing: Sequence[str],
    partition_chunks: Mapping[str, int],
) -> None:
    """Create the arrays of a dataset in a store, in the place of what it has.

    Arrays with a growing dimension have no elements yet. Other arrays have their cells.

    Args:
        store: The store.
        dataset: The data. It defines the variables, types, attributes and encodings.
        encoding: Encodings by variable. They take precedence over those of the variables themselves.
        growing: The dimensions that regions are added along.
        partition_chunks: The length of chunks, by dimension, with which no two partitions share a chunk. A dimension is
            left out if the length is not known.

    Raises:
        InvalidDefinition: Zarr refuses an encoding.
        UnstorableValues: An array cannot hold a value.
    """
    encodings: dict[Hashable, dict[str, Any]] = {
        name: _encoding(str(name), variable, encoding.get(str(name), {}), growing, partition_chunks)
        for name, variable in dataset.variables.items()
    }
    try:
        create_arrays(store, dataset, encodings, growing=growing)
    except (ValueError, TypeError) as error:
        raise InvalidDefinition(f"the arrays cannot be created with this {ENCODING}: {error}") from error
    stored = StoredDataset(store, rounded=rounded_variables(encoding))
    stored.write({name: item for name, item in dataset.variables.items() if not set(item.dims) & set(growing)})


def rounded_variables(encoding: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the variables whose encoding names a type. Floats are rounded to it, as was asked for."""
    return frozenset(name for name, settings in encoding.items() if "dtype" in settings)


def check_encoding(encoding: Mapping[str, Mapping[str, Any]], dataset: xr.Dataset, subject: str) -> None:
    """Raise InvalidDefinition for encodings of unknown variables."""
    for name in encoding:
        if name not in dataset.variables:
            raise InvalidDefinition(
                f"lake/encoding of {subject} names {name!r}; the variables are {', '.join(map(str, dataset.variables))}"
            )


def _encoding(
    name: str,
    variable: xr.Variable,
    settings: Mapping[str, Any],
    growing: Sequence[str],
    partition_chunks: Mapping[str, int],
) -> dict[str, Any]:
    encoding = source_encoding(variable, settings)
    if not set(variable.dims) & set(growing):
        return encoding
    if "chunks" not in encoding:
        encoding["chunks"] = _chunks(name, variable, growing, partition_chunks)
    if variable.dtype.kind in "mM" and "units" not in settings:
        # The units of its source would limit the times of later regions.
        encoding = {name: value for name, value in encoding.items() if name not in _OF_TIMES}
    dtype = np.dtype(encoding.get("dtype") or variable.dtype)
    if dtype.kind == "f" and "fill_value" not in encoding:
        encoding["fill_value"] = math.nan
    return encoding


def _chunks(
    name: str, variable: xr.Variable, growing: Sequence[str], partition_chunks: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the shape of a variable's chunks: that of its dask chunks, or the length of the data along each dimension.

    Along a dimension of `partition_chunks`, no chunk contains parts of two partitions. Large chunks are divided.
    """
    if variable.dims == (name,):
        return (_COORDINATES,)
    lengths = variable.shape if variable.chunks is None else [chunks[0] for chunks in variable.chunks]
    chunks = [
        _aligned(max(length, 1), partition_chunks.get(str(dimension), 0))
        for dimension, length in zip(variable.dims, lengths, strict=True)
    ]
    if variable.chunks is not None:
        return tuple(chunks)
    cut = [axis for axis, dimension in enumerate(variable.dims) if dimension not in growing] or list(
        range(variable.ndim)
    )
    while math.prod(chunks) * variable.dtype.itemsize > _MOST_BYTES:
        longest = max(cut, key=lambda axis: chunks[axis])
        if chunks[longest] == 1:
            cut = list(range(variable.ndim))
            longest = max(cut, key=lambda axis: chunks[axis])
        chunks[longest] = -(-chunks[longest] // 2)
    return tuple(chunks)


def _aligned(length: int, partition_chunk: int) -> int:
    """Return a length of chunks that fit into each partition.

    `partition_chunk` is the longest such length, or 0 if unknown.
    """
    return partition_chunk if partition_chunk and partition_chunk % length else length
