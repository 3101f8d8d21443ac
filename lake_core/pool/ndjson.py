"""Values as lines of JSON, as `zed` writes and reads them.

JSON has fewer types: what is written as a string or a number comes back as one. Values of unions are written without their tags, enums as
their symbols, sets as arrays, maps as objects, errors as objects with the one key `error`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

from lake_core.pool import types
from lake_core.pool.errors import InvalidJson, InvalidType, InvalidValue, InvalidZng
from lake_core.pool.primitive import DECODERS, encode_int
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
    unique_types,
)
from lake_core.pool.value import NULL_VALUE, Value, symbol_of, union_body
from lake_core.pool.zng.tag import split, tagged
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.primitive_text import format_primitive

_NUMBERS: Final = (UNSIGNED.keys() | SIGNED.keys()) - {types.DURATION, types.TIME}
_TO_ESCAPE: Final = re.compile('[\\x00-\\x1f"\\\\\u2028\u2029]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def write_ndjson(values: Iterable[Value]) -> Iterator[str]:
    """Yield values as lines, each with its newline. Raises InvalidJson for numbers that JSON does not have."""
    for value in values:
        yield f"{format_json(value)}\n"


def read_ndjson(lines: Iterable[str]) -> Iterator[Value]:
    """Yield the values of lines; empty lines are skipped. Raises InvalidJson, with the line's number."""
    for number, line in enumerate(lines, 1):
        if not _BLANK.fullmatch(line):
            try:
                value = parse_json(line)
            except InvalidJson as error:
                raise InvalidJson(f"line {number}: {error}") from None
            yield value


def format_json(value: Value) -> str:
    """Return a value as JSON on one line. Raises InvalidJson for numbers that JSON does not have."""
    plain = value.under()
    type, body = plain.type, plain.body
    if body is None:
        return "null"
    match type:
        case PrimitiveType():
            return _primitive(type, body)
        case RecordType(fields):
            bodies = split(body)
            if len(bodies) != len(fields):
                raise InvalidZng(f"a record of {len(fields)} fields has {len(bodies)} values")
            return _object((each.name, Value(each.type, inner)) for each, inner in zip(fields, bodies, strict=True))
        case ArrayType(element) | SetType(element):
            return f"[{','.join([format_json(Value(element, each)) for each in split(body)])}]"
        case MapType():
            bodies = split(body)
            if len(bodies) % 2:
                raise InvalidZng("a map has a key without a value")
            keys = [_map_key(Value(type.key, each)) for each in bodies[::2]]
            return _object(zip(keys, [Value(type.value, each) for each in bodies[1::2]], strict=True))
        case EnumType():
            return _string(symbol_of(type, body))
        case ErrorType(inner):
            return _object([("error", Value(inner, body))])
    raise AssertionError(f"{type!r} is no type")


def _object(entries: Iterable[tuple[str, Value]]) -> str:
    return "{" + ",".join([f"{_string(name)}:{format_json(value)}" for name, value in entries]) + "}"


def _map_key(key: Value) -> str:
    type = under(key.type)
    if isinstance(type, PrimitiveType):
        if type == types.STRING:
            return _text(key.body or b"")
        return "null" if key.body is None else format_primitive(type, key.body)
    if isinstance(type, EnumType) and key.body is not None:
        return symbol_of(type, key.body)
    return format_value(key.under() if isinstance(type, UnionType) else key)


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def _string(text: str) -> str:
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match.group()) or f"\\u{ord(match.group()):04x}"


def _primitive(type: PrimitiveType, body: bytes) -> str:
    if type in _NUMBERS or type == types.BOOL:
        return format_primitive(type, body)
    if type in FLOATS:
        return format_number(DECODERS[type](body))
    return _string(_text(body) if type == types.STRING else format_primitive(type, body))


def format_number(number: float) -> str:
    """Return a float as JSON. Raises InvalidJson for infinity and not a number."""
    if not math.isfinite(number):
        raise InvalidJson(f"{number} has no form in JSON; leave such values out, or write ZSON")
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    shortest = Decimal(repr(number)).normalize()
    if 1e-6 <= abs(number) < 1e21:
        return format(shortest, "f")
    sign, digits, exponent = shortest.as_tuple()
    power = int(exponent) + len(digits) - 1
    mantissa = "".join(map(str, digits))
    return f"{'-' if sign else ''}{mantissa[0]}{'.' if mantissa[1:] else ''}{mantissa[1:]}e{power:+}"


def parse_json(text: str) -> Value:
    """Return the value of a JSON text. Raises InvalidJson.

    Whole numbers of 64 bits are int64, others float64; objects are records, arrays of several types hold a union. Of two fields with one
    name, the second one counts.
    """
    try:
        decoded = json.loads(text, parse_int=_parse_int, parse_constant=_refuse)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidJson(f"the text is not JSON: {error}") from None
    try:
        return _value(decoded)
    except (InvalidType, InvalidValue, RecursionError) as error:
        raise InvalidJson(f"the text has no form as a Zed value: {error}") from None


def _parse_int(text: str) -> int | float:
    # Only as many digits as fit are read as an integer: that takes time that grows with their square.
    if len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    return float(text)


def _refuse(text: str) -> None:
    raise InvalidJson(f"{text} is no number of JSON; write null instead")


def _value(decoded: Any) -> Value:
    match decoded:
        case None:
            return NULL_VALUE
        case bool():
            return Value.of(types.BOOL, decoded)
        case int():
            return Value(types.INT64, encode_int(decoded))
        case float():
            if math.isinf(decoded):
                raise InvalidValue("a number is out of the range of float64; write it as a string")
            return Value.of(types.FLOAT64, decoded)
        case str():
            return Value.of(types.STRING, decoded)
        case dict():
            values = [(name, _value(each)) for name, each in decoded.items()]
            type = RecordType(tuple(Field(name, value.type) for name, value in values))
            return Value(type, b"".join([tagged(value.body) for _, value in values]))
    return _array([_value(each) for each in decoded])


def _array(values: list[Value]) -> Value:
    distinct = [type for type in unique_types(value.type for value in values) if type != NULL]
    if len(distinct) < 2:
        element: Type = distinct[0] if distinct else NULL
        return Value(ArrayType(element), b"".join([tagged(value.body) for value in values]))
    union = UnionType(tuple(distinct))
    position: Callable[[Type], int] = union.types.index
    bodies = [None if value.body is None else union_body(position(value.type), value.body) for value in values]
    return Value(ArrayType(union), b"".join(map(tagged, bodies)))
