"""How an asset's partitions lie along the dimensions of its arrays: whether the settings fit them, and which coordinates they will have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_orch.arrays.region import coordinate_of
from lake_orch.arrays.settings import APPEND_DIM, COORDINATES, ArraySettings
from lake_orch.definition_metadata import MODE, missing_partition_expr
from lake_orch.errors import InvalidDefinition
from lake_orch.tables.partition_slice import partition_columns


def with_partitions(settings: ArraySettings, partitions_def: PartitionsDefinition[str] | None, subject: str) -> ArraySettings:
    """Return settings for an asset with these partitions: frequencies become coordinates, and each partition gets chunks of its own.

    Args:
        settings: The settings, as metadata has them.
        partitions_def: The asset's partitions; None where it has none.
        subject: What errors call the asset.

    Raises:
        InvalidDefinition: The settings do not go with the partitions.
        PartitionSliceError: `partition_expr` does not fit the partitions.
    """
    if partitions_def is None:
        if settings.coordinates:
            raise InvalidDefinition(f"{COORDINATES} of {subject} has no effect: it gives partitions their places, and there are none")
        return settings
    _check_modes(settings, subject)
    dimensions = _partitions_by_dimension(partitions_def, settings.partition_expr)
    unknown = sorted(settings.coordinates.keys() - dimensions.keys())
    if unknown:
        raise InvalidDefinition(
            f"{COORDINATES} of {subject} names {unknown[0]!r}, and its partitions stand for {', '.join(dimensions)}: name one of these"
        )
    coordinates, chunks = {}, {}
    for dimension, declared in settings.coordinates.items():
        partitions = dimensions[dimension]
        coordinates[dimension] = _coordinates(declared, dimension, partitions, subject)
        if isinstance(partitions, TimeWindowPartitionsDefinition):
            chunks[dimension] = _common_length(coordinates[dimension], partitions)
    return replace(settings, coordinates=coordinates, partition_chunks=chunks)


def _check_modes(settings: ArraySettings, subject: str) -> None:
    if settings.partition_expr is None:
        raise missing_partition_expr(subject, "dimension")
    if settings.mode == "append":
        raise InvalidDefinition(
            f"{MODE} 'append' of {subject} does not go with partitions: a run replaces the region of its partitions. Use 'overwrite'"
        )
    if settings.append_dim is not None:
        raise InvalidDefinition(f"{APPEND_DIM} of {subject} has no effect: its partitions say where arrays are added")


def _partitions_by_dimension(partitions_def: PartitionsDefinition[str], partition_expr: Any) -> Mapping[str, PartitionsDefinition[str]]:
    """Return the partitions along each dimension of the arrays that they stand for."""
    columns = partition_columns(partitions_def, partition_expr)
    if not isinstance(partitions_def, MultiPartitionsDefinition):
        return {columns[0]: partitions_def}
    return {column: one.partitions_def for column, one in zip(columns, partitions_def.partitions_defs, strict=True)}


def _coordinates(declared: Any, dimension: str, partitions: PartitionsDefinition[str], subject: str) -> Any:
    """Return declared coordinates; of a frequency those that lie in any time window."""
    if not isinstance(declared, str):
        return declared
    import xarray as xr  # needs the extra `arrays`

    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        raise InvalidDefinition(
            f"{COORDINATES} of {subject} gives {dimension!r} the frequency {declared!r}, which is for time partitions: list the coordinates"
        )
    end = partitions.end
    if end is None:
        raise InvalidDefinition(
            f"{COORDINATES} of {subject} gives {dimension!r} the frequency {declared!r}, and its partitions never end: give them "
            f"an end_date, or leave {COORDINATES} out"
        )
    try:
        times = xr.date_range(str(coordinate_of(partitions.start)), str(coordinate_of(end)), freq=declared, inclusive="left")
    except ValueError:
        raise InvalidDefinition(
            f"{COORDINATES} of {subject} gives {dimension!r} the frequency {declared!r}: use one of pandas, such as 'h', '15min' or 'D'"
        ) from None
    return times.to_numpy()


def _common_length(coordinates: Any, partitions: TimeWindowPartitionsDefinition) -> int:
    """Return the longest chunk, in coordinates, that ends where each of the time windows does."""
    values: npt.NDArray[Any] = np.asarray(coordinates)
    if values.dtype.kind != "M" or partitions.end is None:
        return 0
    starts = [coordinate_of(partitions.time_window_for_partition_key(key).start) for key in _keys(partitions)]
    places = np.searchsorted(values, np.array([*starts, coordinate_of(partitions.end)]))
    return math.gcd(*(int(stop - start) for start, stop in pairwise(places)))


def _keys(partitions: TimeWindowPartitionsDefinition) -> list[str]:
    """Return the keys of all windows, those that lie in the future as well."""
    return list(partitions.get_partition_keys(current_time=partitions.end))
