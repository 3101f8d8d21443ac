"""The ranges of a pool's key that partitions stand for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC

from lake_core.pool.key_range import KeyRange
from lake_orch.assets.partitions import Dimension, Partitions
from lake_orch.errors import PartitionSliceError


def ranges_of_partitions(partitions: Partitions, keys: Sequence[str], asset: str) -> list[KeyRange]:
    """Return the ranges of some partitions. Time windows are in order, with neighbors joined.

    The range of a time window has its start, but not its end. Any other partition stands for one key, as text, and also
    as a number if the text is a whole number.

    Raises PartitionSliceError for partitions of several dimensions, because a pool has one key.
    """
    dimension = only_dimension(partitions, asset)
    unique = list(dict.fromkeys(str(key) for key in keys))
    if dimension.is_time:
        return [
            KeyRange.of(window.start.astimezone(UTC), window.end.astimezone(UTC))
            for window in dimension.windows(unique)
        ]
    return [key_range for key in unique for key_range in _ranges_of_key(key)]


def only_dimension(partitions: Partitions, asset: str) -> Dimension:
    """Return the dimension of partitions that stand for ranges of one key. Raises PartitionSliceError for several."""
    if partitions.only is None:
        raise PartitionSliceError(
            f"{asset} is partitioned by several dimensions, and a pool is sorted by one key: "
            "partition it by the dimension of the key"
        )
    return partitions.only


def _ranges_of_key(key: str) -> Iterator[KeyRange]:
    yield KeyRange.of(key, f"{key}\0")
    if key.removeprefix("-").isdecimal() and str(int(key)) == key and abs(int(key)) < 1 << 53:
        yield KeyRange.of(int(key), math.nextafter(float(key), math.inf))
