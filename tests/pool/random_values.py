"""Random types and values of all kinds, and what their texts can tell."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from typing import Any

import pytest

from lake_core.pool import types
from lake_core.pool.errors import InvalidJson
from lake_core.pool.ndjson import format_json
from lake_core.pool.types import (
    FLOATS,
    PRIMITIVES,
    SIGNED,
    UNSIGNED,
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
    under,
)
from lake_core.pool.value import Tagged, Value

_LEAVES = tuple(PRIMITIVES.values())
_NAMES = ("a", "b", "key", "snow ☃", "x.y", "_id", "9")


def seeds(few: int, many: int) -> list[Any]:
    """Return seeds of random tests: a few for every run, more for exhaustive ones."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(few, many))]


def random_type(rng: random.Random, depth: int = 3) -> Type:
    """Return a type that nests at most `depth` others."""
    kind = rng.randrange(14) if depth else 0
    inner = lambda: random_type(rng, depth - 1)  # noqa: E731
    match kind:
        case 6 | 7:
            return random_record_type(rng, depth - 1)
        case 8:
            return ArrayType(inner())
        case 9:
            return SetType(inner())
        case 10:
            return MapType(inner(), inner())
        case 11:
            return UnionType(tuple(dict.fromkeys(inner() for _ in range(rng.randint(1, 3)))))
        case 12:
            return EnumType(tuple(rng.sample(("up", "down", "left", "r s"), rng.randint(1, 4))))
        case 13:
            return rng.choice((ErrorType(inner()), NamedType(rng.choice(("port", "x.y", "a b")), inner())))
    return rng.choice(_LEAVES)


def random_record_type(rng: random.Random, depth: int = 3) -> RecordType:
    """Return a record type."""
    names = rng.sample(_NAMES, rng.randint(0, 5))
    return RecordType(tuple(Field(name, random_type(rng, depth)) for name in names))


def random_value(rng: random.Random, type: Type) -> Value:
    """Return a value of a type."""
    return Value.of(type, random_object(rng, type))


def random_object(rng: random.Random, type: Type) -> Any:
    """Return an object that stands for a value of a type."""
    if rng.random() < 0.15:
        return None
    many = range(rng.randint(0, 4))
    match under(type):
        case PrimitiveType() as primitive:
            return _random_primitive(rng, primitive)
        case RecordType(fields):
            return {each.name: random_object(rng, each.type) for each in fields}
        case ArrayType(element) | SetType(element):
            return [random_object(rng, element) for _ in many]
        case MapType(key, value):
            keys = {Value.of(key, each).body: each for each in (random_object(rng, key) for _ in many)}  # each once
            return [(each, random_object(rng, value)) for each in keys.values()]
        case UnionType(members):
            tag = rng.randrange(len(members))
            return Tagged(tag, random_object(rng, members[tag]))
        case EnumType(symbols):
            return rng.choice(symbols)
        case ErrorType(inner):
            return random_object(rng, inner)
    raise AssertionError(type)


def _random_primitive(rng: random.Random, type: PrimitiveType) -> Any:
    if type in UNSIGNED:
        return rng.getrandbits(rng.randint(0, UNSIGNED[type]))
    if type in SIGNED:
        number = rng.getrandbits(rng.randint(0, SIGNED[type] - 1))
        return rng.choice((number, -number, -number - 1))
    if type in FLOATS:
        return rng.choice((0.0, 1.0, -1.5, 0.25, float("inf"), float("-inf"), float(rng.randint(-2000, 2000)) / 8))
    match type:
        case types.BOOL:
            return rng.random() < 0.5
        case types.BYTES:
            return rng.randbytes(rng.randint(0, 200))
        case types.STRING:
            return "".join(rng.choice('ab"\\\n☃é😀 ') for _ in range(rng.choice((0, 1, 5, 40, 150))))
        case types.IP:
            return ipaddress.ip_address(rng.randbytes(rng.choice((4, 16))))
        case types.NET:
            size = rng.choice((4, 16))
            return ipaddress.ip_network((rng.randbytes(size), rng.randint(0, size * 8)), strict=False)
        case types.TYPE:
            return random_type(rng, 2)
    return None


def has_two_types_of_one_name(type: Type) -> bool:
    """Tell whether a type gives one name to two types: `zed` prints only the first one's definition."""
    named = list(named_types(type))
    return len({name for name, _ in named}) < len(set(named))


def named_types(type: Type) -> Iterator[tuple[str, Type]]:
    """Yield the names in a type, and what they stand for."""
    match type:
        case NamedType(name, inner):
            yield name, inner
            yield from named_types(inner)
        case RecordType(fields):
            for each in fields:
                yield from named_types(each.type)
        case UnionType(members):
            for member in members:
                yield from named_types(member)
        case ArrayType(element) | SetType(element):
            yield from named_types(element)
        case MapType(key, value):
            yield from named_types(key)
            yield from named_types(value)
        case ErrorType(inner):
            yield from named_types(inner)


def is_told_by_text(type: Type) -> bool:
    """Tell whether the text that `zed` prints of a value tells its type in full, empty and null ones included."""
    match type:
        case UnionType(members):
            ambiguous = any(under(member) == types.NULL or isinstance(under(member), UnionType) for member in members)
            return len(members) > 1 and not ambiguous and all(map(is_told_by_text, members))
        case NamedType(_, inner) | ErrorType(inner):
            return not isinstance(inner, ArrayType | SetType | MapType | NamedType) and is_told_by_text(inner)
        case RecordType(fields):
            return all(is_told_by_text(each.type) for each in fields)
        case ArrayType(element) | SetType(element):
            return is_told_by_text(element)
        case MapType(key, value):
            return is_told_by_text(key) and is_told_by_text(value)
    return True


def is_finite(value: Value) -> bool:
    """Tell whether a value has a form in JSON."""
    try:
        return bool(format_json(value))
    except InvalidJson:
        return False
