"""The text of types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.types import (
    ArrayType,
    EnumType,
    ErrorType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    SetType,
    Type,
    UnionType,
)
from lake_core.pool.zson.quoting import quoted_name, quoted_type_name

if TYPE_CHECKING:
    from collections.abc import Callable


def format_type(type: Type) -> str:
    """Return the text of a type by itself. A name is defined where it occurs first."""
    return _format(type, {}, quoted_type_name)


def format_type_value(type: Type) -> str:
    """Return the text of the value that represents a type."""
    return f"<{_format(type, {}, quoted_name)}>"


def _format(type: Type, names: dict[str, Type], quote: Callable[[str], str]) -> str:
    match type:
        case NamedType(name, inner):
            if names.get(name) == inner:
                return quote(name)
            text = f"{quote(name)}={_format(inner, names, quote)}"
            names[name] = inner  # after the inner type, which may bind the name itself
            return text
        case PrimitiveType():
            return type.name
    return format_complex_type(type, lambda inner: _format(inner, names, quote))


def format_complex_type(type: Type, format_inner: Callable[[Type], str]) -> str:
    """Return the text of a type that consists of others, given a function that returns the text of these."""
    match type:
        case RecordType(fields):
            return "{" + ",".join([f"{quoted_name(each.name)}:{format_inner(each.type)}" for each in fields]) + "}"
        case ArrayType(element):
            return f"[{format_inner(element)}]"
        case SetType(element):
            return f"|[{format_inner(element)}]|"
        case MapType(key, value):
            return "|{" + f"{format_inner(key)}:{format_inner(value)}" + "}|"
        case UnionType(types):
            return f"({','.join([format_inner(member) for member in types])})"
        case EnumType(symbols):
            return f"enum({','.join(map(quoted_name, symbols))})"
        case ErrorType(inner):
            return f"error({format_inner(inner)})"
    raise AssertionError(f"{type!r} does not consist of other types")
