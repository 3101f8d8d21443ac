"""What Dagster says of an output: what errors call its asset or step, and its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from dagster import OutputContext

from lake_orch.errors import PartitionSliceError


def producer_name(context: OutputContext) -> str:
    """Name the asset, or the step, whose output it is."""
    return f"asset {context.asset_key.to_user_string()}" if context.has_asset_key else f"step {context.step_key}"


def output_partitions(context: OutputContext) -> Sequence[str]:
    """Return the partitions that an output is for; none where nothing is partitioned.

    Raises PartitionSliceError for a partitioned asset in a run without partitions.
    """
    if context.has_asset_partitions:
        return list(context.asset_partition_keys)
    if context.has_asset_key and context.asset_spec.partitions_def is not None:
        # Dagster runs this as if the asset were not partitioned, and all of it would be replaced.
        raise PartitionSliceError(
            f"{producer_name(context)} is partitioned, but this run is for no partition of it: launch it with a partition"
        )
    return ()
