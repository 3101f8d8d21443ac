"""Type definitions: how a ZNG stream numbers the types of its values."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final

from lake_core.pool.errors import InvalidType, InvalidZng
from lake_core.pool.type_reader import TypeReader, encode_name
from lake_core.pool.types import (
    FIRST_COMPLEX_ID,
    PRIMITIVES_BY_ID,
    ArrayType,
    EnumType,
    ErrorType,
    Field,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    SetType,
    Type,
    UnionType,
)
from lake_core.varint import uvarint

MAX_TYPES: Final = 1_000_000
"""How many types one stream may define."""
_CACHED: Final = 64
_CACHED_BYTES: Final = 4096
"""The longest definitions, in bytes, that are kept after they were decoded."""


class _Code(IntEnum):
    """The first byte of a type definition."""

    RECORD = 0
    ARRAY = 1
    SET = 2
    MAP = 3
    UNION = 4
    ENUM = 5
    ERROR = 6
    NAMED = 7


class TypeEncoder:
    """An encoder that numbers the types of a stream in the order in which they are written.

    It collects their definitions.
    """

    def __init__(self) -> None:
        self._ids: dict[Type, int] = {}
        self._definitions = bytearray()

    def id(self, type: Type) -> int:
        """Return the id of a type. A type that is new to the stream is defined, after the types that it consists of."""
        if isinstance(type, PrimitiveType):
            return type.id
        known = self._ids.get(type)
        if known is not None:
            return known
        definition = self._definition(type)
        self._definitions += definition
        self._ids[type] = number = FIRST_COMPLEX_ID + len(self._ids)
        return number

    @property
    def pending(self) -> int:
        """Return how many bytes of definitions `take` would return."""
        return len(self._definitions)

    def take(self) -> bytes:
        """Return the definitions since the last call."""
        definitions = bytes(self._definitions)
        self._definitions.clear()
        return definitions

    def reset(self) -> None:
        """Forget all types: a stream has ended."""
        self._ids.clear()
        self._definitions.clear()

    def _definition(self, type: Type) -> bytes:
        match type:
            case RecordType(fields):
                parts = [(encode_name(each.name), uvarint(self.id(each.type))) for each in fields]
                return bytes((_Code.RECORD,)) + uvarint(len(parts)) + b"".join(part for pair in parts for part in pair)
            case ArrayType(element):
                return bytes((_Code.ARRAY,)) + uvarint(self.id(element))
            case SetType(element):
                return bytes((_Code.SET,)) + uvarint(self.id(element))
            case MapType(key, value):
                return bytes((_Code.MAP,)) + uvarint(self.id(key)) + uvarint(self.id(value))
            case UnionType(types):
                ids = [uvarint(self.id(member)) for member in types]
                return bytes((_Code.UNION,)) + uvarint(len(ids)) + b"".join(ids)
            case EnumType(symbols):
                return bytes((_Code.ENUM,)) + uvarint(len(symbols)) + b"".join(map(encode_name, symbols))
            case ErrorType(inner):
                return bytes((_Code.ERROR,)) + uvarint(self.id(inner))
            case NamedType(name, inner):
                number = self.id(inner)
                return bytes((_Code.NAMED,)) + encode_name(name) + uvarint(number)
        raise AssertionError(f"unexpected type {type!r}")


class TypeDecoder:
    """The types that a stream has defined so far, by their ids."""

    def __init__(self) -> None:
        self._types: list[Type] = []
        self._known: set[Type] = set()

    def lookup(self, id: int) -> Type:
        """Return the type of an id. Raises InvalidZng."""
        if id >= FIRST_COMPLEX_ID:
            if id - FIRST_COMPLEX_ID < len(self._types):
                return self._types[id - FIRST_COMPLEX_ID]
        elif id in PRIMITIVES_BY_ID:
            return PRIMITIVES_BY_ID[id]
        raise InvalidZng(f"the stream does not define a type with the id {id}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeDecoder) and self._types == other._types

    __hash__ = None  # type: ignore[assignment]

    def decode(self, payload: bytes) -> None:
        """Add the types that the payload of a frame defines. Raises InvalidZng."""
        if not self._types and len(payload) <= _CACHED_BYTES:
            # A file has many streams, and most of them begin with the same definitions.
            self._types = list(_types_of(payload))
            self._known = set(self._types)
        else:
            self._decode(payload)

    def _decode(self, payload: bytes) -> None:
        reader = TypeReader(payload, "a type definition")
        while reader.at < len(payload):
            try:
                self._add(self._read_definition(reader))
            except InvalidType as error:
                raise InvalidZng(f"the stream defines a type that is not valid: {error}") from None

    def _add(self, type: Type) -> None:
        # A type that is defined again does not get a second id.
        if type in self._known:
            return
        if len(self._types) >= MAX_TYPES:
            raise InvalidZng(f"the stream defines more than {MAX_TYPES} types")
        self._known.add(type)
        self._types.append(type)

    def _read_definition(self, reader: TypeReader) -> Type:
        code = reader.body[reader.at]
        reader.at += 1
        match code:
            case _Code.RECORD:
                return RecordType(
                    tuple(Field(reader.name(), self.lookup(reader.number())) for _ in range(reader.count()))
                )
            case _Code.ARRAY:
                return ArrayType(self.lookup(reader.number()))
            case _Code.SET:
                return SetType(self.lookup(reader.number()))
            case _Code.MAP:
                return MapType(self.lookup(reader.number()), self.lookup(reader.number()))
            case _Code.UNION:
                return UnionType(tuple(self.lookup(reader.number()) for _ in range(reader.count())))
            case _Code.ENUM:
                return EnumType(tuple(reader.name() for _ in range(reader.count())))
            case _Code.ERROR:
                return ErrorType(self.lookup(reader.number()))
            case _Code.NAMED:
                return NamedType(reader.name(), self.lookup(reader.number()))
        raise InvalidZng(f"a type definition has the unknown code {code}")


@lru_cache(_CACHED)
def _types_of(payload: bytes) -> tuple[Type, ...]:
    """Return the types that the first definitions of a stream define. Raises InvalidZng."""
    decoder = TypeDecoder()
    decoder._decode(payload)
    return tuple(decoder._types)
