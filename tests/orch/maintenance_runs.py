"""Runs of maintenance tasks, and what they say."""

from __future__ import annotations

from typing import Any

import dagster as dg

from lake_orch import LakeResource


def asset_of(defs: dg.Definitions, task: str) -> dg.AssetsDefinition:
    assets = [asset for asset in defs.assets or () if isinstance(asset, dg.AssetsDefinition)]
    return next(asset for asset in assets if next(iter(asset.keys)).path[:2] == ["maintenance", task])


def run(
    defs: dg.Definitions,
    task: str,
    resource: LakeResource,
    instance: dg.DagsterInstance,
    config: dict[str, Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """Run a task on all tables at once; what it says of each."""
    asset = asset_of(defs, task)
    keys = asset.partitions_def.get_partition_keys() if asset.partitions_def else []
    tags = (
        {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]} if keys else {}
    )
    run_config = {"ops": {"__".join(asset.key.path): {"config": config}}} if config else None
    result = dg.materialize([asset], resources={"lake": resource}, instance=instance, tags=tags, run_config=run_config)
    assert result.success
    events = result.asset_materializations_for_node("__".join(asset.key.path))
    return {str(event.partition): {name: value.value for name, value in event.metadata.items()} for event in events}
