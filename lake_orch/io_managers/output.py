"""The producer and the partitions of an output, from Dagster's context."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import OutputContext

from lake_orch.errors import PartitionSliceError


def producer_name(context: OutputContext) -> str:
    """Return the name of the output's asset, or of its step, for errors."""
    return f"asset {context.asset_key.to_user_string()}" if context.has_asset_key else f"step {context.step_key}"


def output_partitions(context: OutputContext) -> Sequence[str]:
    """Return the partitions of an output. Empty if the asset is not partitioned.

    Raises PartitionSliceError for a partitioned asset in a run without partitions.
    """
    if context.has_asset_partitions:
        return list(context.asset_partition_keys)
    if context.has_asset_key and context.asset_spec.partitions_def is not None:
        # Dagster would run this as if the asset were not partitioned, and the write would replace all partitions.
        raise PartitionSliceError(
            f"{producer_name(context)} is partitioned, but this run is for no partition of it: launch it with a partition"
        )
    return ()
