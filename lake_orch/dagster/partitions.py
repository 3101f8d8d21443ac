"""Dagster's partitions definitions, in the words of the lane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from dagster import MultiPartitionsDefinition, PartitionsDefinition, TimeWindowPartitionsDefinition

from lake_orch.assets.partitions import Dimension, PartitionExpr, Partitions, TimeWindow
from lake_orch.assets.tables import partition_slice


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


def slice_where(
    partitions_def: PartitionsDefinition,
    keys: Iterable[str],
    partition_expr: PartitionExpr,
    schema: pa.Schema,
    *,
    relation: str | None = None,
) -> str:
    """Return the predicate that holds for the rows of these partitions and no others.

    Args:
        partitions_def: The definition of the partitions.
        keys: The partitions.
        partition_expr: The column that they stand for, or a dict from dimension to column.
        schema: The table's schema, or that of the data before the table exists. Literals have the type of the column.
        relation: An alias that qualifies the columns, as in a merge.

    Raises:
        PartitionSliceError: No exact predicate exists. A wider one would overwrite rows of other partitions.
    """
    return partition_slice.slice_where(partitions_of(partitions_def), keys, partition_expr, schema, relation=relation)
