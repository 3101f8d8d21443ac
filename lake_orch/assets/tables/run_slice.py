"""The slice of a table that a run writes: its partitions, and the rows that `lake/replace_where` selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lake_orch.assets.partitions import Partitions
from lake_orch.assets.tables.merge_settings import TARGET, MergeSettings
from lake_orch.assets.tables.partition_slice import slice_where
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard, guard_of_partitions
from lake_orch.assets.tables.settings import TableSettings


@dataclass(frozen=True, slots=True)
class RunSlice:
    """The part of a table that one write may change."""

    partitions: str | None = None
    """The SQL of the run's partitions, or None if the asset is not partitioned."""
    guard: PartitionGuard | None = None
    """The guard against rows outside the slice, or None if the whole table may be written."""
    merge: MergeSettings | None = None
    """The asset's merge, restricted to the partitions."""


def slice_of_partitions(
    settings: TableSettings, asset: str, schema: pa.Schema, partitions: Partitions, keys: Sequence[str]
) -> RunSlice:
    """Return the slice that a run of some partitions writes.

    Args:
        settings: The settings in the asset's metadata, with the columns that partitions stand for and the merge.
        asset: The name of the asset in errors.
        schema: The table's schema. Literals have the types of its columns.
        partitions: The asset's partitions.
        keys: The run's partitions.

    Raises:
        PartitionSliceError: A key is not a value of its column.
        InvalidDefinition: The merge would write outside the partitions.
    """
    where = slice_where(partitions, keys, settings.partition_expr, schema)
    columns = partitions.columns(settings.partition_expr)
    guard = guard_of_partitions(where, keys, asset, partitions, columns, schema, settings.replace_where)
    if settings.merge is None:
        return RunSlice(where, guard)
    target = slice_where(partitions, keys, settings.partition_expr, schema, relation=TARGET)
    return RunSlice(where, guard, settings.merge.within(columns, target))


def slice_without_partitions(settings: TableSettings, asset: str) -> RunSlice:
    """Return the slice that a run of an asset without partitions writes."""
    if settings.replace_where is None:
        return RunSlice(merge=settings.merge)
    name = f"lake/replace_where {settings.replace_where!r} of {asset}"
    guard = PartitionGuard(settings.replace_where, name, "Filter the rows, or widen the predicate. Nothing was written")
    return RunSlice(None, guard, settings.merge)
