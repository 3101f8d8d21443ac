"""Partitions along the dimensions of arrays: validation of the settings, and the coordinates of the partitions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lake_orch.assets.arrays.region import coordinate_of
from lake_orch.assets.arrays.settings import APPEND_DIM, COORDINATES, ArraySettings
from lake_orch.assets.partitions import Dimension, Partitions
from lake_orch.definition_metadata import MODE, missing_partition_expr
from lake_orch.errors import InvalidDefinition


def with_partitions(settings: ArraySettings, partitions: Partitions | None, subject: str) -> ArraySettings:
    """Return settings for an asset with these partitions.

    Frequencies become coordinates, and each partition gets chunks of its own.

    Args:
        settings: The settings in the metadata.
        partitions: The asset's partitions, or None.
        subject: The name of the asset in errors.

    Raises:
        InvalidDefinition: The settings do not fit the partitions.
        PartitionSliceError: `partition_expr` does not fit the partitions.
    """
    if partitions is None:
        if settings.coordinates:
            raise InvalidDefinition(
                f"{COORDINATES} of {subject} has no effect, because the asset is not partitioned: remove it"
            )
        return settings
    _check_modes(settings, subject)
    columns = partitions.columns(settings.partition_expr)
    dimensions = dict(zip(columns, partitions.dimensions.values(), strict=True))
    unknown = sorted(settings.coordinates.keys() - dimensions.keys())
    if unknown:
        raise InvalidDefinition(
            f"{COORDINATES} of {subject} names {unknown[0]!r}, but its partitions stand for {', '.join(dimensions)}: "
            "name one of these"
        )
    coordinates, chunks = {}, {}
    for dimension, declared in settings.coordinates.items():
        coordinates[dimension] = declared
        windows = _windows(dimensions[dimension])
        if isinstance(declared, str):
            error_prefix = f"{COORDINATES} of {subject} gives {dimension!r} the frequency {declared!r}"
            coordinates[dimension] = _coordinates(declared, dimensions[dimension], windows, error_prefix)
        if windows is not None:
            chunks[dimension] = _common_length(coordinates[dimension], windows)
    return replace(settings, coordinates=coordinates, partition_chunks=chunks)


def _check_modes(settings: ArraySettings, subject: str) -> None:
    if settings.partition_expr is None:
        raise missing_partition_expr(subject, "dimension")
    if settings.mode == "append":
        raise InvalidDefinition(
            f"{MODE} 'append' of {subject} does not go with partitions: "
            "a run replaces the region of its partitions. Use 'overwrite'"
        )
    if settings.append_dim is not None:
        raise InvalidDefinition(
            f"{APPEND_DIM} of {subject} has no effect, because its partitions decide where arrays are added: remove it"
        )
    has_room = settings.coordinates or not isinstance(settings.partition_expr, str)
    if settings.mode in ("error", "ignore") and has_room:
        raise InvalidDefinition(
            f"{MODE} {settings.mode!r} of {subject} cannot tell which partitions are there: with {COORDINATES}, or "
            "with partitions of several dimensions, the arrays have room for some that nobody has written. Use "
            "'overwrite'"
        )


@dataclass(frozen=True, slots=True)
class _Windows:
    """The bounds of all time windows as coordinates, in order, including windows in the future."""

    starts: npt.NDArray[np.datetime64]
    ends: npt.NDArray[np.datetime64]


def _windows(dimension: Dimension) -> _Windows | None:
    """Return the windows of time partitions with an end, or None for other partitions."""
    if dimension.list_windows is None:
        return None
    windows = dimension.list_windows()
    starts, ends = (
        [coordinate_of(window.start) for window in windows],
        [coordinate_of(window.end) for window in windows],
    )
    # Clock times occur twice when clocks are set back.
    return _Windows(np.sort(np.array(starts, "M8[us]")), np.sort(np.array(ends, "M8[us]")))


def _coordinates(frequency: str, dimension: Dimension, windows: _Windows | None, error_prefix: str) -> npt.NDArray[Any]:
    """Return the coordinates of a frequency, from the start of the first time window to the end of the last.

    Args:
        frequency: A frequency of pandas.
        dimension: The partitions along the dimension.
        windows: Their windows.
        error_prefix: The start of error messages.

    Raises:
        InvalidDefinition: The frequency gives the partitions no coordinates.
    """
    import xarray as xr  # needs the extra `arrays`

    if not dimension.is_time:
        raise InvalidDefinition(f"{error_prefix}, which is for time partitions: list the coordinates")
    if windows is None:
        raise InvalidDefinition(
            f"{error_prefix}, and its partitions never end: give them an end_date, "
            f"list the coordinates, or leave {COORDINATES} out"
        )
    if not len(windows.starts):
        raise InvalidDefinition(
            f"{error_prefix}, and there is no whole partition before the end_date: choose a later one"
        )
    start, end = str(windows.starts[0]), str(windows.ends[-1])
    try:
        times = xr.date_range(start, end, freq=frequency, inclusive="left", use_cftime=False)
    except (ValueError, ZeroDivisionError):
        raise InvalidDefinition(f"{error_prefix}: use one of pandas, such as 'h', '15min' or 'D'") from None
    if not len(times):
        raise InvalidDefinition(
            f"{error_prefix}, which has no time from {start} to {end}: use one such as 'h', '15min' or 'D'"
        )
    coordinates: npt.NDArray[Any] = times.to_numpy()
    return coordinates


def _common_length(coordinates: Any, windows: _Windows) -> int:
    """Return the largest number of coordinates in a chunk with which each chunk holds at most one time window.

    Return 0 if the coordinates are not times.
    """
    values: npt.NDArray[Any] = np.asarray(coordinates)
    if values.dtype.kind != "M":
        return 0
    # Two coordinates are in the same window if the same numbers of windows have started and ended at both of them.
    passed = np.stack([np.searchsorted(bounds, values, side="right") for bounds in (windows.starts, windows.ends)])
    changes = np.flatnonzero((passed[:, 1:] != passed[:, :-1]).any(axis=0)) + 1
    return math.gcd(*changes.tolist(), len(values))
