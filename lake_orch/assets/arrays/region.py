"""The region of arrays that partitions stand for: a slab along dimension coordinates.

The metadata `partition_expr` names the dimension, or is a dict from each dimension of the partitions to one of the
arrays. A time window contains the coordinates from its start up to its end. The end is excluded. Any other key is one
coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lake_orch.assets.partitions import Dimension, PartitionExpr, Partitions, TimeWindow, clock_time
from lake_orch.errors import PartitionSliceError

Mask: TypeAlias = "npt.NDArray[np.bool_]"


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of a region along one dimension: time windows, or single coordinates."""

    dimension: str
    keys: tuple[str, ...]
    windows: tuple[TimeWindow, ...] | None = None
    """The time windows, sorted and without overlaps, neighbors joined, or None if each key is a coordinate."""
    partitions: tuple[TimeWindow, ...] = ()
    """The time window of each key, sorted."""

    def parts(self, values: npt.NDArray[Any]) -> list[Mask]:
        """Return a mask of the coordinates for each window, or one mask for all keys.

        Raises PartitionSliceError if the partitions cannot stand for coordinates of this type.
        """
        if self.windows is None:
            return [np.isin(values, self.coordinates(values.dtype))]
        if values.dtype.kind != "M":
            raise PartitionSliceError(
                f"dimension {self.dimension!r} has coordinates of type {values.dtype}, "
                "but time partitions need datetime64: give it such coordinates (other calendars by "
                "convert_calendar('standard')), or partition by static keys"
            )
        return [within(values, window) for window in self.windows]

    def select(self, values: npt.NDArray[Any]) -> Mask:
        """Return a mask of the coordinates in the extent. Raises PartitionSliceError as `parts` does."""
        mask = np.zeros(len(values), np.bool_)
        for part in self.parts(values):
            mask |= part
        return mask

    def partitions_in(self, window: TimeWindow) -> list[TimeWindow]:
        """Return the windows of single keys in one of its windows."""
        start, end = window.instants
        return [each for each in self.partitions if start <= each.instants[0] and each.instants[1] <= end]

    def position(self, values: npt.NDArray[Any], window: TimeWindow) -> int:
        """Return the position at which to insert the coordinates of a window that has none yet.

        Raises PartitionSliceError if the existing coordinates are not in order.
        """
        if len(values) > 1 and not bool((values[1:] > values[:-1]).all()):
            raise PartitionSliceError(
                f"the coordinates of dimension {self.dimension!r} are not in ascending order, "
                f"so a new partition cannot be inserted: sort the arrays by {self.dimension!r} first"
            )
        return int(np.searchsorted(values, coordinate_of(window.start)))

    def coordinates(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the keys as coordinates of a type.

        Raises PartitionSliceError for a key that is not a value of the type.
        """
        if dtype.kind in "OUT":
            return np.array(self.keys, object)
        if dtype.kind in "iu" and all(key.removeprefix("-").isdecimal() and str(int(key)) == key for key in self.keys):
            limits = np.iinfo(dtype)
            if all(limits.min <= int(key) <= limits.max for key in self.keys):
                return np.array([int(key) for key in self.keys], dtype)
        if dtype.kind == "M" and self.windows is None:
            try:
                return np.array([np.datetime64(coordinate_of(datetime.fromisoformat(key))) for key in self.keys])
            except ValueError:
                pass
        raise PartitionSliceError(
            f"partition key {self.keys[0]!r} is not a coordinate of dimension {self.dimension!r}, "
            f"which is of type {dtype}: use text, whole numbers or dates as coordinates"
        )

    def single(self) -> str | None:
        """Return the coordinate for data that lacks the dimension, or None.

        In a run of one partition that is not a time window, that is the partition key.
        """
        return self.keys[0] if len(self.keys) == 1 and self.windows is None else None

    def __str__(self) -> str:
        if self.windows is None:
            return f"{self.dimension} in {', '.join(map(repr, self.keys[:3]))}{', …' if len(self.keys) > 3 else ''}"
        return f"{coordinate_of(self.windows[0].start)} <= {self.dimension} < {coordinate_of(self.windows[-1].end)}"


@dataclass(frozen=True, slots=True)
class Region:
    """The coordinates that some partitions stand for.

    Along a dimension with an extent, these are the coordinates in the extent. Along any other dimension, these are all.
    """

    name: str
    """The name of the partitions in errors."""
    extents: tuple[Extent, ...]

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Return the dimensions that the partitions stand for."""
        return tuple(extent.dimension for extent in self.extents)


def region_of_partitions(
    partitions: Partitions, keys: Sequence[str], partition_expr: PartitionExpr, asset: str
) -> Region:
    """Return the region of some partitions.

    Args:
        partitions: The asset's partitions.
        keys: Those of the region, at least one.
        partition_expr: The dimension that they stand for, or a dict from dimension to dimension.
        asset: The name of the asset in errors.

    Raises:
        PartitionSliceError: `partition_expr` does not fit the partitions, or several partitions do not form a slab.
    """
    dimensions = partitions.columns(partition_expr)
    name = f"partition {keys[0]!r} of {asset}" if len(keys) == 1 else f"the run's {len(keys)} partitions of {asset}"
    if partitions.only is not None:
        return Region(name, (_extent(dimensions[0], partitions.only, keys),))
    tuples = partitions.tuples(keys)
    by_dimension = [sorted(set(column)) for column in zip(*tuples, strict=True)]
    if tuples != set(product(*by_dimension)):
        raise PartitionSliceError(
            f"{name} are not a slab: some combinations of {' and '.join(partitions.dimensions)} are missing. "
            "Launch one run for each partition, or for all combinations"
        )
    extents = map(_extent, dimensions, partitions.dimensions.values(), by_dimension)
    return Region(name, tuple(extents))


def _extent(name: str, dimension: Dimension, keys: Sequence[str]) -> Extent:
    unique = tuple(dict.fromkeys(map(str, keys)))
    if not dimension.is_time:
        return Extent(name, unique)
    windows = dimension.windows(unique)
    for window in windows:
        for boundary in (window.start, window.end):
            clock_time(boundary, name)
    return Extent(name, unique, tuple(windows), tuple(dimension.single_windows(unique)))


def within(values: npt.NDArray[Any], window: TimeWindow) -> Mask:
    """Return a mask of the coordinates, which are datetime64, in a time window."""
    mask: Mask = (values >= coordinate_of(window.start)) & (values < coordinate_of(window.end))
    return mask


def coordinate_of(moment: datetime) -> np.datetime64:
    """Return a boundary of a window as a coordinate.

    Coordinates have no zone, and are clock times in the definition's zone.
    """
    return np.datetime64(moment.replace(tzinfo=None), "us")
