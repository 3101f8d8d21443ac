"""Fused types: the type that values of several types have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeGuard

from lake_core.pool import types
from lake_core.pool.types import (
    FLOAT64,
    FLOATS,
    NULL,
    SIGNED,
    UNSIGNED,
    ArrayType,
    ErrorType,
    Field,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    SetType,
    Type,
    UnionType,
    fields_of,
    map_components,
    under,
    unique_types,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

Conflicts: TypeAlias = Literal["union", "json"]
"""How types without a common one are fused: into a union of them, or into JSON text."""

JSON: Final = NamedType("json", types.STRING)
"""The type of values that became JSON text."""

_COMPOSITE: Final = (RecordType, ArrayType, SetType, MapType, ErrorType)
_SIGNED_BY_BITS: Final = {8: types.INT8, 16: types.INT16, 32: types.INT32, 64: types.INT64}
_DIGITS: Final = {types.FLOAT16: 11, types.FLOAT32: 24, FLOAT64: 53}
"""The floats, and the size in bits of the largest integers that each holds exactly."""


def fused_type(one: Type, other: Type, conflicts: Conflicts, *, round_integers: bool = False) -> Type:
    """Return the type that values of two types have in common.

    A record gets the fields of both, those of the first one first. Null and any other type become that type. Numbers
    become the smallest type that holds both without loss. A type keeps its name only where both have it.

    Args:
        one: A type.
        other: Another.
        conflicts: How types without a common one are fused.
        round_integers: Whether integers and floats become float64 even if it does not hold all of the integers exactly.
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if JSON in (one, other):
        return JSON
    plain_one, plain_other = under(one), under(other)
    if plain_one == plain_other:
        return plain_one
    common = _common(plain_one, plain_other, conflicts, round_integers)
    if common is not None:
        return common
    if conflicts == "json":
        return JSON
    return _united(plain_one, plain_other, round_integers)


def fused_types(types: Iterable[Type], conflicts: Conflicts, *, round_integers: bool = False) -> Type:
    """Return the type that values of several types have in common, null for none; see `fused_type`.

    It is that of the first two, and the third, and so on. Numbers are fused together before, as otherwise their order
    would count: int16 and uint32 become int64, which is no float, but each of them is. So are types of one kind that
    have components, such as records, which takes time in proportion to their size.
    """
    several = _numbers_fused(list(types), round_integers)
    of_unions = {under(each).__class__ for type in several for each in _members(type)}
    for kind in _COMPOSITE:
        alike = [type for type in several if under(type).__class__ is kind]
        # Which member of a union a type is fused with depends on the order.
        if len(set(alike)) > 1 and kind not in of_unions:
            together = _fused_alike(alike, conflicts, round_integers=round_integers)
            several = [together if under(type).__class__ is kind else type for type in several]
    common: Type = NULL
    for type in several:
        common = fused_type(common, type, conflicts, round_integers=round_integers)
    return common


def _members(type: Type) -> tuple[Type, ...]:
    plain = under(type)
    return plain.types if isinstance(plain, UnionType) else ()


def _fused_alike(types: Sequence[Type], conflicts: Conflicts, *, round_integers: bool) -> Type:
    """Return the type that values of several composite types of one kind have in common."""

    def fuse(inner: Iterable[Type]) -> Type:
        return fused_types(inner, conflicts, round_integers=round_integers)

    kind = under(types[0])
    if not isinstance(kind, RecordType):
        return _composite(kind, map(fuse, zip(*map(components, types), strict=True)))
    fields: dict[str, list[Type]] = {}
    for type in types:
        for each in fields_of(type):
            fields.setdefault(each.name, []).append(each.type)
    return RecordType(tuple(Field(name, fuse(of_name)) for name, of_name in fields.items()))


def is_composite(type: Type) -> bool:
    """Return whether a type has components, and a common type with each other type of its kind."""
    return isinstance(under(type), _COMPOSITE)


def components(type: Type) -> tuple[Type, ...]:
    """Return the types that the values of an array, set, map or error consist of; none for other types."""
    match under(type):
        case ArrayType(element) | SetType(element):
            return (element,)
        case MapType(key, value):
            return (key, value)
        case ErrorType(inner):
            return (inner,)
    return ()


def _composite(kind: Type, inner: Iterable[Type]) -> Type:
    """Return a type of the kind of another one that is no record, with other components."""
    of = iter(inner)
    return map_components(kind, lambda _: next(of))


def fused_column_type(types: Iterable[Type], *, round_integers: bool = False) -> Type:
    """Return the type that values of several types have in common as columns, with JSON text for conflicts."""
    return column_type(fused_types(types, "json", round_integers=round_integers))


def column_type(type: Type) -> Type:
    """Return the type that values get as columns: unions and records without fields become JSON text."""
    match type:
        case UnionType() | RecordType(()):
            return JSON
        case NamedType(name, inner):
            column = column_type(inner)
            return column if column == JSON else NamedType(name, column)
    return map_components(type, column_type)


def with_rounded_integers(type: Type) -> Type:
    """Return a fused type with float64 in the place of integers and floats in one union.

    Values of that type exist only if float64 holds each of the integers exactly. A union of records, arrays, sets, maps
    or errors stays as it is: they do not become one type.
    """
    match type:
        case NamedType(name, inner):
            return NamedType(name, with_rounded_integers(inner))
        case UnionType(members) if not any(map(is_composite, members)):
            return fused_types(members, "union", round_integers=True)
    return map_components(type, with_rounded_integers)


def _common(one: Type, other: Type, conflicts: Conflicts, round_integers: bool) -> Type | None:
    """Return the common type of two types below their names, or None if only a union holds both."""

    def fuse(inner: Type, other_inner: Type) -> Type:
        return fused_type(inner, other_inner, conflicts, round_integers=round_integers)

    match one, other:
        case PrimitiveType(), PrimitiveType():
            return _common_number((one, other), round_integers) if _is_number(one) and _is_number(other) else None
        case RecordType(), RecordType():
            fields = {each.name: each.type for each in one.fields}
            for each in other.fields:
                fields[each.name] = fuse(fields[each.name], each.type) if each.name in fields else each.type
            return RecordType(tuple(Field(name, type) for name, type in fields.items()))
        case ArrayType(), ArrayType():
            return ArrayType(fuse(one.element, other.element))
        case SetType(), SetType():
            return SetType(fuse(one.element, other.element))
        case MapType(), MapType():
            return MapType(fuse(one.key, other.key), fuse(one.value, other.value))
        case ErrorType(), ErrorType():
            return ErrorType(fuse(one.inner, other.inner))
    return None


def _common_number(types: Collection[PrimitiveType], round_integers: bool) -> PrimitiveType | None:
    """Return the smallest type that holds all values of some types of numbers, or None."""
    bits = [UNSIGNED.get(type) or SIGNED[type] for type in types if type not in FLOATS]
    floats = [FLOATS[type] for type in types if type in FLOATS]
    if not floats:
        if all(type in UNSIGNED for type in types):
            return max(types, key=UNSIGNED.__getitem__)
        return _SIGNED_BY_BITS.get(max(2 * UNSIGNED[type] if type in UNSIGNED else SIGNED[type] for type in types))
    digits = max(bits, default=0)
    if digits > _DIGITS[FLOAT64]:
        return FLOAT64 if round_integers else None
    return next(type for type in _DIGITS if _DIGITS[type] >= digits and FLOATS[type] >= max(floats))


def _is_number(type: Type) -> TypeGuard[PrimitiveType]:
    """Return whether a type is one of plain numbers: no duration and no time."""
    return type in FLOATS or type in UNSIGNED or type in _SIGNED_BY_BITS.values()


def _numbers_fused(several: list[Type], round_integers: bool) -> list[Type]:
    """Return types with the fewest types of numbers that hold all values of those among them."""
    numbers = {plain for type in several if _is_number(plain := under(type))}
    integers = numbers - FLOATS.keys()
    unsigned = integers & UNSIGNED.keys()
    fused: dict[Type, Type] = {}
    # What has no common type together may have one in parts.
    for group in (unsigned, integers - unsigned, numbers & FLOATS.keys(), integers, numbers):
        if len(group) > 1 and (common := _common_number(group, round_integers)) is not None:
            fused |= dict.fromkeys(group, common)
    return [fused.get(under(type), type) for type in several] if fused else several


def _united(one: Type, other: Type, round_integers: bool) -> Type:
    """Return a union of two types, or of their members where they are unions.

    Members that have a common type become that type.
    """
    members = list(one.types if isinstance(one, UnionType) else (one,))
    for new in other.types if isinstance(other, UnionType) else (other,):
        for position, member in enumerate(members):
            common = member if member == new else _common(under(member), under(new), "union", round_integers)
            if common is not None:
                members[position] = common
                break
        else:
            members.append(new)
    return UnionType(unique_types(members))
