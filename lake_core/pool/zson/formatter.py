"""Writes values as ZSON, with as few decorators as their types need."""

from __future__ import annotations

from lake_core.pool import types
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
    under,
)
from lake_core.pool.value import Value, split_map, split_record, symbol_of, untag
from lake_core.pool.zng.tag import split
from lake_core.pool.zson.primitive_text import format_primitive
from lake_core.pool.zson.quoting import quoted_name, quoted_type_name
from lake_core.pool.zson.type_text import format_complex_type, format_type

_IMPLIED = frozenset(
    (
        types.INT64,
        types.DURATION,
        types.TIME,
        types.FLOAT64,
        types.BOOL,
        types.BYTES,
        types.STRING,
        types.IP,
        types.NET,
        types.TYPE,
        types.NULL,
    )
)
"""Primitive types that follow from the text of a value."""


def format_value(value: Value) -> str:
    """Return a value as ZSON on one line. Raises InvalidZng if its bytes are not valid for its type."""
    return _Formatter().format(value)


def is_implied(type: Type) -> bool:
    """Return whether the type of a value follows from its text."""
    match type:
        case PrimitiveType():
            return type in _IMPLIED
        case RecordType(fields):
            return all(is_implied(each.type) for each in fields)
        case ArrayType(inner) | SetType(inner) | ErrorType(inner):
            return is_implied(inner)
        case MapType(key, value):
            return is_implied(key) and is_implied(value)
    return False


def is_self_describing(type: Type) -> bool:
    """Return whether the type of a value, except for its name, follows from its text."""
    while isinstance(type, NamedType):
        type = type.inner
    return isinstance(type, RecordType | ArrayType | SetType | MapType) or is_implied(type)


class _Elements:
    """The elements of a container, and which types of a union they have."""

    def __init__(self, type: Type) -> None:
        self._type = type
        plain = under(type)
        self._union = plain if isinstance(plain, UnionType) else None
        self._tags: set[int] = set()

    def element(self, body: bytes | None) -> tuple[Type, bytes | None]:
        """Return the value that an element is printed as: a value of a union is printed without the union."""
        if self._union is None:
            return self._type, body
        if body is None:
            return types.NULL, None
        tag, inner = untag(self._union, body)
        self._tags.add(tag)
        return self._union.types[tag], inner

    def needs_decorator(self) -> bool:
        """Return whether the union of the elements does not follow from them."""
        return self._union is not None and (
            isinstance(self._type, NamedType) or len(self._tags) < len(set(self._union.types))
        )


class _Formatter:
    """A writer of one value. It defines a name where it occurs first, and refers to it from then on."""

    def __init__(self) -> None:
        self._names: dict[str, NamedType] = {}
        self._out: list[str] = []

    def format(self, value: Value) -> str:
        type, body = value.type, value.body
        self._value(type, body, self._has_name(type), is_implied(type), decorate=False)
        self._decorate(type, known=False, null=body is None)
        return "".join(self._out)

    def _has_name(self, type: Type) -> bool:
        return isinstance(type, NamedType) and type.name in self._names

    def _name_of(self, type: Type) -> str | None:
        return type.name if isinstance(type, NamedType) and self._names.get(type.name) == type else None

    def _value(
        self, type: Type, body: bytes | None, parent_known: bool, parent_implied: bool, *, decorate: bool
    ) -> None:
        if body is None:
            self._out.append("null")
            if decorate:
                self._decorate(type, known=parent_known and not parent_implied, null=True)
            return
        known = parent_known or self._has_name(type)
        empty = self._body(type, body, known, parent_implied)
        if decorate:
            self._decorate(type, known=parent_known, null=empty)

    def _body(self, type: Type, body: bytes, known: bool, implied: bool) -> bool:
        """Write a body, and return whether it is an empty container, whose type does not follow from its text."""
        match type:
            case PrimitiveType():
                self._out.append(format_primitive(type, body))
            case NamedType(_, inner):
                self._value(inner, body, known, implied, decorate=False)
            case RecordType():
                self._record(type, body, known, implied)
            case ArrayType(element):
                return self._vector("[", "]", type, element, body, known, implied)
            case SetType(element):
                return self._vector("|[", "]|", type, element, body, known, implied)
            case MapType():
                return self._map(type, body, known, implied)
            case UnionType():
                tag, inner_body = untag(type, body)
                self._value(type.types[tag], inner_body, False, True, decorate=True)
            case EnumType():
                self._out.append(f"%{quoted_name(symbol_of(type, body))}")
            case ErrorType(inner):
                self._out.append("error(")
                self._value(inner, body, known, implied, decorate=False)
                self._out.append(")")
        return False

    def _record(self, type: RecordType, body: bytes, known: bool, implied: bool) -> None:
        separator = "{"
        for field, each in zip(type.fields, split_record(type, body), strict=True):
            self._out.append(f"{separator}{quoted_name(field.name)}:")
            self._value(field.type, each, known, implied, decorate=True)
            separator = ","
        self._out.append("}" if type.fields else "{}")

    def _vector(self, start: str, end: str, type: Type, element: Type, body: bytes, known: bool, implied: bool) -> bool:
        elements = _Elements(element)
        separator = start
        for each in split(body):
            self._out.append(separator)
            self._value(*elements.element(each), known, implied, decorate=True)
            separator = ","
        if separator == start:
            self._out.append(start + end)
            return True
        self._out.append(end)
        if elements.needs_decorator():
            self._decorate(type, known=False, null=True)
        return False

    def _map(self, type: MapType, body: bytes, known: bool, implied: bool) -> bool:
        keys, values = _Elements(type.key), _Elements(type.value)
        entries = split_map(body)
        separator = "|{"
        for key, value in entries:
            self._out.append(separator)
            key_type, key_body = keys.element(key)
            self._value(key_type, key_body, known, implied, decorate=True)
            # The colon must not continue an IPv6 address.
            self._out.append(
                " :" if under(key_type) == types.IP and key_body is not None and len(key_body) == 16 else ":"
            )
            self._value(*values.element(value), known, implied, decorate=True)
            separator = ","
        self._out.append("}|" if entries else "|{}|")
        if keys.needs_decorator() or values.needs_decorator():
            self._decorate(type, known=False, null=True)
        return not entries

    def _decorate(self, type: Type, *, known: bool, null: bool) -> None:
        if known or (not (null and type != types.NULL) and is_implied(type)):
            return
        name = self._name_of(type)
        if name is not None:
            self._out.append(f"({quoted_type_name(name)})")
        elif is_self_describing(type) and not null:
            if isinstance(type, NamedType):
                self._names[type.name] = type
                self._out.append(f"(={quoted_type_name(type.name)})")
        else:
            self._out.append(f"({self._type(type)})")

    def _type(self, type: Type) -> str:
        match type:
            case NamedType(name, inner):
                if self._name_of(type) is not None:
                    return quoted_type_name(name)
                self._names[name] = type
                return f"{quoted_type_name(name)}={self._type(inner)}"
            case PrimitiveType():
                return type.name
            case ErrorType(inner):
                return f"error({format_type(inner)})"
        return format_complex_type(type, self._type)
