"""Finds the types of values in a ZSON text: from the decorators around them, and from the values inside of them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lake_core.pool import types
from lake_core.pool.errors import InvalidType, InvalidValue, InvalidZson
from lake_core.pool.primitive import encode_uint
from lake_core.pool.type_value import encode_type
from lake_core.pool.types import (
    FLOATS,
    NULL,
    SIGNED,
    UNSIGNED,
    ArrayType,
    EnumType,
    ErrorType,
    Field,
    MapType,
    PrimitiveType,
    RecordType,
    SetType,
    Type,
    UnionType,
    under,
)
from lake_core.pool.value import Value, union_body, united
from lake_core.pool.zng.tag import normalized_map, normalized_set, tagged
from lake_core.pool.zson.primitive_text import parse_primitive
from lake_core.pool.zson.syntax import (
    Array,
    Cast,
    Definition,
    Error,
    Map,
    Names,
    Primitive,
    Record,
    Set,
    Symbol,
    Syntax,
    TypeValue,
)
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTEGERS = (UNSIGNED.keys() | SIGNED.keys()) - {types.DURATION, types.TIME}


class Analyzer:
    """A converter of syntax to values.

    It remembers names from one value to the next. Raises InvalidValue where types do not fit.
    """

    def __init__(self) -> None:
        self._names = Names()

    def analyze(self, syntax: Syntax) -> Value:
        """Return the value of a syntax tree."""
        value = self._value(syntax)
        self._names.end_value()
        return value

    def _value(self, syntax: Syntax, parent: Type | None = None) -> Value:
        """Return the value of a syntax tree. `parent`: the type that the container of the value prescribes for it."""
        match syntax:
            case Definition():
                return self._definition(syntax, parent)
            case Cast():
                return self._cast(syntax, parent)
        if parent is not None and isinstance(under(parent), UnionType):
            return _in_union(self._undecorated(syntax, None), parent)
        return self._undecorated(syntax, parent)

    def _cast(self, syntax: Cast, parent: Type | None) -> Value:
        # The value inside may define names that the type uses.
        if isinstance(syntax.value, Definition):
            self._value(syntax.value)
        elif isinstance(syntax.value, Cast):
            syntax.value.type(self._names)
        cast = self._cast_type(syntax)
        in_union = parent is not None and isinstance(under(parent), UnionType)
        if parent is not None and not in_union and cast != parent:
            raise InvalidValue(
                f"the decorator {format_type(cast)} conflicts with the type {format_type(parent)} that the container "
                "of the value requires"
            )
        if isinstance(under(cast), UnionType):
            value = _in_union(self._value(syntax.value), cast)
        else:
            value = self._value(syntax.value, cast)
        return _in_union(value, parent) if parent is not None and in_union and value.type != parent else value

    def _definition(self, syntax: Definition, parent: Type | None) -> Value:
        union = None if parent is None else under(parent)
        value = self._value(syntax.value, None if isinstance(union, UnionType) else parent)
        named = Value(self._names.define(syntax.name, value.type), value.body)
        if parent is None or not isinstance(union, UnionType):
            return named
        return _in_union(named if named.type in union.types else value, parent)

    def _cast_type(self, syntax: Cast) -> Type:
        try:
            return syntax.type(self._names.of_value())
        except InvalidZson:
            # The value itself or one before it defines the missing name.
            with suppress(InvalidType, InvalidValue):
                self._value(syntax.value)
            return syntax.type(self._names)

    def _undecorated(self, syntax: Syntax, cast: Type | None) -> Value:
        match syntax:
            case Primitive():
                return _primitive(syntax, cast)
            case Record(fields):
                return self._record(fields, cast)
            case Array(elements) | Set(elements):
                return self._elements(elements, cast, SetType if isinstance(syntax, Set) else ArrayType)
            case Map(entries):
                return self._map(entries, cast)
            case Symbol(name):
                return _symbol(name, cast)
            case TypeValue(type):
                return Value(_checked(cast), encode_type(self._names.type_value(type)))
            case Error(inner):
                return self._error(inner, cast)
        raise AssertionError(f"{syntax!r} has a decorator")

    def _record(self, fields: Sequence[tuple[str, Syntax]], cast: Type | None) -> Value:
        if cast is None:
            values = [(name, self._value(each)) for name, each in fields]
            type: Type = RecordType(tuple(Field(name, value.type) for name, value in values))
            return Value(type, b"".join([tagged(value.body) for _, value in values]))
        record = under(cast)
        if not isinstance(record, RecordType) or [each.name for each in record.fields] != [name for name, _ in fields]:
            names = ", ".join(name for name, _ in fields) or "none"
            raise InvalidValue(f"a record with the fields {names} is not of type {format_type(cast)}")
        bodies = [self._value(each, field.type).body for (_, each), field in zip(fields, record.fields, strict=True)]
        return Value(cast, b"".join(map(tagged, bodies)))

    def _elements(self, elements: Sequence[Syntax], cast: Type | None, kind: type[ArrayType] | type[SetType]) -> Value:
        if cast is None:
            element, bodies = united([self._value(each) for each in elements])
            cast = kind(element)
        else:
            container = under(cast)
            if not isinstance(container, kind):
                raise InvalidValue(f"elements in these brackets are not of type {format_type(cast)}")
            bodies = [self._value(each, container.element).body for each in elements]
        encoded = [tagged(body) for body in bodies]
        return Value(cast, normalized_set(encoded) if kind is SetType else b"".join(encoded))

    def _map(self, entries: Sequence[tuple[Syntax, Syntax]], cast: Type | None) -> Value:
        if cast is None:
            key, keys = united([self._value(each) for each, _ in entries])
            value, values = united([self._value(each) for _, each in entries])
            cast = MapType(key, value)
        else:
            container = under(cast)
            if not isinstance(container, MapType):
                raise InvalidValue(f"a map is not of type {format_type(cast)}")
            pairs = [
                (self._value(each, container.key).body, self._value(other, container.value).body)
                for each, other in entries
            ]
            keys, values = [each for each, _ in pairs], [each for _, each in pairs]
        return Value(
            cast, normalized_map([(tagged(each), tagged(other)) for each, other in zip(keys, values, strict=True)])
        )

    def _error(self, inner: Syntax, cast: Type | None) -> Value:
        if cast is None:
            value = self._value(inner)
            return Value(ErrorType(value.type), value.body)
        error = under(cast)
        if not isinstance(error, ErrorType):
            raise InvalidValue(f"an error is not of type {format_type(cast)}")
        return Value(cast, self._value(inner, error.inner).body)


def _checked(cast: Type | None) -> Type:
    if cast is None:
        return types.TYPE
    if under(cast) != types.TYPE:
        raise InvalidValue(f"a type value is not of type {format_type(cast)}")
    return cast


def _primitive(syntax: Primitive, cast: Type | None) -> Value:
    if isinstance(cast, EnumType) and syntax.type == types.STRING:
        return _symbol(syntax.text, cast)
    type = syntax.type if cast is None else cast
    if syntax.type == NULL:
        return Value(type, None)
    plain = under(type)
    if not isinstance(plain, PrimitiveType) or not _fits(syntax.type, plain):
        raise InvalidValue(f"{syntax.text!r} is not of type {format_type(type)}")
    return Value(type, parse_primitive(plain, syntax.text))


def _fits(written: PrimitiveType, type: PrimitiveType) -> bool:
    return (
        written == type
        or (written in _INTEGERS and (type in _INTEGERS or type in FLOATS))
        or (written in FLOATS and type in FLOATS)
    )


def _symbol(name: str, cast: Type | None) -> Value:
    enum = None if cast is None else under(cast)
    if cast is None or not isinstance(enum, EnumType):
        raise InvalidValue(f"the symbol {name!r} must be followed by the type of an enum")
    if name not in enum.symbols:
        raise InvalidValue(f"{name!r} is not a symbol of {format_type(cast)}")
    return Value(cast, encode_uint(enum.symbols.index(name)))


def _in_union(value: Value, type: Type) -> Value:
    """Return a value as a value of a union. A null without a type is the null of the union itself."""
    union = under(type)
    assert isinstance(union, UnionType)
    if value.type == NULL:
        return Value(type, None)
    if value.type not in union.types:
        raise InvalidValue(f"the union {format_type(type)} does not have the type {format_type(value.type)}")
    return Value(type, union_body(union.types.index(value.type), value.body))
