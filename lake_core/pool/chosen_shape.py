"""Chooses types of values by the name of a named type, or by the type as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.errors import InvalidZson, NoSuchShape
from lake_core.pool.types import NamedType, Type, under
from lake_core.pool.zson.reader import parse_type
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_LISTED = 5


def choose_shape(text: str, types: Iterable[Type]) -> list[Type]:
    """Return the types that a text describes: those of that name, or else those that it spells out, under any name.

    Args:
        text: The name of a type, or a type in ZSON such as `{ts:time,level:string}`.
        types: The types to choose from.

    Raises:
        NoSuchShape: There is no such type.
    """
    available = list(types)
    chosen: list[Type] = [type for type in available if isinstance(type, NamedType) and type.name == text]
    if not chosen:
        try:
            parsed = parse_type(text)
        except InvalidZson:
            parsed = None
        chosen = [type for type in available if parsed is not None and parsed in (type, under(type))]
    if not chosen:
        listed = "; ".join(format_type(type) for type in available[:_MOST_LISTED])
        more = f"; and {len(available) - _MOST_LISTED} more" if len(available) > _MOST_LISTED else ""
        raise NoSuchShape(f"no record has the shape {text!r}; choose one of these: {listed or '(no records)'}{more}")
    return chosen
