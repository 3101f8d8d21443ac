"""The table of a step's only asset, for the handle that the step's code gets."""

from __future__ import annotations

from typing import Any

from lake_orch.assets.owner import Owner
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.owner import owner_of_asset
from lake_orch.dagster.runs.attempt import StepContext
from lake_orch.definition_metadata import Ownership, read_ownership
from lake_orch.errors import InvalidDefinition
from lake_orch.location import table_path


def own_path(context: StepContext) -> str:
    """Return the path of the table. Raises InvalidDefinition for a step without exactly one asset."""
    if not context.has_assets_def or len(context.assets_def.keys) != 1:
        raise InvalidDefinition("this step does not have exactly one asset: name the table's path")
    key = context.assets_def.key
    metadata: dict[str, Any] = dict(context.assets_def.metadata_by_key.get(key, {}))
    return table_path(key.path, metadata)


def own_table(context: StepContext) -> tuple[Owner, Ownership] | None:
    """Return the owner and the ownership setting for the table of a step's only asset."""
    if not context.has_assets_def or len(context.assets_def.keys) != 1:
        return None
    key = context.assets_def.key
    metadata = context.assets_def.metadata_by_key.get(key, {})
    return owner_of_asset(key, context.run), read_ownership(plain_metadata(metadata), f"asset {key.to_user_string()}")
