"""Type values: types that are values of the type `type`, in their binary form."""

from __future__ import annotations

from dataclasses import dataclass, field

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

_RECORD, _ARRAY, _SET, _MAP, _UNION, _ENUM, _ERROR, _NAME_DEFINITION, _NAME = range(30, 39)
_MAX_NESTING = 200
"""Names and nested types that may be open at a time while a type value is read."""


def encode_type(type: Type) -> bytes:
    """Return the body of the value that stands for a type."""
    out = bytearray()
    _append(out, type, {})
    return bytes(out)


def _append(out: bytearray, type: Type, names: dict[str, Type]) -> None:
    match type:
        case NamedType(name, inner):
            known = names.get(name) == inner
            out.append(_NAME if known else _NAME_DEFINITION)
            _append_name(out, name)
            if not known:
                _append(out, inner, names)
                names[name] = inner  # after the inner type, which may bind the name itself
        case PrimitiveType():
            out.append(type.id)
        case RecordType(fields):
            out.append(_RECORD)
            out += uvarint(len(fields))
            for each in fields:
                _append_name(out, each.name)
                _append(out, each.type, names)
        case ArrayType(element):
            out.append(_ARRAY)
            _append(out, element, names)
        case SetType(element):
            out.append(_SET)
            _append(out, element, names)
        case MapType(key, value):
            out.append(_MAP)
            _append(out, key, names)
            _append(out, value, names)
        case UnionType(types):
            out.append(_UNION)
            out += uvarint(len(types))
            for member in types:
                _append(out, member, names)
        case EnumType(symbols):
            out.append(_ENUM)
            out += uvarint(len(symbols))
            for symbol in symbols:
                _append_name(out, symbol)
        case ErrorType(inner):
            out.append(_ERROR)
            _append(out, inner, names)


def _append_name(out: bytearray, name: str) -> None:
    encoded = name.encode()
    out += uvarint(len(encoded))
    out += encoded


def decode_type(body: bytes) -> Type:
    """Return the type that a value of the type `type` stands for. Raises InvalidZng."""
    reader = _Reader(body)
    try:
        type = reader.type(0)
    except InvalidType as error:
        raise InvalidZng(f"a type value is not valid: {error}") from None
    if reader.at < len(body):
        raise InvalidZng(f"a type value has {len(body) - reader.at} bytes behind its end")
    return type


@dataclass(slots=True)
class _Reader:
    body: bytes
    at: int = 0
    names: dict[str, Type] = field(default_factory=dict)

    def number(self) -> int:
        try:
            number, self.at = read_uvarint(self.body, self.at)
        except InvalidVarint as error:
            raise InvalidZng(f"a type value is cut short: {error}") from None
        return number

    def count(self) -> int:
        """Return a number of items, each of which takes at least one byte."""
        count = self.number()
        if count > len(self.body) - self.at:
            raise InvalidZng(f"a type value declares {count} items, more than it has bytes")
        return count

    def name(self) -> str:
        size = self.count()
        name = self.body[self.at : self.at + size]
        self.at += size
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise InvalidZng(f"a name in a type value is not UTF-8: {name[:40]!r}") from None

    def type(self, nesting: int) -> Type:
        if nesting > _MAX_NESTING:
            raise InvalidZng(f"a type value nests more than {_MAX_NESTING} types in one another")
        code = self.number()
        if code < FIRST_COMPLEX_ID:
            if code not in PRIMITIVES_BY_ID:
                raise InvalidZng(f"no primitive type has the id {code}")
            return PRIMITIVES_BY_ID[code]
        return self._complex_type(code, nesting + 1)

    def _complex_type(self, code: int, nesting: int) -> Type:
        match code:
            case 37:
                name = self.name()
                inner = self.type(nesting)
                self.names[name] = inner
                return NamedType(name, inner)
            case 38:
                name = self.name()
                if name not in self.names:
                    raise InvalidZng(f"a type value refers to the name {name!r}, which it does not define")
                return NamedType(name, self.names[name])
            case 30:
                return RecordType(tuple(Field(self.name(), self.type(nesting)) for _ in range(self.count())))
            case 31:
                return ArrayType(self.type(nesting))
            case 32:
                return SetType(self.type(nesting))
            case 33:
                return MapType(self.type(nesting), self.type(nesting))
            case 34:
                return UnionType(tuple(self.type(nesting) for _ in range(self.count())))
            case 35:
                return EnumType(tuple(self.name() for _ in range(self.count())))
            case 36:
                return ErrorType(self.type(nesting))
        raise InvalidZng(f"a type value has the unknown code {code}")
