"""Converts Python types of arrays to and from datasets of xarray."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
import zarr

from lake_core.icechunk import IcechunkStore, Session
from lake_core.icechunk.errors import UnstorableValues
from lake_core.icechunk.xarray.new_arrays import prepared
from lake_core.icechunk.xarray.stored_variable import StoredVariable
from lake_orch.assets.arrays.region import Region
from lake_orch.assets.tables.data.handler import annotation_text
from lake_orch.errors import InvalidDefinition, UnsupportedData

BY_TYPE = xr.coders.CFTimedeltaCoder(decode_via_units=False)
"""Makes spans of the numbers that were written as spans, and not of others with the unit of a time."""
_RETURNED = "xarray.Dataset, xarray.DataArray, zarr.Group, zarr.Array, numpy.ndarray, dask.array.Array"
_LOADED = "xarray.Dataset, xarray.DataArray, zarr.Group, zarr.Array, numpy.ndarray, lake_core.icechunk.Session"


def is_array(value: object) -> bool:
    """Return whether a value is an array, or several, of a type that can be stored."""
    return isinstance(value, xr.Dataset | xr.DataArray | zarr.Group | zarr.Array | np.ndarray) or _is_dask(value)


def is_type_of_arrays(annotation: object) -> bool:
    """Return whether arrays can be loaded as the annotated type."""
    return annotation in (xr.Dataset, xr.DataArray, np.ndarray, zarr.Group, zarr.Array, Session, IcechunkStore)


def to_dataset(value: object, subject: str, variable: str, dimensions: Sequence[str] = ()) -> xr.Dataset:
    """Convert the value of an asset to a dataset that can be stored. Lazy arrays stay lazy.

    Args:
        value: The value that the asset returned.
        subject: The name of the value in errors.
        variable: The name of an array that has none.
        dimensions: The names of the dimensions of an array that has none.

    Raises:
        UnsupportedData: The value is not an array, or no array can hold its values.
        InvalidDefinition: There are more dimensions than names, or fewer.
    """
    try:
        return prepared(_dataset_of(value, subject, variable, dimensions))
    except UnstorableValues as error:
        raise UnsupportedData(f"{subject}: {error}") from None


def _dataset_of(value: object, subject: str, variable: str, dimensions: Sequence[str]) -> xr.Dataset:
    if isinstance(value, xr.Dataset):
        return value
    if isinstance(value, xr.DataArray):
        return value.to_dataset(name=variable if value.name is None else value.name)
    if isinstance(value, zarr.Group):
        return open_dataset(value.store, group=value.path, spans=BY_TYPE)
    if isinstance(value, zarr.Array):
        return xr.Dataset({value.basename or variable: _variable_of_zarr(value, subject, dimensions)})
    if isinstance(value, np.ndarray) or _is_dask(value):
        array: Any = value
        return xr.Dataset({variable: xr.Variable(_dimensions(array.ndim, dimensions, subject), value)})
    kind = type(value)
    raise UnsupportedData(f"{subject} is a {kind.__module__}.{kind.__qualname__}: return one of {_RETURNED}")


def _is_dask(value: object) -> bool:
    return hasattr(value, "__dask_graph__") and hasattr(value, "ndim")


def _variable_of_zarr(array: zarr.Array[Any], subject: str, dimensions: Sequence[str]) -> xr.Variable:
    """Return an array of Zarr as a variable.

    It is read in memory: xarray has no lazy form of an array outside of a group.
    """
    names = getattr(array.metadata, "dimension_names", None)
    if not dimensions and names and all(names):
        dimensions = names
    encoding: dict[str, Any] = {"chunks": array.chunks, "fill_value": array.fill_value}
    if array.shards is not None:
        encoding["shards"] = array.shards
    return xr.Variable(
        _dimensions(array.ndim, dimensions, subject), np.asarray(array[...]), dict(array.attrs), encoding
    )


def _dimensions(count: int, names: Sequence[str], subject: str) -> tuple[str, ...]:
    if not names:
        return tuple(f"dim_{number}" for number in range(count))
    if len(names) != count:
        raise InvalidDefinition(
            f"lake/dims names the dimensions {', '.join(names)}, but {subject} has {count}: name each of them"
        )
    return tuple(names)


def open_dataset(store: Any, *, group: str = "", chunks: Any = None, spans: Any = None) -> xr.Dataset:
    """Return the dataset of a group.

    Its arrays are lazy. With `chunks` they are dask arrays, otherwise xarray's own lazy arrays.

    Args:
        store: The store of Zarr.
        group: The path of the group.
        chunks: The chunks of dask arrays.
        spans: Which variables are spans of time: xarray's `decode_timedelta`. By default all numbers with the unit of
            a time are.
    """
    # A repository has no consolidated metadata.
    options: dict[str, Any] = {"group": group or None, "consolidated": False, "chunks": chunks}
    with warnings.catch_warnings():
        # Xarray says of numbers with the unit of a time that it will not make spans of them in future.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            dataset: xr.Dataset = xr.open_zarr(store, decode_timedelta=spans, **options)
        except ValueError:
            # Xarray takes the type of dates of other calendars from the first of them, and fails if there are none.
            raw = xr.open_zarr(store, decode_cf=False, **options)
            empty = [
                name
                for name, item in raw.variables.items()
                if not item.size and not StoredVariable.of(str(name), item).holds_numpy_dates(np.empty(item.shape, int))
            ]
            if not empty:
                raise
            dataset = xr.open_zarr(store, decode_timedelta=spans, drop_variables=empty, **options)
            dataset = dataset.assign({name: raw.variables[name].astype(object) for name in empty})
    return dataset


@dataclass(frozen=True, slots=True)
class ArraySlice:
    """The part of the arrays to load for an input."""

    session: Session
    variables: tuple[str, ...] | None
    selection: Mapping[str, Any]
    chunks: Any
    region: Region | None
    """The region to load, or None for whole arrays."""

    @property
    def is_whole(self) -> bool:
        """Return whether everything is loaded."""
        return self.region is None and self.variables is None and not self.selection

    def dataset(self, subject: str) -> xr.Dataset:
        """Return the variables, region and selection as a lazy dataset.

        Raises InvalidDefinition for missing variables or coordinates.
        """
        dataset = open_dataset(self.session.store, chunks=self.chunks)
        if self.variables is not None:
            unknown = [name for name in self.variables if name not in dataset.variables]
            if unknown:
                raise InvalidDefinition(
                    f"{subject} asks for the variable {unknown[0]!r}; "
                    f"the variables are {', '.join(map(str, dataset.variables))}"
                )
            dataset = dataset[list(self.variables)]
        for extent in self.region.extents if self.region is not None else ():
            if extent.dimension in dataset.dims:
                positions = np.flatnonzero(extent.select(dataset[extent.dimension].values))
                dataset = dataset.isel({extent.dimension: _as_slice(positions)})
        try:
            return dataset.sel(self.selection) if self.selection else dataset
        except (KeyError, ValueError, TypeError) as error:
            raise InvalidDefinition(
                f"lake/sel of {subject} is {dict(self.selection)!r}, and selects nothing: {error}"
            ) from None


def _as_slice(positions: Any) -> Any:
    """Return contiguous positions as a slice, which reads less."""
    if not len(positions):
        return slice(0, 0)
    start, stop = int(positions[0]), int(positions[-1]) + 1
    return slice(start, stop) if stop - start == len(positions) else positions


def load(part: ArraySlice, annotation: object, subject: str) -> Any:
    """Load arrays as the type that a parameter is annotated with.

    Raises:
        UnsupportedData: The annotation is missing or not supported, or its type can only be loaded whole, but a part is
            requested.
        InvalidDefinition: One array is requested, but there are several.
    """
    kind = annotation if isinstance(annotation, type) else None
    if kind is xr.Dataset:
        return part.dataset(subject)
    if kind is xr.DataArray:
        return _only(part.dataset(subject), subject)
    if kind is np.ndarray:
        return _only(part.dataset(subject), subject).values
    if kind in (zarr.Group, zarr.Array, Session, IcechunkStore):
        if not part.is_whole and (kind is not zarr.Array or part.region is not None or part.selection):
            raise UnsupportedData(
                f"{subject} is annotated as {annotation!r}, which can only be loaded whole, but a part is requested: "
                "annotate the parameter as xarray.Dataset, xarray.DataArray or numpy.ndarray"
            )
        return _whole(part, kind, subject)
    raise UnsupportedData(f"{subject} {annotation_text(annotation)}: annotate the parameter as one of {_LOADED}")


def _whole(part: ArraySlice, kind: object, subject: str) -> Any:
    if kind is Session:
        return part.session
    if kind is IcechunkStore:
        return part.session.store
    group = zarr.open_group(part.session.store, mode="r")
    if kind is zarr.Group:
        return group
    name = _only(part.dataset(subject), subject).name
    return group[str(name)]


def _only(dataset: xr.Dataset, subject: str) -> xr.DataArray:
    """Return the only array of a dataset: a data variable, or a coordinate that was requested by its name."""
    names = list(dataset.data_vars) or list(dataset.variables)
    if len(names) != 1:
        raise InvalidDefinition(
            f"{subject} is annotated as one array, but there are {len(names)} ({', '.join(map(str, names[:5]))}): "
            "choose one by the metadata 'columns', or annotate the parameter as xarray.Dataset"
        )
    return dataset[names[0]]
