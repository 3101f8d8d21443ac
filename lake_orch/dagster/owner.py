"""The owner of what an asset of Dagster writes."""

from __future__ import annotations

from dataclasses import replace

from dagster import AssetKey, DagsterRun, OutputContext

from lake_orch.assets.owner import Owner


def owner_of_output(context: OutputContext) -> Owner | None:
    """Return the asset of an output, or None for an output of an op."""
    if not context.has_asset_key:
        return None
    owner = owner_of_asset(context.asset_key, context.step_context.dagster_run)
    return replace(owner, is_partitioned=context.has_asset_partitions)


def owner_of_asset(key: AssetKey, run: DagsterRun) -> Owner:
    """Return the owner for an asset, with the code location that the run was launched through."""
    origin = run.remote_job_origin
    return Owner(key.to_user_string(), None if origin is None else origin.location_name)
