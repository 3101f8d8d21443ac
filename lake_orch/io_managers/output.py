"""The producer, the partitions and the path of an output, from Dagster's context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dagster import DagsterInvariantViolationError, DataVersion, OutputContext

from lake_orch.assets.asset_format import AssetOutput
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.owner import owner_of_output
from lake_orch.dagster.partitions import partitions_of
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


def described_output(context: OutputContext) -> AssetOutput:
    """Describe an output of a run. Raises PartitionSliceError for a partitioned asset in a run without partitions."""
    keys = [str(key) for key in output_partitions(context)]
    return replace(
        upstream_output(context),
        partitions=partitions_of(context.asset_partitions_def) if context.has_asset_partitions else None,
        keys=keys,
        owner=owner_of_output(context),
        upstream=[tuple(dep.asset_key.path) for dep in context.asset_spec.deps] if context.has_asset_key else (),
    )


def upstream_output(context: OutputContext) -> AssetOutput:
    """Describe the definition of an output, also of one that another run wrote."""
    return AssetOutput(
        producer=producer_name(context),
        asset_key=context.asset_key.path if context.has_asset_key else None,
        metadata=plain_metadata(context.definition_metadata or {}),
        mapping_keys=mapping_keys(context),
    )


def set_data_version(context: OutputContext, version: str) -> None:
    """Set the data version of an asset's output. An op's output has none."""
    if context.has_asset_key:
        context.step_context.set_data_version(context.asset_key, DataVersion(version))
