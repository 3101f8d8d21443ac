"""Mappings of partitions in YAML, under Dagster's own names."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import dagster as dg
from pydantic import Field


class PlainMapping(dg.Model, dg.Resolvable):
    """The partition of the same name, all partitions, or the last one."""

    type: Annotated[Literal["identity", "all", "last"], Field(description="Which of them.")]


class TimeWindowMapping(dg.Model, dg.Resolvable):
    """The partitions of the same time, moved by offsets. With -1 and -1, the ones before."""

    type: Annotated[Literal["time_window"], Field(description="Partitions by their time.")]
    start_offset: Annotated[int, Field(description="How many partitions later the first one is, or earlier (-1).")] = 0
    end_offset: Annotated[int, Field(description="How many partitions later the last one is, or earlier (-1).")] = 0
    allow_nonexistent_upstream_partitions: Annotated[
        bool, Field(description="Whether some of them may not exist, such as those before the first.")
    ] = False


class SpecificMapping(dg.Model, dg.Resolvable):
    """Always the same partitions."""

    type: Annotated[Literal["specific_partitions"], Field(description="The same partitions each time.")]
    partition_keys: Annotated[Sequence[str], Field(description="Their keys.")]


class StaticMapping(dg.Model, dg.Resolvable):
    """Partitions of the input, and those of the asset that read them."""

    type: Annotated[Literal["static"], Field(description="Partitions by their keys.")]
    downstream_partition_keys_by_upstream_partition_key: Annotated[
        Mapping[str, str | Sequence[str]], Field(description="The partitions of the asset, by those of the input.")
    ]


def _resolve(context: dg.ResolutionContext, model: Any) -> dg.PartitionMapping | None:
    if model is None:
        return None
    if model.type == "time_window":
        return dg.TimeWindowPartitionMapping(
            start_offset=model.start_offset,
            end_offset=model.end_offset,
            allow_nonexistent_upstream_partitions=model.allow_nonexistent_upstream_partitions,
        )
    if model.type == "specific_partitions":
        return dg.SpecificPartitionsPartitionMapping(list(model.partition_keys))
    if model.type == "static":
        keys = model.downstream_partition_keys_by_upstream_partition_key
        return dg.StaticPartitionMapping({key: _collection(value) for key, value in keys.items()})
    if model.type == "identity":
        return dg.IdentityPartitionMapping()
    return dg.AllPartitionMapping() if model.type == "all" else dg.LastPartitionMapping()


def _collection(value: str | Sequence[str]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)


PartitionMapping: TypeAlias = Annotated[
    Any,  # of Dagster's classes, which pydantic does not know
    dg.Resolver(
        _resolve,
        model_field_type=PlainMapping | TimeWindowMapping | SpecificMapping | StaticMapping | None,
        description="Which partitions of the input each partition reads: type identity, all, last, time_window (with "
        "start_offset and end_offset), specific_partitions or static. By default, as Dagster chooses.",
    ),
]
