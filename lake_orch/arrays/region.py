"""The region of arrays that Dagster partitions stand for: a slab along dimension coordinates.

The metadata `partition_expr` names the dimension, or is a dict from each dimension of the partitions to one of the
arrays. A time window contains the coordinates from its start up to its end. The end is excluded. Any other key is one
coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_orch.errors import PartitionSliceError
from lake_orch.tables.partition_slice import PartitionExpr, partition_columns

Mask: TypeAlias = "npt.NDArray[np.bool_]"
Window: TypeAlias = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of a region along one dimension: time windows, or single coordinates."""

    dimension: str
    keys: tuple[str, ...]
    windows: tuple[Window, ...] | None = None
    """The time windows, sorted and without overlaps, or None if each key is a coordinate."""

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
        return [(values >= coordinate_of(start)) & (values < coordinate_of(end)) for start, end in self.windows]

    def select(self, values: npt.NDArray[Any]) -> Mask:
        """Return a mask of the coordinates in the extent. Raises PartitionSliceError as `parts` does."""
        mask = np.zeros(len(values), np.bool_)
        for part in self.parts(values):
            mask |= part
        return mask

    def position(self, values: npt.NDArray[Any], window: Window) -> int:
        """Return the position at which to insert the coordinates of a window that has none yet.

        Raises PartitionSliceError if the existing coordinates are not in order.
        """
        if len(values) > 1 and not bool((values[1:] > values[:-1]).all()):
            raise PartitionSliceError(
                f"the coordinates of dimension {self.dimension!r} are not in ascending order, "
                f"so a new partition cannot be inserted: sort the arrays by {self.dimension!r} first"
            )
        return int(np.searchsorted(values, coordinate_of(window[0])))

    def coordinates(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the keys as coordinates of a type.

        Raises PartitionSliceError for a key that is not a value of the type.
        """
        if dtype.kind in "OUT":
            return np.array(self.keys, object)
        if dtype.kind in "iu" and all(key.removeprefix("-").isdecimal() and str(int(key)) == key for key in self.keys):
            return np.array([int(key) for key in self.keys], np.int64)
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
        return f"{coordinate_of(self.windows[0][0])} <= {self.dimension} < {coordinate_of(self.windows[-1][1])}"


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
    partitions_def: PartitionsDefinition, keys: Sequence[str], partition_expr: PartitionExpr, asset: str
) -> Region:
    """Return the region of some partitions.

    Args:
        partitions_def: The definition of the partitions.
        keys: The partitions, at least one.
        partition_expr: The dimension that they stand for, or a dict from dimension to dimension.
        asset: The name of the asset in errors.

    Raises:
        PartitionSliceError: `partition_expr` does not fit the partitions, or several partitions do not form a slab.
    """
    dimensions = partition_columns(partitions_def, partition_expr)
    name = f"partition {keys[0]!r} of {asset}" if len(keys) == 1 else f"the run's {len(keys)} partitions of {asset}"
    if not isinstance(partitions_def, MultiPartitionsDefinition):
        return Region(name, (_extent(dimensions[0], partitions_def, keys),))
    parsed: list[Mapping[str, str]] = [partitions_def.get_partition_key_from_str(key).keys_by_dimension for key in keys]
    by_dimension = {
        dimension_def.name: sorted({key[dimension_def.name] for key in parsed})
        for dimension_def in partitions_def.partitions_defs
    }
    tuples = {tuple(key[name] for name in by_dimension) for key in parsed}
    if tuples != set(product(*by_dimension.values())):
        raise PartitionSliceError(
            f"{name} are not a slab: some combinations of {' and '.join(by_dimension)} are missing. "
            "Launch one run for each partition, or for all combinations"
        )
    extents = (
        _extent(dimension, dimension_def.partitions_def, by_dimension[dimension_def.name])
        for dimension, dimension_def in zip(dimensions, partitions_def.partitions_defs, strict=True)
    )
    return Region(name, tuple(extents))


def _extent(dimension: str, partitions_def: PartitionsDefinition, keys: Sequence[str]) -> Extent:
    unique = tuple(dict.fromkeys(str(key) for key in keys))
    if not isinstance(partitions_def, TimeWindowPartitionsDefinition):
        return Extent(dimension, unique)
    windows: list[Window] = []
    for start, end in sorted(
        (window.start, window.end) for window in map(partitions_def.time_window_for_partition_key, unique)
    ):
        if windows and windows[-1][1] == start:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    for window in windows:
        _check_clock(window, dimension)
    return Extent(dimension, unique, tuple(windows))


def _check_clock(window: Window, dimension: str) -> None:
    """Raise PartitionSliceError for a window that starts or ends where clocks are set back.

    Its clock times occur twice.
    """
    start, end = window
    if start.fold or end.fold or coordinate_of(end) <= coordinate_of(start):
        raise PartitionSliceError(
            f"clocks are set back between {start} and {end}: "
            f"times along {dimension!r} are then those of two partitions. Define the partitions in UTC (timezone=)"
        )


def coordinate_of(moment: datetime) -> np.datetime64:
    """Return a boundary of a window as a coordinate.

    Coordinates have no zone, and are clock times in the definition's zone.
    """
    return np.datetime64(moment.replace(tzinfo=None), "us")
