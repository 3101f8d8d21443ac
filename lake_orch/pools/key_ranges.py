"""The ranges of a pool's key that Dagster partitions stand for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_core.pool.key_range import KeyRange
from lake_orch.errors import PartitionSliceError


def ranges_of_partitions(partitions_def: PartitionsDefinition, keys: Sequence[str], asset: str) -> list[KeyRange]:
    """Return the ranges of some partitions. Time windows are in order, with neighbors joined.

    The range of a time window has its start, but not its end. Any other partition stands for one key, as text, and also
    as a number if the text is a whole number.

    Raises PartitionSliceError for partitions of several dimensions, because a pool has one key.
    """
    check_partitions(partitions_def, asset)
    unique = list(dict.fromkeys(str(key) for key in keys))
    if isinstance(partitions_def, TimeWindowPartitionsDefinition):
        return [KeyRange.of(start, end) for start, end in _windows(partitions_def, unique)]
    return [key_range for key in unique for key_range in _ranges_of_key(key)]


def check_partitions(partitions_def: PartitionsDefinition, asset: str) -> None:
    """Raise PartitionSliceError for partitions that cannot stand for ranges of one key."""
    if isinstance(partitions_def, MultiPartitionsDefinition):
        raise PartitionSliceError(
            f"{asset} is partitioned by several dimensions, and a pool is sorted by one key: "
            "partition it by the dimension of the key"
        )


def _windows(partitions_def: TimeWindowPartitionsDefinition, keys: Sequence[str]) -> list[tuple[datetime, datetime]]:
    windows: list[tuple[datetime, datetime]] = []
    for window in sorted(
        {partitions_def.time_window_for_partition_key(key) for key in keys}, key=lambda window: window.start
    ):
        start, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
        if windows and windows[-1][1] == start:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return windows


def _ranges_of_key(key: str) -> Iterator[KeyRange]:
    yield KeyRange.of(key, f"{key}\0")
    if key.removeprefix("-").isdecimal() and str(int(key)) == key and abs(int(key)) < 1 << 53:
        yield KeyRange.of(int(key), math.nextafter(float(key), math.inf))
