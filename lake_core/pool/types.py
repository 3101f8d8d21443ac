"""The types of the Zed data model. Equal types compare equal wherever they come from, so that a type can be a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from lake_core.pool.errors import InvalidType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SortKey: TypeAlias = "tuple[Kind, tuple[object, ...], tuple[str, ...]]"

MAX_DEPTH: Final = 100
"""How deep types may nest. It bounds every recursion over types and values."""
MAX_NODES: Final = 200_000
"""How many types and names a type may consist of, counting each occurrence."""


class Kind(IntEnum):
    """The kind of a type below its names. Types of different kinds sort in this order."""

    PRIMITIVE = 0
    RECORD = 1
    ARRAY = 2
    SET = 3
    MAP = 4
    UNION = 5
    ENUM = 6
    ERROR = 7


@dataclass(frozen=True, slots=True)
class Type:
    """A Zed type. Only the subclasses are used.

    Attributes:
        depth: How many types are nested in one another, including this one.
        nodes: How many types and names it consists of, as a tree.
        sort_key: Sorts types in their total order: by kind, then by their components. A named type comes after the type
            below it.
    """

    depth: int = field(init=False, repr=False, compare=False)
    nodes: int = field(init=False, repr=False, compare=False)
    sort_key: SortKey = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        return self._hash

    def _measure(self, key: object, children: Iterable[Type], names: int = 0) -> None:
        """Compute the depth, the number of nodes and the hash once. Raises InvalidType beyond the limits."""
        depth, nodes = 1, 1 + names
        for child in children:
            depth = max(depth, child.depth + 1)
            nodes += child.nodes
        if depth > MAX_DEPTH:
            raise InvalidType(f"a type is nested more than {MAX_DEPTH} levels deep; store the value as text instead")
        if nodes > MAX_NODES:
            raise InvalidType(
                f"a type consists of more than {MAX_NODES} types and names; store the value as text instead"
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "_hash", hash((type(self), key)))

    def _sort_by(self, kind: Kind, *order: object) -> None:
        """Set the sort key to the kind and the components of the type."""
        object.__setattr__(self, "sort_key", (kind, order, ()))


@dataclass(frozen=True, slots=True)
class PrimitiveType(Type):
    """A type with a fixed id, such as `int64`."""

    id: int
    name: str

    def __post_init__(self) -> None:
        self._measure(self.id, ())
        self._sort_by(Kind.PRIMITIVE, self.id)

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record type."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class RecordType(Type):
    """A sequence of named fields. The order of the fields is part of the type."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidType(f"a record type has two fields named {twice!r}; rename one of them")
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise InvalidType(
                f"the field names {names!r} cannot be encoded as UTF-8; remove their lone surrogates"
            ) from None
        self._measure(self.fields, (each.type for each in self.fields), len(names))
        self._sort_by(Kind.RECORD, len(names), tuple(names), tuple(each.type.sort_key for each in self.fields))

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class ArrayType(Type):
    """A sequence of elements of one type."""

    element: Type

    def __post_init__(self) -> None:
        self._measure(self.element, (self.element,))
        self._sort_by(Kind.ARRAY, self.element.sort_key)

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class SetType(Type):
    """A set of elements of one type."""

    element: Type

    def __post_init__(self) -> None:
        self._measure(self.element, (self.element,))
        self._sort_by(Kind.SET, self.element.sort_key)

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class MapType(Type):
    """A map from keys of one type to values of one type."""

    key: Type
    value: Type

    def __post_init__(self) -> None:
        self._measure((self.key, self.value), (self.key, self.value))
        self._sort_by(Kind.MAP, self.key.sort_key, self.value.sort_key)

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class UnionType(Type):
    """A choice between types, kept in their total order however they are listed.

    A value's tag is the position of its type.
    """

    types: tuple[Type, ...]

    def __post_init__(self) -> None:
        if not self.types:
            raise InvalidType("a union has no types; list at least one")
        object.__setattr__(self, "types", tuple(sorted(self.types, key=sort_key)))
        self._measure(self.types, self.types)
        self._sort_by(Kind.UNION, len(self.types), tuple(each.sort_key for each in self.types))

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class EnumType(Type):
    """One of several symbols."""

    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        self._measure(self.symbols, (), len(self.symbols))
        self._sort_by(Kind.ENUM, len(self.symbols), self.symbols)

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class ErrorType(Type):
    """An error that carries a value of a type."""

    inner: Type

    def __post_init__(self) -> None:
        self._measure(self.inner, (self.inner,))
        self._sort_by(Kind.ERROR, self.inner.sort_key)

    __hash__ = Type.__hash__


@dataclass(frozen=True, slots=True)
class NamedType(Type):
    """A type under a name. Its values are those of the type below."""

    name: str
    inner: Type

    def __post_init__(self) -> None:
        if self.name in PRIMITIVES:
            raise InvalidType(f"a type cannot be named {self.name!r}: that is a primitive type; choose another name")
        self._measure((self.name, self.inner), (self.inner,))
        kind, order, _ = self.inner.sort_key
        object.__setattr__(self, "sort_key", (kind, order, (self.name,)))

    __hash__ = Type.__hash__


UINT8: Final = PrimitiveType(0, "uint8")
UINT16: Final = PrimitiveType(1, "uint16")
UINT32: Final = PrimitiveType(2, "uint32")
UINT64: Final = PrimitiveType(3, "uint64")
INT8: Final = PrimitiveType(6, "int8")
INT16: Final = PrimitiveType(7, "int16")
INT32: Final = PrimitiveType(8, "int32")
INT64: Final = PrimitiveType(9, "int64")
DURATION: Final = PrimitiveType(12, "duration")
TIME: Final = PrimitiveType(13, "time")
FLOAT16: Final = PrimitiveType(14, "float16")
FLOAT32: Final = PrimitiveType(15, "float32")
FLOAT64: Final = PrimitiveType(16, "float64")
BOOL: Final = PrimitiveType(23, "bool")
BYTES: Final = PrimitiveType(24, "bytes")
STRING: Final = PrimitiveType(25, "string")
IP: Final = PrimitiveType(26, "ip")
NET: Final = PrimitiveType(27, "net")
TYPE: Final = PrimitiveType(28, "type")
NULL: Final = PrimitiveType(29, "null")

_ALL = (
    *(UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, DURATION, TIME),
    *(FLOAT16, FLOAT32, FLOAT64, BOOL, BYTES, STRING, IP, NET, TYPE, NULL),
)
PRIMITIVES: Final = {primitive.name: primitive for primitive in _ALL}
PRIMITIVES_BY_ID: Final = {primitive.id: primitive for primitive in _ALL}
FIRST_COMPLEX_ID: Final = 30
"""The id of the first type that a stream defines."""

UNSIGNED: Final = {UINT8: 8, UINT16: 16, UINT32: 32, UINT64: 64}
"""The unsigned integers, and their bits."""
SIGNED: Final = {INT8: 8, INT16: 16, INT32: 32, INT64: 64, DURATION: 64, TIME: 64}
"""The types whose values are signed integers, and their bits."""
FLOATS: Final = {FLOAT16: 2, FLOAT32: 4, FLOAT64: 8}
"""The floating point numbers, and their bytes."""
NUMBERS: Final = UNSIGNED.keys() | SIGNED.keys() | FLOATS.keys()
"""The types whose values compare as numbers."""


def sort_key(type: Type) -> SortKey:
    """Return the key that sorts types in their total order."""
    return type.sort_key


def under(type: Type) -> Type:
    """Return the type below all names."""
    while isinstance(type, NamedType):
        type = type.inner
    return type


def fields_of(type: Type) -> tuple[Field, ...]:
    """Return the fields of a record type, whatever its names are; none of any other type."""
    record = under(type)
    return record.fields if isinstance(record, RecordType) else ()


def map_components(type: Type, function: Callable[[Type], Type]) -> Type:
    """Return a type in which each component type is what a function returns for it.

    The components are the types of a record's fields, the element of an array or set, the key and value of a map, and
    what an error carries. Any other type is returned as it is.
    """
    match type:
        case RecordType(fields):
            return RecordType(tuple(Field(each.name, function(each.type)) for each in fields))
        case ArrayType(element):
            return ArrayType(function(element))
        case SetType(element):
            return SetType(function(element))
        case MapType(key, value):
            return MapType(function(key), function(value))
        case ErrorType(inner):
            return ErrorType(function(inner))
    return type


def record(**fields: Type) -> RecordType:
    """Return a record type of fields in the order in which they are given."""
    return RecordType(tuple(Field(name, type) for name, type in fields.items()))


def unique_types(types: Iterable[Type]) -> tuple[Type, ...]:
    """Return each distinct type once, in their order."""
    return tuple(sorted(dict.fromkeys(types), key=sort_key))
