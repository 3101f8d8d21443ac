"""The producer, the partitions and the path of an output, from Dagster's context, and reports of its write."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dagster import DagsterInvariantViolationError, DataVersion, OutputContext

from lake_core.workspace import STAGED, Receipt
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
            f"{producer_name(context)} is partitioned, but this run is for no partition of it: "
            "launch it with a partition"
        )
    return ()


def output_path(context: OutputContext, path: str) -> str:
    """Return the path where an output is stored, from the path of its asset."""
    return "/".join([path, *mapping_keys(context)])


def mapping_keys(output: OutputContext) -> Sequence[str]:
    """Return the mapping keys of an output: that of a mapped step, and its own if it is a dynamic output."""
    try:
        mapped = _MAPPED.search(output.step_key)
    except DagsterInvariantViolationError:
        # The value of an asset is loaded outside of a run.
        mapped = None
    return [key for key in (mapped[1] if mapped else None, output.mapping_key) if key is not None]


_MAPPED = re.compile(r"\[(.+)\]$")


def describe_write(size: str, url: str, version: str, receipt: Receipt | None, *, skipped: bool) -> str:
    """Describe a write for the log.

    Args:
        size: What was written, such as `3 records (120 B)`.
        url: Where it was written.
        version: The state that contains it, such as `commit …`.
        receipt: The receipt of a write to a lake.
        skipped: An earlier attempt wrote it.
    """
    if skipped:
        return f"an earlier attempt committed it to {url}: nothing written"
    if receipt is not None and receipt.state == STAGED:
        return f"{size} staged for {url}, to be published with session {receipt.session}"
    return f"{size} to {url}, {version}"


def set_data_version(context: OutputContext, version: str) -> None:
    """Set the data version of an asset's output. An op's output has none."""
    if context.has_asset_key:
        context.step_context.set_data_version(context.asset_key, DataVersion(version))
