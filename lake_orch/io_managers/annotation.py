"""Reading of parameter annotations, and of the parts of a step's context that decide where a value is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Union, get_args, get_origin

from dagster import DagsterInvariantViolationError, InputContext, OutputContext

from lake_orch.runs.attempt import run_of


def without_none(annotation: object) -> tuple[object, bool]:
    """Return an annotation without `| None`, and whether `| None` was removed."""
    if get_origin(annotation) in (Union, UnionType):
        others = [member for member in get_args(annotation) if member is not NoneType]
        if len(others) == 1 and len(others) < len(get_args(annotation)):
            return others[0], True
    return annotation, False


def type_of_element(annotation: object) -> object:
    """Return T for `list[T]`, the annotation for the outputs of several steps, each loaded alone. Return any other annotation unchanged."""
    return get_args(annotation)[0] if get_origin(annotation) is list and get_args(annotation) else annotation


def type_of_each(annotation: object) -> object | None:
    """Return T for `dict[str, T]`, the annotation for one value a partition."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2 else None


def reads_itself(context: InputContext) -> bool:
    """Return whether the step that asks for an asset also makes it."""
    if not context.has_asset_key or run_of(context) is None:
        return False
    return any(output.properties.asset_key == context.asset_key for output in context.step_context.step.step_outputs)


def mapping_keys(output: OutputContext) -> Sequence[str]:
    """Return the mapping keys of an output: that of its step, if the step is mapped, and its own, if it is a dynamic output."""
    try:
        mapped = _MAPPED.search(output.step_key)
    except DagsterInvariantViolationError:  # an asset's value, outside of any run
        mapped = None
    return [key for key in (mapped[1] if mapped else None, output.mapping_key) if key is not None]


_MAPPED = re.compile(r"\[(.+)\]$")
