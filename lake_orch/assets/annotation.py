"""The types in parameter annotations."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Union, get_args, get_origin


def without_none(annotation: object) -> tuple[object, bool]:
    """Return an annotation without `| None`, and whether `| None` was removed."""
    if get_origin(annotation) in (Union, UnionType):
        others = [member for member in get_args(annotation) if member is not NoneType]
        if len(others) == 1 and len(others) < len(get_args(annotation)):
            return others[0], True
    return annotation, False


def type_of_element(annotation: object) -> object:
    """Return T for `list[T]`, which is the annotation for the outputs of several steps. Each is loaded on its own.

    Return any other annotation unchanged.
    """
    return get_args(annotation)[0] if get_origin(annotation) is list and get_args(annotation) else annotation


def type_of_each(annotation: object) -> object | None:
    """Return T for `dict[str, T]`, which is the annotation for one value for each partition."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    return arguments[1] if isinstance(origin, type) and issubclass(origin, Mapping) and len(arguments) == 2 else None
