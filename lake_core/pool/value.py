"""Values: a type and the bytes of a body, and conversions from and to Python objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from lake_core.pool.errors import InvalidValue, InvalidZng
from lake_core.pool.primitive import DECODERS, ENCODERS, decode_int, decode_uint, encode_int, encode_uint
from lake_core.pool.type_value import decode_type, encode_type
from lake_core.pool.types import (
    NULL,
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
    unique_types,
)
from lake_core.pool.zng.tag import normalized_map, normalized_set, split, tagged

Decoder: TypeAlias = "Callable[[bytes | None], Any]"
Encoder: TypeAlias = "Callable[[Any], bytes | None]"


class Tagged(NamedTuple):
    """A value of a union: the position of its type, and the value."""

    tag: int
    value: Any


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a Zed type.

    Attributes:
        type: Its type.
        body: Its bytes as ZNG stores them, without a tag; None for null.
    """

    type: Type
    body: bytes | None

    @classmethod
    def of(cls, type: Type, value: Any) -> Value:
        """Return a Python object as a value of a type. Raises InvalidValue; see `decode`."""
        return cls(type, encoder(type)(value))

    def decode(self) -> Any:
        """Return the value as a Python object.

        Raises InvalidZng if its bytes are not valid for its type.

        Integers are int, and so are times (nanoseconds since the Unix epoch) and durations (nanoseconds). Floats are
        float, strings str, bytes bytes, addresses and networks objects of the module ipaddress, types Type, null None.
        Records are dict, arrays and sets list, maps lists of pairs, enums their symbol, values of unions Tagged. Errors
        and named types are decoded as the values that they hold.
        """
        return decoder(self.type)(self.body)

    def under(self) -> Value:
        """Return the value below all names and unions."""
        type, body = under(self.type), self.body
        while isinstance(type, UnionType) and body is not None:
            tag, body = untag(type, body)
            type = under(type.types[tag])
        return Value(type, body)

    def field(self, *path: str) -> Value | None:
        """Return the value at a path of field names, or None if a record on the path is null or has no such field."""
        value = self
        for name in path:
            record = value.under()
            type, body = record.type, record.body
            if not isinstance(type, RecordType) or body is None:
                return None
            position = next((position for position, each in enumerate(type.fields) if each.name == name), None)
            if position is None:
                return None
            value = Value(type.fields[position].type, split_record(type, body)[position])
        return value


NULL_VALUE = Value(NULL, None)
"""Null of the type null."""


@lru_cache(maxsize=4096)
def decoder(type: Type) -> Decoder:
    """Return the function that decodes bodies of a type."""
    decode = _decoder_of_bodies(type)
    return lambda body: None if body is None else decode(body)


@lru_cache(maxsize=4096)
def encoder(type: Type) -> Encoder:
    """Return the function that encodes objects as bodies of a type."""
    encode = _encoder_of_objects(type)
    return lambda value: None if value is None else encode(value)


def _decoder_of_bodies(type: Type) -> Callable[[bytes], Any]:
    match type:
        case NamedType(_, inner) | ErrorType(inner):
            return _decoder_of_bodies(inner)
        case PrimitiveType():
            return DECODERS.get(type, decode_type)
        case RecordType():
            return _record_decoder(type)
        case ArrayType(element):
            decode = decoder(element)
            return lambda body: [decode(each) for each in split(body)]
        case SetType(element):
            return _set_decoder(decoder(element))
        case MapType():
            return _map_decoder(decoder(type.key), decoder(type.value))
        case UnionType():
            return _union_decoder(type)
        case EnumType():
            return _enum_decoder(type)
    raise AssertionError(f"unexpected type {type!r}")


def _encoder_of_objects(type: Type) -> Callable[[Any], bytes]:
    match type:
        case NamedType(_, inner) | ErrorType(inner):
            return _encoder_of_objects(inner)
        case PrimitiveType():
            return ENCODERS.get(type, _encode_type)
        case RecordType():
            return _record_encoder(type)
        case ArrayType(element):
            encode = encoder(element)
            return lambda values: b"".join([tagged(encode(each)) for each in _items(values)])
        case SetType(element):
            encode_element = encoder(element)
            return lambda values: normalized_set([tagged(encode_element(each)) for each in _items(values)])
        case MapType():
            return _map_encoder(encoder(type.key), encoder(type.value))
        case UnionType():
            return _union_encoder(type)
        case EnumType():
            return _enum_encoder(type)
    raise AssertionError(f"unexpected type {type!r}")


def split_record(type: RecordType, body: bytes) -> list[bytes | None]:
    """Return the bodies of a record's fields. Raises InvalidZng if there are more or fewer of them."""
    bodies = split(body)
    if len(bodies) != len(type.fields):
        raise InvalidZng(f"a record of {len(type.fields)} fields has {len(bodies)} values")
    return bodies


def split_map(body: bytes) -> list[tuple[bytes | None, bytes | None]]:
    """Return the bodies of a map's keys and values. Raises InvalidZng where a key has no value."""
    bodies = split(body)
    if len(bodies) % 2:
        raise InvalidZng("a map has a key without a value")
    return list(zip(bodies[::2], bodies[1::2], strict=True))


def _record_decoder(type: RecordType) -> Callable[[bytes], dict[str, Any]]:
    names = [each.name for each in type.fields]
    decoders = [decoder(each.type) for each in type.fields]

    def decode(body: bytes) -> dict[str, Any]:
        return {
            name: decode_field(each)
            for name, decode_field, each in zip(names, decoders, split_record(type, body), strict=True)
        }

    return decode


def _record_encoder(type: RecordType) -> Callable[[Any], bytes]:
    encoders = [(each.name, encoder(each.type)) for each in type.fields]

    def encode(values: Any) -> bytes:
        if not isinstance(values, Mapping):
            raise InvalidValue(f"{values!r} is not a record; give a mapping of names to values")
        if unknown := values.keys() - {name for name, _ in encoders}:
            raise InvalidValue(
                f"the type does not have the fields {sorted(unknown)}; remove them or add them to the type"
            )
        return b"".join([tagged(encode_field(values.get(name))) for name, encode_field in encoders])

    return encode


def _set_decoder(decode: Decoder) -> Callable[[bytes], list[Any]]:
    def decode_set(body: bytes) -> list[Any]:
        bodies = split(body)
        elements = [tagged(each) for each in bodies]
        if any(one >= other for one, other in pairwise(elements)):
            raise InvalidZng("the elements of a set are not sorted by their bytes, or are not unique")
        return [decode(each) for each in bodies]

    return decode_set


def _map_decoder(decode_key: Decoder, decode_value: Decoder) -> Callable[[bytes], list[tuple[Any, Any]]]:
    def decode(body: bytes) -> list[tuple[Any, Any]]:
        entries = split_map(body)
        keys = [tagged(key) for key, _ in entries]
        if any(one >= other for one, other in pairwise(keys)):
            raise InvalidZng("the keys of a map are not sorted by their bytes, or are not unique")
        return [(decode_key(key), decode_value(value)) for key, value in entries]

    return decode


def _map_encoder(encode_key: Encoder, encode_value: Encoder) -> Callable[[Any], bytes]:
    def encode(entries: Any) -> bytes:
        pairs = _items(entries.items() if isinstance(entries, Mapping) else entries)
        encoded = [(tagged(encode_key(key)), tagged(encode_value(value))) for key, value in pairs]
        if len({key for key, _ in encoded}) < len(encoded):
            raise InvalidValue("a map has duplicate keys; the keys of a Zed map must be unique")
        return normalized_map(encoded)

    return encode


def untag(type: UnionType, body: bytes) -> tuple[int, bytes | None]:
    """Return the tag of a union's value, and the body of what it holds. Raises InvalidZng."""
    parts = split(body)
    if len(parts) != 2 or parts[0] is None:
        raise InvalidZng("a value of a union does not consist of a tag and a value")
    tag = decode_int(parts[0])
    if not 0 <= tag < len(type.types):
        raise InvalidZng(f"a value of a union has the tag {tag}, but the union has {len(type.types)} types")
    return tag, parts[1]


def union_body(tag: int, body: bytes | None) -> bytes:
    """Return the body of a union's value."""
    return tagged(encode_int(tag)) + tagged(body)


def united(values: Sequence[Value]) -> tuple[Type, list[bytes | None]]:
    """Return the type of the elements of a container (a union for several types), and their bodies as values of it."""
    distinct = [type for type in unique_types(value.type for value in values) if type != NULL]
    if len(distinct) < 2:
        return distinct[0] if distinct else NULL, [value.body for value in values]
    union = UnionType(tuple(distinct))
    return union, [
        None if value.type == NULL else union_body(union.types.index(value.type), value.body) for value in values
    ]


def _union_decoder(type: UnionType) -> Callable[[bytes], Tagged]:
    decoders = [decoder(member) for member in type.types]

    def decode(body: bytes) -> Tagged:
        tag, inner = untag(type, body)
        return Tagged(tag, decoders[tag](inner))

    return decode


def _union_encoder(type: UnionType) -> Callable[[Any], bytes]:
    encoders = [encoder(member) for member in type.types]

    def encode(value: Any) -> bytes:
        if not isinstance(value, Tagged) or not 0 <= value.tag < len(encoders):
            raise InvalidValue(
                f"{value!r} is not a value of a union of {len(encoders)} types; give a Tagged with one of their tags"
            )
        return union_body(value.tag, encoders[value.tag](value.value))

    return encode


def symbol_of(type: EnumType, body: bytes) -> str:
    """Return the symbol of an enum's value. Raises InvalidZng."""
    position = decode_uint(body)
    if position >= len(type.symbols):
        raise InvalidZng(
            f"a value of an enum has the position {position}, but the enum has {len(type.symbols)} symbols"
        )
    return type.symbols[position]


def _enum_decoder(type: EnumType) -> Callable[[bytes], str]:
    return lambda body: symbol_of(type, body)


def _enum_encoder(type: EnumType) -> Callable[[Any], bytes]:
    positions = {symbol: position for position, symbol in reversed(list(enumerate(type.symbols)))}

    def encode(symbol: Any) -> bytes:
        position = positions.get(symbol) if isinstance(symbol, str) else None
        if position is None:
            raise InvalidValue(f"{symbol!r} is not a symbol of the enum; give one of {', '.join(type.symbols[:10])}")
        return encode_uint(position)

    return encode


def _encode_type(type: Any) -> bytes:
    if not isinstance(type, Type):
        raise InvalidValue(f"{type!r} is not a type; give a Type")
    return encode_type(type)


def _items(values: Any) -> Any:
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise InvalidValue(f"{values!r} is not a list of elements; give a list")
    return values
