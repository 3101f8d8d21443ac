"""The syntax trees of ZSON: values as they are written, before their types are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lake_core.pool.types import NamedType, PrimitiveType, Type

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Names:
    """The names of types that a text has defined so far.

    Attributes:
        types: Those of the current value.
        earlier: Those of the values before it.
    """

    types: dict[str, Type] = field(default_factory=dict)
    earlier: dict[str, Type] = field(default_factory=dict)

    def lookup(self, name: str) -> Type | None:
        """Return the type of a name, or None if it is not defined."""
        return self.types.get(name) or self.earlier.get(name)

    def of_value(self) -> Names:
        """Return only the names of the current value. Names that are defined in them are defined here, too."""
        return Names(self.types)

    def end_value(self) -> None:
        """Add the names of the current value to the earlier ones."""
        self.earlier.update(self.types)
        self.types = {}

    def define(self, name: str, type: Type) -> Type:
        """Bind a name, and return the named type. A name of digits only is an abbreviation: the type gets no name."""
        self.types[name] = type if name.isdecimal() else NamedType(name, type)
        return self.types[name]

    def type_value(self, syntax: TypeSyntax) -> Type:
        """Return the type of a type value.

        Names that it defines are known after it, unless they have a type already.
        """
        inner = Names(dict(self.types), self.earlier)
        type = syntax(inner)
        self.types = inner.types | self.types
        return type


TypeSyntax: TypeAlias = "Callable[[Names], Type]"
"""A type as it is written. Called with the names that are defined so far, it defines others and returns the type."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A number, string or another primitive value, or null, with the type that follows from its text."""

    type: PrimitiveType
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a record."""

    fields: tuple[tuple[str, Syntax], ...]


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of an array."""

    elements: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Set:
    """The elements of a set."""

    elements: tuple[Syntax, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """The entries of a map."""

    entries: tuple[tuple[Syntax, Syntax], ...]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of an enum."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type that is a value."""

    type: TypeSyntax


@dataclass(frozen=True, slots=True)
class Error:
    """An error, and what it carries."""

    value: Syntax


@dataclass(frozen=True, slots=True)
class Definition:
    """A value that gives its type a name: `value(=name)`."""

    value: Syntax
    name: str


@dataclass(frozen=True, slots=True)
class Cast:
    """A value followed by its type: `value(type)`."""

    value: Syntax
    type: TypeSyntax


Syntax: TypeAlias = Primitive | Record | Array | Set | Map | Symbol | TypeValue | Error | Definition | Cast
