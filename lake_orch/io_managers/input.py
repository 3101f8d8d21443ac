"""The path, the partitions and the type of an input, from Dagster's context."""

from __future__ import annotations

from dagster import InputContext

from lake_orch.assets.annotation import type_of_each, type_of_element, without_none
from lake_orch.assets.asset_format import AssetInput
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.dagster.partitions import partitions_of
from lake_orch.dagster.runs.attempt import run_of
from lake_orch.dagster.runs.upstream import check_published
from lake_orch.errors import InvalidDefinition
from lake_orch.io_managers.output import output_path, upstream_output
from lake_orch.location import table_path
from lake_orch.resources import LakeResource


def request_of(context: InputContext) -> AssetInput:
    """Return the part of a dataset that an input requests. Raises InvalidDefinition for an invalid path."""
    upstream = context.upstream_output
    metadata = {} if upstream is None else plain_metadata(upstream.definition_metadata or {})
    declared, optional = without_none(context.dagster_type.typing_type)
    annotation, each_optional = without_none(type_of_element(declared))
    path = table_path(context.asset_key.path if context.has_asset_key else None, metadata)
    return AssetInput(
        subject=input_name(context),
        path=path if upstream is None else output_path(upstream, path),
        settings=plain_metadata(context.definition_metadata or {}),
        annotation=annotation,
        declared=declared,
        optional=optional or each_optional,
        asset_key=context.asset_key.path if context.has_asset_key else None,
        is_external=_is_external(context),
        producer=context.asset_key.to_user_string() if context.has_asset_key else "",
        metadata=metadata,
        output=None if upstream is None else upstream_output(upstream),
        partitions=partitions_of(context.asset_partitions_def) if context.has_asset_partitions else None,
        keys=[str(key) for key in context.asset_partition_keys] if context.has_asset_partitions else None,
    )


def _is_external(context: InputContext) -> bool:
    """Return whether no asset of this code location makes what an input reads, as far as is known."""
    if run_of(context) is None or not context.has_asset_key:
        return True
    assets = context.step_context.job_def.asset_layer
    return not assets.has(context.asset_key) or assets.get(context.asset_key).is_external


def type_of_each_partition(request: AssetInput) -> object | None:
    """Return T if the annotation is `dict[str, T]`: one value for each partition.

    Raises InvalidDefinition for an asset without partitions.
    """
    each = type_of_each(request.annotation)
    if each is not None and request.keys is None:
        raise InvalidDefinition(
            f"{request.subject} is annotated as a value for each partition, but {request.path} is not partitioned"
        )
    return each


def input_name(context: InputContext) -> str:
    """Return the name of an input, for errors and the log."""
    return f"input {context.name!r}" if context.has_input_name else "the value"


def check_input_published(lake: LakeResource, context: InputContext, ref: str | None) -> None:
    """Check that the newest rows of an asset that a run reads are published, or staged by the run itself.

    Nothing is checked for an input that names the ref to read. Raises UpstreamUnpublished.
    """
    run = run_of(context)
    if ref is not None or run is None or not context.has_asset_key or not lake.is_lake():
        return
    keys = [str(key) for key in context.asset_partition_keys] if context.has_asset_partitions else None
    warning = check_published(run[0], lake.open(), context.asset_key, keys, lake.place_of(*run))
    if warning:
        context.log.warning(f"{input_name(context)}: {warning}")


def reads_itself(context: InputContext) -> bool:
    """Return whether the step that reads an asset also writes it."""
    if not context.has_asset_key or run_of(context) is None:
        return False
    return any(output.properties.asset_key == context.asset_key for output in context.step_context.step.step_outputs)
