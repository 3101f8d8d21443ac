"""Parses a ZSON text into syntax trees."""

from __future__ import annotations

from typing import Final

from lake_core.pool.errors import InvalidZson
from lake_core.pool.types import (
    MAX_DEPTH,
    PRIMITIVES,
    ArrayType,
    EnumType,
    ErrorType,
    Field,
    MapType,
    RecordType,
    SetType,
    Type,
    UnionType,
)
from lake_core.pool.zson.scanner import Scanner
from lake_core.pool.zson.syntax import (
    Array,
    Cast,
    Definition,
    Error,
    Map,
    Names,
    Record,
    Set,
    Symbol,
    Syntax,
    TypeSyntax,
    TypeValue,
)

_MAX_NESTING: Final = MAX_DEPTH
_MAX_DECORATORS: Final = 20


class Parser:
    """A parser of one value after another. Raises InvalidZson where the text is not ZSON."""

    def __init__(self, text: str) -> None:
        self._scanner = Scanner(text)
        self._nesting = 0

    @property
    def offset(self) -> int:
        """Return the current position in the text, in characters."""
        return self._scanner.at

    def next_value(self) -> Syntax | None:
        """Return the next value, or None at the end of the text."""
        if self._scanner.at_end():
            return None
        return self._value()

    def next_type(self) -> TypeSyntax:
        """Return the type that the text consists of."""
        type = self._type()
        if not self._scanner.at_end():
            self._scanner.fail("there is more text after the type")
        return type

    def _value(self) -> Syntax:
        value = self._optional_value()
        if value is None:
            self._scanner.fail("a value is missing")
        return value

    def _optional_value(self) -> Syntax | None:
        self._enter()
        value = self._undecorated()
        self._nesting -= 1
        return None if value is None else self._decorated(value)

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            self._scanner.fail(f"values or types are nested more than {_MAX_NESTING} levels deep")

    def _undecorated(self) -> Syntax | None:
        scanner = self._scanner
        if scanner.match("{"):
            return self._record()
        if scanner.match("["):
            return Array(self._elements("]"))
        if scanner.match("|["):
            return Set(self._elements("]|"))
        if scanner.match("|{"):
            return self._map()
        if scanner.match("<"):
            type = self._type()
            scanner.expect(">", "after a type value")
            return TypeValue(type)
        if scanner.match("%"):
            name = scanner.name()
            if name is None:
                scanner.fail("a symbol is missing after '%'")
            return Symbol(name)
        primitive = scanner.primitive()
        if primitive is None and scanner.text.startswith("error", scanner.at):
            return self._error()
        return primitive

    def _record(self) -> Record:
        scanner = self._scanner
        fields: dict[str, Syntax] = {}
        while (name := scanner.name()) is not None:
            scanner.expect(":", f"after the field name {name!r}")
            value = self._value()
            fields.setdefault(name, value)
            if not scanner.match(","):
                break
        scanner.expect("}", "at the end of a record")
        return Record(tuple(fields.items()))

    def _elements(self, end: str) -> tuple[Syntax, ...]:
        elements: list[Syntax] = []
        while (value := self._optional_value()) is not None:
            elements.append(value)
            if not self._scanner.match(","):
                break
        self._scanner.expect(end, "at the end of the elements")
        return tuple(elements)

    def _map(self) -> Map:
        entries: list[tuple[Syntax, Syntax]] = []
        while (key := self._optional_value()) is not None:
            self._scanner.expect(":", "after the key of a map")
            entries.append((key, self._value()))
            if not self._scanner.match(","):
                break
        self._scanner.expect("}|", "at the end of a map")
        return Map(tuple(entries))

    def _error(self) -> Error:
        self._scanner.identifier()
        self._scanner.expect("(", "after 'error'")
        value = self._value()
        self._scanner.expect(")", "at the end of an error")
        return Error(value)

    def _decorated(self, value: Syntax) -> Syntax:
        scanner = self._scanner
        decorators = 0
        while scanner.match("("):
            decorators += 1
            if decorators > _MAX_DECORATORS:
                scanner.fail(f"a value has more than {_MAX_DECORATORS} decorators")
            if scanner.match("="):
                name = scanner.type_name()
                if name is None or decorators > 1:
                    scanner.fail(
                        "a name is missing after '='" if name is None else "a name comes after another decorator"
                    )
                value = Definition(value, name)
            else:
                value = Cast(value, self._type())
            scanner.expect(")", "at the end of a decorator")
        return value

    def _type(self) -> TypeSyntax:
        self._enter()
        type = self._type_within()
        self._nesting -= 1
        return type

    def _type_within(self) -> TypeSyntax:
        scanner = self._scanner
        name = scanner.type_name()
        if name is not None:
            return self._named_type(name)
        if scanner.match("{"):
            return self._record_type()
        if scanner.match("["):
            array = self._type()
            scanner.expect("]", "at the end of an array type")
            return lambda names: ArrayType(array(names))
        if scanner.match("|["):
            elements = self._type()
            scanner.expect("]|", "at the end of a set type")
            return lambda names: SetType(elements(names))
        if scanner.match("|{"):
            key = self._type()
            scanner.expect(":", "after the key of a map type")
            value = self._type()
            scanner.expect("}|", "at the end of a map type")
            return lambda names: MapType(key(names), value(names))
        if scanner.match("("):
            members = [self._type()]
            while scanner.match(","):
                members.append(self._type())
            scanner.expect(")", "at the end of a union type")
            return lambda names: UnionType(tuple(member(names) for member in members))
        scanner.fail("a type is missing")

    def _named_type(self, name: str) -> TypeSyntax:
        scanner = self._scanner
        if name == "error":
            scanner.expect("(", "after 'error'")
            inner = self._type()
            scanner.expect(")", "at the end of an error type")
            return lambda names: ErrorType(inner(names))
        if name == "enum":
            return self._enum_type()
        if name in PRIMITIVES:
            return lambda names: PRIMITIVES[name]
        offset = scanner.at
        if scanner.match("="):
            definition = self._type()
            return lambda names: names.define(name, definition(names))

        def lookup(names: Names) -> Type:
            type = names.lookup(name)
            if type is None:
                raise InvalidZson(f"no type is named {name!r}", offset)
            return type

        return lookup

    def _record_type(self) -> TypeSyntax:
        scanner = self._scanner
        fields: list[tuple[str, TypeSyntax]] = []
        while (name := scanner.name()) is not None:
            scanner.expect(":", f"after the field name {name!r}")
            fields.append((name, self._type()))
            if not scanner.match(","):
                break
        scanner.expect("}", "at the end of a record type")
        return lambda names: RecordType(tuple(Field(name, type(names)) for name, type in fields))

    def _enum_type(self) -> TypeSyntax:
        scanner = self._scanner
        scanner.expect("(", "after 'enum'")
        symbols: list[str] = []
        while (name := scanner.name()) is not None:
            symbols.append(name)
            if not scanner.match(","):
                break
        scanner.expect(")", "at the end of an enum type")
        return lambda names: EnumType(tuple(symbols))
