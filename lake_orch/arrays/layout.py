"""The layout of new arrays: encodings of their variables, and empty arrays to write regions to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.coding.strings import create_vlen_dtype
from zarr.abc.codec import Codec

from lake_core.icechunk import IcechunkStore
from lake_orch.arrays.settings import ENCODINGS
from lake_orch.errors import InvalidDefinition

_MOST_BYTES = 64 << 20
"""The largest size in bytes of a chunk whose shape is not set by an encoding."""
_COORDINATES = 8192
"""The number of coordinates in one chunk. It is large because readers load all coordinates of a dimension."""
_TEXT: np.dtype[Any] = create_vlen_dtype(str)
_MOMENT = "microseconds since 1970-01-01"


def create_empty(
    store: IcechunkStore,
    dataset: xr.Dataset,
    encoding: Mapping[str, Mapping[str, Any]],
    growing: Sequence[str],
    partition_chunks: Mapping[str, int],
) -> None:
    """Create the arrays of a dataset in an empty store.

    Arrays with a growing dimension have no elements yet. Other arrays have their data.

    Args:
        store: The empty store.
        dataset: The data. It defines the variables, types, attributes and encodings.
        encoding: Encodings by variable. They take precedence over those of the variables themselves.
        growing: The dimensions that regions are added along.
        partition_chunks: The length of chunks, by dimension, with which no two partitions share a chunk. A dimension is
            left out if the length is not known.
    """
    dataset = plain_text(dataset)
    encodings = {
        str(name): _encoding(str(name), variable, encoding.get(str(name), {}), growing, partition_chunks)
        for name, variable in dataset.variables.items()
    }
    empty = dataset.isel({dimension: slice(0, 0) for dimension in growing})
    # xarray cannot infer the type of text arrays without elements.
    texts = {
        name: variable for name, variable in empty.variables.items() if variable.dtype == object and not variable.size
    }
    empty = empty.assign(
        {name: (variable.dims, np.empty(variable.shape, _TEXT), variable.attrs) for name, variable in texts.items()}
    )
    write(store, empty, mode="w", encoding=encodings)


def write(store: IcechunkStore, dataset: xr.Dataset, **options: Any) -> None:
    """Write a dataset with options of `Dataset.to_zarr`. Chunks of dask are aligned with the stored chunks."""
    dataset.to_zarr(store, consolidated=False, align_chunks=True, **options)


def source_encoding(variable: xr.Variable, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the encoding of a variable: `settings`, and the encoding of its source as far as Zarr v3 supports it."""
    source = {name: value for name, value in variable.encoding.items() if name in ENCODINGS and _is_of_v3(name, value)}
    if variable.dtype == object:
        # It is the text type of another store.
        source.pop("dtype", None)
    encoding = {**source, **settings}
    if "_FillValue" in encoding and "fill_value" not in encoding:
        # Elements without a chunk are missing values, not 0.
        encoding["fill_value"] = encoding["_FillValue"]
    return encoding


def check_encoding(encoding: Mapping[str, Mapping[str, Any]], dataset: xr.Dataset, subject: str) -> None:
    """Raise InvalidDefinition for encodings of unknown variables."""
    for name in encoding:
        if name not in dataset.variables:
            raise InvalidDefinition(
                f"lake/encoding of {subject} names {name!r}; the variables are {', '.join(map(str, dataset.variables))}"
            )


def plain_text(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with texts of variable length, because a later text may be longer than all stored texts."""
    texts = [name for name, variable in dataset.variables.items() if variable.dtype.kind in "UT"]
    return dataset.assign({name: dataset[name].astype(object) for name in texts}) if texts else dataset


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
    if variable.dtype.kind == "M" and "units" not in settings:
        # Otherwise the first region would limit the times of later regions.
        encoding |= {"units": _MOMENT, "dtype": "int64", "calendar": "proleptic_gregorian"}
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


def _is_of_v3(name: str, value: Any) -> bool:
    if name not in ("compressors", "filters", "serializer"):
        return value is not None
    codecs = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(codec, Codec) for codec in codecs)
