"""Type values: types that are values of the type `type`, in their binary form."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

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

_MAX_NESTING = 200
"""How many names and types may be nested while a type value is read."""


class _Code(IntEnum):
    """The first byte of a complex type."""

    RECORD = 30
    ARRAY = 31
    SET = 32
    MAP = 33
    UNION = 34
    ENUM = 35
    ERROR = 36
    NAME_DEFINITION = 37
    NAME = 38


def encode_type(type: Type) -> bytes:
    """Return the body of the value that represents a type."""
    out = bytearray()
    _append(out, type, {})
    return bytes(out)


def _append(out: bytearray, type: Type, names: dict[str, Type]) -> None:
    match type:
        case NamedType(name, inner):
            known = names.get(name) == inner
            out.append(_Code.NAME if known else _Code.NAME_DEFINITION)
            out += encode_name(name)
            if not known:
                _append(out, inner, names)
                names[name] = inner  # after the inner type, which may bind the name itself
        case PrimitiveType():
            out.append(type.id)
        case RecordType(fields):
            out.append(_Code.RECORD)
            out += uvarint(len(fields))
            for each in fields:
                out += encode_name(each.name)
                _append(out, each.type, names)
        case ArrayType(element):
            out.append(_Code.ARRAY)
            _append(out, element, names)
        case SetType(element):
            out.append(_Code.SET)
            _append(out, element, names)
        case MapType(key, value):
            out.append(_Code.MAP)
            _append(out, key, names)
            _append(out, value, names)
        case UnionType(types):
            out.append(_Code.UNION)
            out += uvarint(len(types))
            for member in types:
                _append(out, member, names)
        case EnumType(symbols):
            out.append(_Code.ENUM)
            out += uvarint(len(symbols))
            for symbol in symbols:
                out += encode_name(symbol)
        case ErrorType(inner):
            out.append(_Code.ERROR)
            _append(out, inner, names)


def decode_type(body: bytes) -> Type:
    """Return the type that a value of the type `type` represents. Raises InvalidZng."""
    reader = _Reader(body, "a type value")
    try:
        type = reader.type(0)
    except InvalidType as error:
        raise InvalidZng(f"a type value is not valid: {error}") from None
    if reader.at < len(body):
        raise InvalidZng(f"a type value has {len(body) - reader.at} bytes after its end")
    return type


@dataclass(slots=True)
class _Reader(TypeReader):
    names: dict[str, Type] = field(default_factory=dict)

    def type(self, nesting: int) -> Type:
        if nesting > _MAX_NESTING:
            raise InvalidZng(f"a type value is nested more than {_MAX_NESTING} levels deep")
        code = self.number()
        if code < FIRST_COMPLEX_ID:
            if code not in PRIMITIVES_BY_ID:
                raise InvalidZng(f"no primitive type has the id {code}")
            return PRIMITIVES_BY_ID[code]
        return self._complex_type(code, nesting + 1)

    def _complex_type(self, code: int, nesting: int) -> Type:
        match code:
            case _Code.NAME_DEFINITION:
                name = self.name()
                inner = self.type(nesting)
                self.names[name] = inner
                return NamedType(name, inner)
            case _Code.NAME:
                name = self.name()
                if name not in self.names:
                    raise InvalidZng(f"a type value refers to the name {name!r}, which it does not define")
                return NamedType(name, self.names[name])
            case _Code.RECORD:
                return RecordType(tuple(Field(self.name(), self.type(nesting)) for _ in range(self.count())))
            case _Code.ARRAY:
                return ArrayType(self.type(nesting))
            case _Code.SET:
                return SetType(self.type(nesting))
            case _Code.MAP:
                return MapType(self.type(nesting), self.type(nesting))
            case _Code.UNION:
                return UnionType(tuple(self.type(nesting) for _ in range(self.count())))
            case _Code.ENUM:
                return EnumType(tuple(self.name() for _ in range(self.count())))
            case _Code.ERROR:
                return ErrorType(self.type(nesting))
        raise InvalidZng(f"a type value has the unknown code {code}")
