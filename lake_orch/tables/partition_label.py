"""Short labels of partitions for log lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dagster import PartitionsDefinition, TimeWindowPartitionsDefinition

_MOST_NAMED = 3


def partition_label(partitions_def: PartitionsDefinition, keys: Sequence[str]) -> str:
    """Return a label: a few keys, the first and last of contiguous windows, or the number of partitions."""
    unique = list(dict.fromkeys(keys))
    if len(unique) == 1:
        return f"partition {unique[0][:100]}"
    if isinstance(partitions_def, TimeWindowPartitionsDefinition) and len(unique) > 1:
        windows = sorted((partitions_def.time_window_for_partition_key(key), key) for key in unique)
        if all(before.end == after.start for (before, _), (after, _) in pairwise(windows)):
            return f"partitions {windows[0][1]} to {windows[-1][1]} ({len(unique)})"
    if 0 < len(unique) <= _MOST_NAMED:
        return f"partitions {', '.join(key[:100] for key in unique)}"
    return f"{len(unique)} partitions"
