"""Writes arrays to a session of a repository: all arrays, an append along a dimension, or the region of partitions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from lake_core.icechunk import IcechunkStore, Session
from lake_core.icechunk.errors import MismatchedVariable, UnstorableValues
from lake_core.icechunk.xarray.new_arrays import holds_dates
from lake_core.icechunk.xarray.stored_dataset import StoredDataset
from lake_core.icechunk.zarr_copy import copy_group
from lake_core.readable import count_of
from lake_orch.assets.arrays.data import BY_TYPE, open_dataset
from lake_orch.assets.arrays.layout import check_encoding, create_empty, rounded_variables
from lake_orch.assets.arrays.region import Extent, Region, within
from lake_orch.assets.arrays.settings import ArraySettings
from lake_orch.assets.arrays.splice import splice
from lake_orch.assets.partitions import TimeWindow
from lake_orch.errors import InvalidDefinition, OutsideRegion, RegionMismatch, TableNotEmpty, UnsupportedData


@dataclass(frozen=True, slots=True)
class ArrayWriter:
    """Writes the arrays of one asset to sessions of its repository."""

    settings: ArraySettings
    subject: str
    """The name of the data in errors."""
    region: Region | None = None
    """The region to write, or None if any part of the arrays may be written."""

    def check(self, dataset: xr.Dataset) -> None:
        """Check a dataset before a repository is created for it.

        Raises:
            OutsideRegion: The data has coordinates outside of the region.
            RegionMismatch: The data repeats a coordinate, or lacks one that a partition stands for.
            InvalidDefinition: The settings do not fit the data.
            PartitionSliceError: The partitions do not fit the coordinates.
            UnsupportedData: Arrays that are written in part have the same dimension twice.
        """
        check_encoding(self.settings.encoding, dataset, self.subject)
        if self.region is not None or self.settings.append_dim is not None:
            for name, variable in dataset.variables.items():
                if len(set(variable.dims)) < len(variable.dims):
                    raise UnsupportedData(
                        f"{self.subject}: {name!r} has the dimensions {_listed(variable.dims)}. Arrays that are "
                        "written in part must not have a dimension twice: rename one"
                    )
        preview_variable = self.settings.preview_image
        if isinstance(preview_variable, str) and preview_variable not in dataset.data_vars:
            raise InvalidDefinition(
                f"lake/preview_image of {self.subject} names {preview_variable!r}; the variables are "
                f"{_listed(dataset.data_vars)}"
            )
        if self.region is not None:
            dataset = self._with_dimensions(dataset, self.region)
            for extent in self.region.extents:
                self._check_inside(dataset, extent, self.region)

    def write(self, session: Session, dataset: xr.Dataset) -> bool:
        """Write a checked dataset in the mode of the settings. Return whether anything was written.

        Raises:
            RegionMismatch: The data does not fit the existing arrays.
            UnsupportedData: A value would not be read back as it is.
            TableNotEmpty: The mode is `error`, and arrays exist.
            InvalidDefinition: The settings do not fit the data.
        """
        try:
            return self._write(session.store, dataset)
        except MismatchedVariable as error:
            raise RegionMismatch(f"{self.subject}: {error}. Nothing was written") from None
        except UnstorableValues as error:
            raise UnsupportedData(f"{self.subject}: {error}. Nothing was written") from None

    def _write(self, store: IcechunkStore, dataset: xr.Dataset) -> bool:
        settings = self.settings
        if self.region is not None:
            return self._write_region(store, dataset, self.region)
        if settings.mode in ("error", "ignore") and not is_empty(store):
            return self._refuse()
        if settings.append_dim is not None:
            self._append(store, dataset, settings.append_dim)
        else:
            create_empty(store, dataset, settings.encoding, (), {})
        return True

    def attributes_left_out(self, session: Session, dataset: xr.Dataset) -> list[str]:
        """Return the attributes of variables that are not written, because the arrays exist and have others."""
        if (self.region is None and self.settings.append_dim is None) or is_empty(session.store):
            return []
        stored = self._stored(session.store)
        return [
            f"{name}.{attribute}"
            for name, variable in dataset.variables.items()
            if name in stored
            for attribute in stored.differing_attributes(name, variable)
        ]

    def copy(self, session: Session, group: zarr.Group) -> bool:
        """Replace all groups and arrays by those of a Zarr group, at any depth.

        Return whether anything was written.
        """
        if self.settings.mode in ("error", "ignore") and not is_empty(session.store):
            return self._refuse()
        copy_group(group, session)
        return True

    def _refuse(self) -> bool:
        if self.settings.mode == "error":
            part = "" if self.region is None else f" for {self.region.name}"
            raise TableNotEmpty(
                f"mode 'error' writes only the first arrays, but {self.settings.path} already has some{part}: "
                "use mode 'overwrite' or 'append'"
            )
        return False

    # Along one dimension

    def _append(self, store: IcechunkStore, dataset: xr.Dataset, dimension: str) -> None:
        if dimension not in dataset.dims:
            raise InvalidDefinition(
                f"lake/append_dim is {dimension!r}, "
                f"but {self.subject} has the dimensions {', '.join(map(str, dataset.dims))}"
            )
        dataset, existing, stored = self._create_or_check(store, dataset, (dimension,))
        length = existing.sizes.get(dimension, 0)
        splice(store, dimension, length, length, dataset.sizes[dimension])
        grown = {name: variable for name, variable in dataset.variables.items() if dimension in variable.dims}
        stored.write(grown, {dimension: slice(length, length + dataset.sizes[dimension])})

    # A region

    def _write_region(self, store: IcechunkStore, dataset: xr.Dataset, region: Region) -> bool:
        dataset = self._with_dimensions(dataset, region)
        dataset = dataset.sortby([extent.dimension for extent in region.extents if extent.windows is not None])
        dataset, existing, stored = self._create_or_check(store, dataset, region.dimensions)
        if self.settings.mode in ("error", "ignore") and _covers_something(existing, region):
            return self._refuse()
        coordinates: dict[str, npt.NDArray[Any]] = {}
        fresh: dict[str, npt.NDArray[np.bool_]] = {}
        for extent in region.extents:
            values = _coordinates(existing, extent.dimension)
            shared = self._is_shared(existing, extent, region)
            coordinates[extent.dimension], fresh[extent.dimension] = self._make_room(
                store, values, _coordinates(dataset, extent.dimension), extent, shared=shared
            )
        self._write_shared(stored, dataset, existing, region, fresh, coordinates)
        sliced = [
            name
            for name, variable in dataset.variables.items()
            if set(region.dimensions) <= set(variable.dims) and name not in region.dimensions
        ]
        for positions, targets in _runs(
            {
                dimension: _positions(coordinates[dimension], _coordinates(dataset, dimension))
                for dimension in region.dimensions
            }
        ):
            stored.write({name: dataset[name].variable.isel(positions) for name in sliced}, targets)
        return True

    def _stored(self, store: IcechunkStore) -> StoredDataset:
        return StoredDataset(store, rounded=rounded_variables(self.settings.encoding))

    def _with_dimensions(self, dataset: xr.Dataset, region: Region) -> xr.Dataset:
        """Add the dimensions that the data of one partition lacks.

        A scalar coordinate, or else the partition key, becomes a dimension.
        """
        for extent in region.extents:
            dimension = extent.dimension
            if dimension in dataset.dims and dimension not in dataset.coords:
                raise InvalidDefinition(
                    f"dimension {dimension!r} of {self.subject} has no coordinates, and partition_expr names it: "
                    "give it those that the partitions stand for"
                )
            if dimension in dataset.dims:
                continue
            if dimension in dataset.coords:
                dataset = dataset.expand_dims(dimension)
                continue
            single = extent.single()
            if single is None:
                raise InvalidDefinition(
                    f"{self.subject} lacks the dimension {dimension!r} that partition_expr names: return arrays that "
                    "have it. Only for a run of one static or dynamic partition its key becomes the coordinate"
                )
            dataset = dataset.expand_dims({dimension: np.array([single], object)})
        return dataset

    def _check_inside(self, dataset: xr.Dataset, extent: Extent, region: Region) -> None:
        values = _coordinates(dataset, extent.dimension)
        outside = values[~extent.select(values)]
        if len(outside):
            raise OutsideRegion(
                f"{self.subject} has the coordinate {_shown(outside[0])} "
                f"along {extent.dimension!r}{f' and {len(outside) - 1} more' if len(outside) > 1 else ''}, "
                f"which {region.name} ({extent}) does not hold. Return its own coordinates only. Nothing was written"
            )
        if len(np.unique(values)) < len(values):
            raise RegionMismatch(
                f"{self.subject} has a coordinate along {extent.dimension!r} twice: return each coordinate once"
            )
        if extent.windows is None:
            missing = np.setdiff1d(extent.coordinates(values.dtype), values)
            if len(missing):
                raise RegionMismatch(
                    f"{self.subject} lacks the coordinate {_shown(missing[0])} along {extent.dimension!r}, "
                    "a partition of the run: return arrays for each partition, with missing values where there is no "
                    "data"
                )

    def _make_room(
        self,
        store: IcechunkStore,
        existing: npt.NDArray[Any],
        values: npt.NDArray[Any],
        extent: Extent,
        *,
        shared: bool,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Insert the coordinates of the data along a dimension.

        Return the resulting coordinates, and a mask of the data's that are new or take the place of others.
        """
        dimension = extent.dimension
        if extent.windows is None:
            is_new = ~np.isin(values, existing)
            new = values[is_new]
            if len(new):
                self._check_free(dimension, new)
                splice(store, dimension, len(existing), len(existing), len(new))
                existing = np.concatenate([existing, new])
            return existing, is_new
        fresh = np.zeros(len(values), np.bool_)
        for window, mask in zip(extent.windows, extent.parts(values), strict=True):
            coordinates = values[mask]
            positions = np.flatnonzero(Extent(dimension, (), (window,)).select(existing))
            if _equal(existing[positions], coordinates):
                continue
            self._check_free(dimension, coordinates)
            if len(positions) and shared:
                self._check_shared_times(existing, coordinates, extent, window)
                fresh |= mask & ~np.isin(values, existing)
                existing = _inserted(store, dimension, existing, coordinates)
                continue
            fresh |= mask
            if len(positions) and int(positions[-1]) - int(positions[0]) + 1 != len(positions):
                raise RegionMismatch(
                    f"the coordinates along {dimension!r} are not in ascending order: "
                    f"sort the arrays by {dimension!r} first"
                )
            start = int(positions[0]) if len(positions) else extent.position(existing, window)
            splice(store, dimension, start, start + len(positions), len(coordinates))
            existing = np.concatenate([existing[:start], coordinates, existing[start + len(positions) :]])
        return existing, fresh

    def _check_shared_times(
        self, existing: npt.NDArray[Any], coordinates: npt.NDArray[Any], extent: Extent, window: TimeWindow
    ) -> None:
        """Check that each partition in a window has the stored coordinates, where there are any, and so do others."""
        extent.position(existing, window)  # they are in order
        for part in extent.partitions_in(window):
            stored, returned = existing[within(existing, part)], coordinates[within(coordinates, part)]
            if len(stored) and not _equal(stored, returned):
                raise RegionMismatch(
                    f"{self.subject} has {count_of(len(returned), 'coordinate')} along {extent.dimension!r} instead of "
                    f"the stored {len(stored)}, which other partitions share: return the same coordinates, with "
                    "missing values where there is no data. Nothing was written"
                )

    def _check_free(self, dimension: str, values: npt.NDArray[Any]) -> None:
        if dimension in self.settings.coordinates:
            raise RegionMismatch(
                f"{self.subject} has other coordinates along {dimension!r} than lake/coordinates "
                f"declares for these partitions, such as {_shown(values[0]) if len(values) else 'none at all'}: "
                "return exactly those, with missing values where there is no data"
            )

    @staticmethod
    def _is_shared(existing: xr.Dataset, extent: Extent, region: Region) -> bool:
        """Return whether partitions that differ along another dimension share the coordinates along this one."""
        others = [other for other in region.extents if other is not extent]
        return any(not bool(other.select(_coordinates(existing, other.dimension)).all()) for other in others)

    def _write_shared(
        self,
        stored: StoredDataset,
        dataset: xr.Dataset,
        existing: xr.Dataset,
        region: Region,
        fresh: Mapping[str, npt.NDArray[np.bool_]],
        coordinates: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        """Write the coordinates, and the variables that have only some of the region's dimensions.

        They are written where the coordinates are new. Everywhere else, they must be equal to the stored ones.
        """
        for name, variable in dataset.variables.items():
            dimensions = [str(dimension) for dimension in variable.dims if dimension in region.dimensions]
            if not dimensions or (len(dimensions) == len(region.dimensions) and name not in region.dimensions):
                continue
            positions = {
                dimension: _positions(coordinates[dimension], _coordinates(dataset, dimension))
                for dimension in dimensions
            }
            known = {dimension: np.flatnonzero(~fresh[dimension]) for dimension in dimensions}
            before = {
                dimension: _positions(
                    _coordinates(existing, dimension), _coordinates(dataset, dimension)[known[dimension]]
                )
                for dimension in dimensions
            }
            if all(len(each) for each in known.values()) and not _same(
                stored.read_back(name, variable.isel(known)), existing[name].variable.isel(before)
            ):
                raise RegionMismatch(
                    f"{name!r} of {self.subject} differs from the stored array, which other partitions share: "
                    f"it has the dimensions {_listed(variable.dims)}. Nothing was written"
                )
            if any(fresh[dimension].any() for dimension in dimensions):
                for part, targets in _runs(positions):
                    stored.write({name: variable.isel(part)}, targets)

    # Arrays that exist

    def _create_or_check(
        self, store: IcechunkStore, dataset: xr.Dataset, growing: tuple[str, ...]
    ) -> tuple[xr.Dataset, xr.Dataset, StoredDataset]:
        """Create the arrays, or check that the data fits existing ones.

        Return the data to write, and the arrays, to read and to write. The data have the order of dimensions of the
        arrays, and coordinates as they are read back.
        """
        if is_empty(store):
            self._check_dates(dataset, growing)
            create_empty(store, dataset, self.settings.encoding, growing, self.settings.partition_chunks)
            for dimension in growing:
                if dimension in self.settings.coordinates:
                    self._declare(store, dimension, dataset)
        # Numbers with the unit of a time are numbers, also where they are stored.
        spans = {str(name): True if item.dtype.kind == "m" else BY_TYPE for name, item in dataset.variables.items()}
        existing = open_dataset(store, spans=spans)
        if set(existing.variables) != set(dataset.variables):
            differing = set(existing.variables) ^ set(dataset.variables)
            raise RegionMismatch(
                f"{self.subject} has the variables {_listed(dataset.variables)}, but the stored arrays are "
                f"{_listed(existing.variables)}: both must have {_listed(differing)}, or neither. Create an array that "
                "is missing in a session of the lake first, or write all of the arrays anew"
            )
        stored = self._stored(store)
        dataset = dataset.assign(
            {name: self._in_order(name, item, existing[name].variable) for name, item in dataset.variables.items()}
        )
        for name, variable in dataset.variables.items():
            self._check_variable(name, variable, existing[name].variable, growing, stored)
        rounded = {name: stored.read_back(name, dataset.variables[name]) for name in growing if name in dataset.coords}
        return dataset.assign_coords(rounded), existing, stored

    def _check_dates(self, dataset: xr.Dataset, growing: tuple[str, ...]) -> None:
        """Raise UnstorableValues for dates of another calendar in an array that can have cells without a value."""
        for name, variable in dataset.variables.items():
            dimensions = [dimension for dimension in growing if dimension in variable.dims]
            if holds_dates(variable) and (len(dimensions) > 1 or set(dimensions) & set(self.settings.coordinates)):
                raise UnstorableValues(
                    f"{name!r} has dates of cftime, which cannot be missing, and has no value for partitions that are "
                    "not there yet: convert it, such as by convert_calendar('standard', use_cftime=False)"
                )

    def _in_order(self, name: Hashable, variable: xr.Variable, existing: xr.Variable) -> xr.Variable:
        """Return a variable with the order of dimensions of the stored array."""
        if set(variable.dims) != set(existing.dims):
            raise RegionMismatch(
                f"{name!r} of {self.subject} has the dimensions ({', '.join(map(str, variable.dims))}), "
                f"but the stored array has ({', '.join(map(str, existing.dims))})"
            )
        return variable if variable.dims == existing.dims else variable.transpose(*existing.dims)

    def _check_variable(
        self,
        name: Hashable,
        variable: xr.Variable,
        existing: xr.Variable,
        growing: tuple[str, ...],
        stored: StoredDataset,
    ) -> None:
        for dimension, length, before in zip(variable.dims, variable.shape, existing.shape, strict=True):
            if dimension not in growing and length != before:
                raise RegionMismatch(
                    f"{name!r} of {self.subject} has the length {length} along {dimension!r}, "
                    f"but the stored array has {before}"
                )
        if existing.dtype != object and not np.can_cast(variable.dtype, existing.dtype, "same_kind"):
            raise RegionMismatch(
                f"{name!r} of {self.subject} is of type {variable.dtype}, "
                f"but the stored array is of type {existing.dtype}: convert it first"
            )
        stored.check_attributes(name, variable)
        if not set(variable.dims) & set(growing) and not _same(stored.read_back(name, variable), existing):
            raise RegionMismatch(
                f"{name!r} of {self.subject} differs from the stored array, which is the same for all partitions: "
                f"it has no dimension {' or '.join(growing)}. "
                "To change it, overwrite all of the arrays. Nothing was written"
            )

    def _declare(self, store: IcechunkStore, dimension: str, dataset: xr.Dataset) -> None:
        """Resize the arrays to the final length of a dimension, and write its coordinates."""
        declared = np.asarray(self.settings.coordinates[dimension])
        if declared.dtype.kind == "U":
            declared = declared.astype(object)
        values = _coordinates(dataset, dimension)
        if declared.ndim != 1 or len(np.unique(declared)) < len(declared) or not bool(np.isin(values, declared).all()):
            raise InvalidDefinition(
                f"lake/coordinates declares {count_of(len(declared), 'value')} of dimension {dimension!r}: "
                f"they must be different, and include all coordinates of {self.subject}"
            )
        splice(store, dimension, 0, 0, len(declared))
        self._stored(store).write({dimension: xr.Variable(dimension, declared)})


def is_empty(store: IcechunkStore) -> bool:
    """Return whether there is no array and no group except the root."""
    return all(path == "/" for path in store.session.node_paths())


def _runs(positions: Mapping[Any, npt.NDArray[np.intp]]) -> Iterator[tuple[dict[str, slice], dict[str, slice]]]:
    """Yield contiguous blocks by dimension: the part of the data, and the part of the arrays to write it to."""
    blocks_by_dimension: list[list[tuple[slice, slice]]] = []
    for indexes in positions.values():
        ends = [0, *(np.flatnonzero(np.diff(indexes) != 1) + 1).tolist(), len(indexes)]
        blocks_by_dimension.append(
            [
                (slice(start, stop), slice(int(indexes[start]), int(indexes[start]) + stop - start))
                for start, stop in pairwise(ends)
                if stop > start
            ]
        )
    for blocks in product(*blocks_by_dimension):
        yield (
            {name: block[0] for name, block in zip(positions, blocks, strict=True)},
            {name: block[1] for name, block in zip(positions, blocks, strict=True)},
        )


def _positions(existing: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the positions of values among the existing ones, which contain them all."""
    order = np.argsort(existing, kind="stable")
    positions: npt.NDArray[np.intp] = order[np.searchsorted(existing, values, sorter=order)]
    return positions


def _inserted(
    store: IcechunkStore, dimension: str, existing: npt.NDArray[Any], coordinates: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Make room for the coordinates that are not there yet. Both are in order. Return the resulting coordinates."""
    is_new = np.concatenate([[False], ~np.isin(coordinates, existing), [False]])
    for start, stop in np.flatnonzero(np.diff(is_new)).reshape(-1, 2).tolist():
        run = coordinates[start:stop]
        at = int(np.searchsorted(existing, run[0]))
        splice(store, dimension, at, at, len(run))
        existing = np.concatenate([existing[:at], run, existing[at:]])
    return existing


def _covers_something(existing: xr.Dataset, region: Region) -> bool:
    return all(bool(extent.select(_coordinates(existing, extent.dimension)).any()) for extent in region.extents)


def _coordinates(dataset: xr.Dataset, dimension: str) -> npt.NDArray[Any]:
    if dimension not in dataset.coords:
        raise InvalidDefinition(
            f"dimension {dimension!r} has no coordinates in the stored arrays: overwrite all of them with coordinates"
        )
    values: npt.NDArray[Any] = dataset[dimension].values
    return values.astype(object) if values.dtype.kind in "UT" else values


def _same(left: xr.Variable, right: xr.Variable) -> bool:
    return bool(left.equals(right))


def _equal(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    return len(left) == len(right) and bool((left == right).all())


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "none"


def _shown(value: Any) -> str:
    return str(value)[:40]
