"""Dagster's partition mappings in YAML: which partitions of an upstream asset a partition depends on."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import dagster as dg
from pydantic import SkipValidation

from lake_orch.errors import InvalidDefinition

_MAPPINGS: Mapping[str, Any] = {
    mapping.__name__: mapping
    for mapping in (
        dg.AllPartitionMapping,
        dg.IdentityPartitionMapping,
        dg.LastPartitionMapping,
        dg.MultiPartitionMapping,
        dg.MultiToSingleDimensionPartitionMapping,
        dg.SpecificPartitionsPartitionMapping,
        dg.StaticPartitionMapping,
        dg.TimeWindowPartitionMapping,
    )
}


def partition_mapping_of(value: Any) -> dg.PartitionMapping | None:
    """Return the mapping that settings describe: the name of Dagster's class as `type`, and its arguments.

    Raises InvalidDefinition.
    """
    if value is None or isinstance(value, dg.PartitionMapping):
        return value
    settings: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {"type": value}
    name = settings.pop("type", None)
    if not isinstance(name, str) or name not in _MAPPINGS:
        raise InvalidDefinition(
            f"partition_mapping is {value!r}: give it a type, one of {', '.join(_MAPPINGS)}, and its arguments"
        )
    if name == dg.MultiPartitionMapping.__name__:
        dimensions = settings.get("downstream_mappings_by_upstream_dimension") or {}
        settings["downstream_mappings_by_upstream_dimension"] = {
            upstream: dg.DimensionPartitionMapping(
                each["dimension_name"], partition_mapping_of(each["partition_mapping"]) or dg.IdentityPartitionMapping()
            )
            for upstream, each in dimensions.items()
        }
    try:
        mapping: dg.PartitionMapping = _MAPPINGS[name](**settings)
    except (TypeError, ValueError, KeyError, dg.DagsterError) as error:
        raise InvalidDefinition(f"partition_mapping of type {name}: {error}") from None
    return mapping


def _resolve(context: dg.ResolutionContext, value: Any) -> dg.PartitionMapping | None:
    return partition_mapping_of(context.resolve_value(value))


PartitionMappingSettings: TypeAlias = Annotated[
    SkipValidation[Any],
    dg.Resolver(
        _resolve,
        model_field_type=dict[str, Any] | str | None,
        description="The partitions of the input that a partition depends on: the type, a class of Dagster such as "
        "AllPartitionMapping, LastPartitionMapping or TimeWindowPartitionMapping, and its arguments, such as "
        "start_offset and end_offset.",
    ),
]
"""A partition mapping of Dagster."""
