"""Type definitions: how a ZNG stream numbers the types of its values."""

from __future__ import annotations

from typing import Final

from lake_core.pool.errors import InvalidType, InvalidZng
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
from lake_core.varint import InvalidVarint, read_uvarint, uvarint

_RECORD, _ARRAY, _SET, _MAP, _UNION, _ENUM, _ERROR, _NAMED = range(8)
MAX_TYPES: Final = 1_000_000
"""How many types one stream may define."""


class TypeEncoder:
    """Numbers the types of a stream in the order in which they are written, and collects their definitions."""

    def __init__(self) -> None:
        self._ids: dict[Type, int] = {}
        self._definitions = bytearray()

    def id(self, type: Type) -> int:
        """Return the id of a type. A type that is new to the stream is defined, behind the types that it consists of."""
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
        """Return the bytes of the definitions that were not taken yet."""
        return len(self._definitions)

    def take(self) -> bytes:
        """Return the definitions that were not taken yet."""
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
                parts = [(_name(each.name), uvarint(self.id(each.type))) for each in fields]
                return bytes((_RECORD,)) + uvarint(len(parts)) + b"".join(part for pair in parts for part in pair)
            case ArrayType(element):
                return bytes((_ARRAY,)) + uvarint(self.id(element))
            case SetType(element):
                return bytes((_SET,)) + uvarint(self.id(element))
            case MapType(key, value):
                return bytes((_MAP,)) + uvarint(self.id(key)) + uvarint(self.id(value))
            case UnionType(types):
                ids = [uvarint(self.id(member)) for member in types]
                return bytes((_UNION,)) + uvarint(len(ids)) + b"".join(ids)
            case EnumType(symbols):
                return bytes((_ENUM,)) + uvarint(len(symbols)) + b"".join(map(_name, symbols))
            case ErrorType(inner):
                return bytes((_ERROR,)) + uvarint(self.id(inner))
            case NamedType(name, inner):
                number = self.id(inner)
                return bytes((_NAMED,)) + _name(name) + uvarint(number)
        raise AssertionError(f"{type!r} is no type")


def _name(name: str) -> bytes:
    encoded = name.encode()
    return uvarint(len(encoded)) + encoded


class TypeDecoder:
    """The types that a stream has defined so far, by their ids."""

    def __init__(self) -> None:
        self._types: list[Type] = []
        self._known: set[Type] = set()
        self._payload = b""
        self._at = 0

    def lookup(self, id: int) -> Type:
        """Return the type of an id. Raises InvalidZng."""
        if id >= FIRST_COMPLEX_ID:
            if id - FIRST_COMPLEX_ID < len(self._types):
                return self._types[id - FIRST_COMPLEX_ID]
        elif id in PRIMITIVES_BY_ID:
            return PRIMITIVES_BY_ID[id]
        raise InvalidZng(f"the stream defines no type with the id {id}")

    def reset(self) -> None:
        """Forget all types: a stream has ended."""
        self._types = []
        self._known = set()

    def decode(self, payload: bytes) -> None:
        """Add the types that the payload of a frame defines. Raises InvalidZng."""
        self._payload, self._at = payload, 0
        while self._at < len(payload):
            try:
                self._add(self._read_definition())
            except InvalidType as error:
                raise InvalidZng(f"the stream defines a type that is not valid: {error}") from None

    def _add(self, type: Type) -> None:
        # A type that is defined again has no second id.
        if type in self._known:
            return
        if len(self._types) >= MAX_TYPES:
            raise InvalidZng(f"the stream defines more than {MAX_TYPES} types")
        self._known.add(type)
        self._types.append(type)

    def _read_definition(self) -> Type:
        code = self._payload[self._at]
        self._at += 1
        match code:
            case 0:
                return RecordType(tuple(Field(self._read_name(), self._read_type()) for _ in range(self._read_count())))
            case 1:
                return ArrayType(self._read_type())
            case 2:
                return SetType(self._read_type())
            case 3:
                return MapType(self._read_type(), self._read_type())
            case 4:
                return UnionType(tuple(self._read_type() for _ in range(self._read_count())))
            case 5:
                return EnumType(tuple(self._read_name() for _ in range(self._read_count())))
            case 6:
                return ErrorType(self._read_type())
            case 7:
                return NamedType(self._read_name(), self._read_type())
        raise InvalidZng(f"a type definition has the unknown code {code}")

    def _read_number(self) -> int:
        try:
            number, self._at = read_uvarint(self._payload, self._at)
        except InvalidVarint as error:
            raise InvalidZng(f"a type definition is cut short: {error}") from None
        return number

    def _read_count(self) -> int:
        """Return a number of items, each of which takes at least one byte."""
        count = self._read_number()
        if count > len(self._payload) - self._at:
            raise InvalidZng(f"a type definition declares {count} items, more than its frame has bytes")
        return count

    def _read_type(self) -> Type:
        return self.lookup(self._read_number())

    def _read_name(self) -> str:
        size = self._read_count()
        name = self._payload[self._at : self._at + size]
        self._at += size
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise InvalidZng(f"a name in a type definition is not UTF-8: {name[:40]!r}") from None
