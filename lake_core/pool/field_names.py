"""The names of the fields of records of any types."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lake_core.pool.arrow.field_parts import plain_type
from lake_core.pool.types import NULL, RecordType, Type, UnionType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FieldNames: TypeAlias = "dict[str, FieldNames]"
"""The names of fields, each with those of the fields below it, in the order in which they first appear."""


def field_names(types: Iterable[Type]) -> FieldNames:
    """Return the names of the fields that records of some types have, also those below unions."""
    names: FieldNames = {}
    for type in types:
        _add(type, names)
    return names


def _add(type: Type, names: FieldNames) -> None:
    match plain_type(type):
        case UnionType(members):
            for member in members:
                _add(member, names)
        case RecordType(fields):
            for each in fields:
                _add(each.type, names.setdefault(each.name, {}))


def find_field(names: FieldNames, written: Sequence[str]) -> tuple[str, ...] | None:
    """Return the path to a field by its names. Case is ignored, but an exact name comes first."""
    path = []
    for name in written:
        field = name if name in names else next((each for each in names if each.lower() == name.lower()), None)
        if field is None:
            return None
        path.append(field)
        names = names[field]
    return tuple(path)


def field_types(type: Type, path: Sequence[str]) -> list[Type]:
    """Return the types that a field has in records of a type: several below unions, null where they lack it."""
    return list(dict.fromkeys(_field_types(type, path))) or [NULL]


def _field_types(type: Type, path: Sequence[str]) -> Iterable[Type]:
    plain = plain_type(type)
    if isinstance(plain, UnionType):
        for member in plain.types:
            yield from _field_types(member, path)
    elif not path:
        yield plain
    elif isinstance(plain, RecordType):
        for each in plain.fields:
            if each.name == path[0]:
                yield from _field_types(each.type, path[1:])
