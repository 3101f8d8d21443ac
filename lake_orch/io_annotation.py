"""What the annotation of a parameter, and the step that it belongs to, say of an input."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from dagster import InputContext

from lake_orch.attempt import run_of


def without_none(annotation: object) -> tuple[object, bool]:
    """An annotation without its `| None`, and whether it had one."""
    if get_origin(annotation) in (Union, UnionType):
        others = [one for one in get_args(annotation) if one is not NoneType]
        if len(others) == 1 and len(others) < len(get_args(annotation)):
            return others[0], True
    return annotation, False


def type_of_each(annotation: object) -> object | None:
    """T of `dict[str, T]`: a value for each partition."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2 else None


def reads_itself(context: InputContext) -> bool:
    """Whether the step that asks for an asset also makes it."""
    if not context.has_asset_key or run_of(context) is None:
        return False
    return any(output.properties.asset_key == context.asset_key for output in context.step_context.step.step_outputs)
