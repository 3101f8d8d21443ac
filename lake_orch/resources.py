"""The lake's root with its credentials, as a Dagster resource."""

import os
from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from dagster import AssetExecutionContext, ConfigurableResource, EnvVar, OpExecutionContext
from pydantic import Field

from lake_core.store import open_store
from lake_orch.errors import InvalidDefinition
from lake_orch.lineage import step_lineage
from lake_orch.location import checked_path, table_path
from lake_orch.marker import app_id
from lake_orch.spark_resource import SparkResource
from lake_orch.table_handle import LakeTable
from lake_orch.table_writer import TableWriter

__all__ = ["LakeResource", "SparkResource", "StepContext"]

StepContext: TypeAlias = AssetExecutionContext | OpExecutionContext


class LakeResource(ConfigurableResource):  # type: ignore[type-arg]
    """The root of a lake: a local folder or a bucket, and what opens it.

    Example:
        .. code-block:: python

            lake = LakeResource(
                root="s3://bucket/lake",
                storage_options={"key": dg.EnvVar("S3_KEY"), "secret": dg.EnvVar("S3_SECRET")},
            )

            @dg.asset
            def events(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
                table = lake.table(context)
                for page in pages():                 # each page exactly once, however often the step is retried
                    table.append(page)
                return dg.MaterializeResult(metadata=table.metadata())
    """

    root: str = Field(description="URL or local path of the lake's root folder.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        description="fsspec's options for the root. Give secrets as EnvVar: Dagster shows other values in its UI.",
        repr=False,
    )

    def url(self, path: str) -> str:
        """The URL of a path below the root."""
        return f"{self.root.rstrip('/')}/{checked_path(path)}"

    def options(self) -> dict[str, Any]:
        """`storage_options` with the values of its environment variables, at any depth. Raises InvalidDefinition if one is not set."""
        return dict(_from_environment(self.storage_options))

    def writer(self, path: str, *, partition_by: Sequence[str] = ()) -> TableWriter:
        """What writes to the table at a path below the root."""
        return TableWriter(self.url(path), self.options() or None, tuple(partition_by))

    def table(self, context: StepContext, path: str | None = None, *, partition_by: Sequence[str] = ()) -> LakeTable:
        """The table for the code of one step to write and read by itself.

        Args:
            context: the step's context.
            path: relative to the root; by default where the asset's table lies.
            partition_by: the partition columns, used when the table is created.

        Asking again in the same attempt gives the same handle, through whatever resource, so batches count on.

        Raises InvalidDefinition for a path outside the root, and where none is given by a step with more than one asset, or none.
        """
        path = checked_path(path) if path is not None else _own_path(context)
        step = context.get_step_execution_context()
        writer = self.writer(path, partition_by=partition_by)
        handles = _handles.setdefault(step, {})
        place = (open_store(writer.url, storage_options=writer.storage_options).url(), context.retry_number)
        if place not in handles:
            keys = _partition_keys(context)
            lineage = step_lineage(context.instance, context.run, step.step.key)
            marker = app_id(lineage, step.step.key, partition_keys=keys)
            handles[place] = LakeTable(writer, path, marker, context.log, one_partition=len(keys) == 1)
        return handles[place]


# A step may reach one table through several resources on the same root. If each counted its batches from one, the second
# to write would be taken for a retry of the first. So the handles belong to the step, and go with it.
_handles: WeakKeyDictionary[object, dict[tuple[str, int], LakeTable]] = WeakKeyDictionary()


def _from_environment(value: Any) -> Any:
    """Options with each EnvVar in them, at any depth, replaced by its value. Dagster itself does so only for flat text."""
    if isinstance(value, EnvVar):
        value = {"env": value.env_var_name}
    if not isinstance(value, dict):
        return value
    if set(value) != {"env"}:
        return {key: _from_environment(child) for key, child in value.items()}
    name = value["env"]
    if name not in os.environ:
        raise InvalidDefinition(f"storage_options take a value from the environment variable {name}, which is not set")
    return os.environ[name]


def _own_path(context: StepContext) -> str:
    if not context.has_assets_def or len(context.assets_def.keys) != 1:
        raise InvalidDefinition("this step does not stand for exactly one asset: name the table's path")
    key = context.assets_def.key
    metadata: dict[str, Any] = dict(context.assets_def.metadata_by_key.get(key, {}))
    return table_path(key.path, metadata)


def _partition_keys(context: StepContext) -> Sequence[str]:
    if context.has_partition_key or context.has_partition_key_range:
        return [str(key) for key in context.partition_keys]
    return ()
