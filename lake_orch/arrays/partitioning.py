"""Partitions along the dimensions of arrays: validation of the settings, and the coordinates of the partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_orch.arrays.region import coordinate_of
from lake_orch.arrays.settings import APPEND_DIM, COORDINATES, ArraySettings
from lake_orch.definition_metadata import MODE, missing_partition_expr
from lake_orch.errors import InvalidDefinition
from lake_orch.tables.partition_slice import partition_columns


def with_partitions(
    settings: ArraySettings, partitions_def: PartitionsDefinition[str] | None, subject: str
) -> ArraySettings:
    """Return settings for an asset with these partitions.

    Frequencies become coordinates, and each partition gets chunks of its own.

    Args:
        settings: The settings in the metadata.
        partitions_def: The asset's partitions, or None.
        subject: The name of the asset in errors.

    Raises:
        InvalidDefinition: The settings do not fit the partitions.
        PartitionSliceError: `partition_expr` does not fit the partitions.
    """
    if partitions_def is None:
        if settings.coordinates:
            raise InvalidDefinition(
                f"{COORDINATES} of {subject} has no effect, because the asset is not partitioned: remove it"
            )
        return settings
    _check_modes(settings, subject)
    dimensions = _partitions_by_dimension(partitions_def, settings.partition_expr)
    unknown = sorted(settings.coordinates.keys() - dimensions.keys())
    if unknown:
        raise InvalidDefinition(
            f"{COORDINATES} of {subject} names {unknown[0]!r}, but its partitions stand for {', '.join(dimensions)}: "
            "name one of these"
        )
    coordinates, chunks = {}, {}
    for dimension, declared in settings.coordinates.items():
        partitions = dimensions[dimension]
        coordinates[dimension] = declared
        windows = _windows(partitions)
        if isinstance(declared, str):
            error_prefix = f"{COORDINATES} of {subject} gives {dimension!r} the frequency {declared!r}"
            coordinates[dimension] = _coordinates(declared, partitions, windows, error_prefix)
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


def _partitions_by_dimension(
    partitions_def: PartitionsDefinition[str], partition_expr: Any
) -> Mapping[str, PartitionsDefinition[str]]:
    """Return the partitions along each dimension of the arrays that they stand for."""
    columns = partition_columns(partitions_def, partition_expr)
    if not isinstance(partitions_def, MultiPartitionsDefinition):
        return {columns[0]: partitions_def}
    return {
        column: definition.partitions_def
        for column, definition in zip(columns, partitions_def.partitions_defs, strict=True)
    }


@dataclass(frozen=True, slots=True)
class _Windows:
    """The bounds of all time windows as coordinates, in order, including windows in the future."""

    starts: npt.NDArray[np.datetime64]
    ends: npt.NDArray[np.datetime64]


def _windows(partitions: PartitionsDefinition[str]) -> _Windows | None:
    """Return the windows of time partitions with an end, or None for other partitions."""
    if not isinstance(partitions, TimeWindowPartitionsDefinition) or partitions.end is None:
        return None
    windows = [
        partitions.time_window_for_partition_key(key)
        for key in partitions.get_partition_keys(current_time=partitions.end)
    ]
    starts, ends = (
        [coordinate_of(window.start) for window in windows],
        [coordinate_of(window.end) for window in windows],
    )
    # Clock times occur twice when clocks are set back.
    return _Windows(np.sort(np.array(starts, "M8[us]")), np.sort(np.array(ends, "M8[us]")))


def _coordinates(
    frequency: str, partitions: PartitionsDefinition[str], windows: _Windows | None, error_prefix: str
) -> npt.NDArray[Any]:
    """Return the coordinates of a frequency, from the start of the first time window to the end of the last.

    Args:
        frequency: A frequency of pandas.
        partitions: The partitions along the dimension.
        windows: Their windows.
        error_prefix: The start of error messages.

    Raises:
        InvalidDefinition: The frequency gives the partitions no coordinates.
    """
    import xarray as xr  # needs the extra `arrays`

    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        raise InvalidDefinition(f"{error_prefix}, which is for time partitions: list the coordinates")
    if windows is None:
        raise InvalidDefinition(
            f"{error_prefix}, and its partitions never end: give them an end_date, or leave {COORDINATES} out"
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
