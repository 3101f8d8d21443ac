"""Dagster's partitions definitions, in the words of the lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_orch.assets.partitions import Dimension, Partitions, TimeWindow


def partitions_of(definition: PartitionsDefinition) -> Partitions:
    """Return the partitions that a definition defines."""
    if not isinstance(definition, MultiPartitionsDefinition):
        return Partitions({"": _dimension(definition)}, lambda key: {"": key})

    def split(key: str) -> Mapping[str, str]:
        parsed: Mapping[str, str] = definition.get_partition_key_from_str(key).keys_by_dimension
        return parsed

    return Partitions({each.name: _dimension(each.partitions_def) for each in definition.partitions_defs}, split)


def _dimension(definition: PartitionsDefinition) -> Dimension:
    if not isinstance(definition, TimeWindowPartitionsDefinition):
        return Dimension()

    def window_of(key: str) -> TimeWindow:
        window = definition.time_window_for_partition_key(key)
        return TimeWindow(window.start, window.end)

    def list_windows() -> Sequence[TimeWindow]:
        return [window_of(key) for key in definition.get_partition_keys(current_time=definition.end)]

    return Dimension(window_of, None if definition.end is None else list_windows)
