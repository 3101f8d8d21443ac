"""Values as lines of JSON, as `zed` writes and reads them.

JSON has fewer types: a value that is written as a string or a number is read as one. Values of unions are written
without their tags, enums as their symbols, sets as arrays, maps as objects, errors as objects with the one key `error`.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from lake_core.pool import types
from lake_core.pool.errors import InvalidJson, InvalidType, InvalidValue
from lake_core.pool.primitive import DECODERS, encode_int
from lake_core.pool.types import (
    FLOATS,
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
    UnionType,
    under,
)
from lake_core.pool.value import NULL_VALUE, Value, split_map, split_record, symbol_of, united
from lake_core.pool.zng.tag import split, tagged
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.primitive_text import format_primitive
from lake_core.pool.zson.quoting import quoted_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NUMBERS: Final = (UNSIGNED.keys() | SIGNED.keys()) - {types.DURATION, types.TIME}
_SPACES: Final = " \t\r\n"
_BLANK: Final = re.compile(f"[{_SPACES}]*")


def read_ndjson(lines: Iterable[str]) -> Iterator[Value]:
    """Yield the values of lines; empty lines are skipped. Raises InvalidJson, with the line's number."""
    for number, line in enumerate(lines, 1):
        value = parse_line(line, number)
        if value is not None:
            yield value


def lines_of_objects(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of JSON, each of which holds one object or is empty.

    The values of other lines can be stored, but records have fields, and a key.

    Raises InvalidJson for any other line, with its number.
    """
    for number, line in enumerate(lines, 1):
        text = line.lstrip(_SPACES)
        if text and text[0] != "{":
            what = "an array" if text[0] == "[" else "no object"
            raise InvalidJson(
                f"line {number}: {text.rstrip()[:40]!r} is {what}; write one object on each line, such as "
                '{"ts":1,"level":"info"}, without an array around them'
            )
        yield line


def parse_line(line: str, number: int) -> Value | None:
    """Return the value of a line with a number; None for an empty one. Raises InvalidJson, with the number."""
    if _BLANK.fullmatch(line):
        return None
    try:
        return parse_json(line)
    except InvalidJson as error:
        raise InvalidJson(f"line {number}: {error}") from None


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
            return _object(
                (each.name, Value(each.type, inner))
                for each, inner in zip(fields, split_record(type, body), strict=True)
            )
        case ArrayType(element) | SetType(element):
            return f"[{','.join([format_json(Value(element, each)) for each in split(body)])}]"
        case MapType():
            return _object((_map_key(Value(type.key, key)), Value(type.value, each)) for key, each in split_map(body))
        case EnumType():
            return _string(symbol_of(type, body))
        case ErrorType(inner):
            return _object([("error", Value(inner, body))])
    raise AssertionError(f"unexpected type {type!r}")


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
    return quoted_string(text).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _primitive(type: PrimitiveType, body: bytes) -> str:
    if type in _NUMBERS or type == types.BOOL:
        return format_primitive(type, body)
    if type in FLOATS:
        return format_number(DECODERS[type](body))
    return _string(_text(body) if type == types.STRING else format_primitive(type, body))


def format_number(number: float) -> str:
    """Return a float as JSON. Raises InvalidJson for infinity and not a number."""
    if not math.isfinite(number):
        raise InvalidJson(f"{number} cannot be written as JSON; leave out such values, or write ZSON")
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

    Whole numbers of 64 bits are int64, others float64; objects are records, arrays of several types hold a union. If
    two fields have the same name, the second one is used.
    """
    try:
        decoded = json.loads(text, parse_int=_parse_int, parse_constant=refuse_constant)
        return _value(decoded)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the text is not JSON: {error}") from None
    except (InvalidType, InvalidValue) as error:
        raise InvalidJson(f"the text cannot be stored as a Zed value: {error}") from None
    except RecursionError:
        raise InvalidJson("the text is nested too deeply; store the inner values as text instead") from None


def _parse_int(text: str) -> int | float:
    # Longer integers are read as floats: parsing an integer takes time that grows with the square of its digits.
    if len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    return float(text)


def refuse_constant(text: str) -> None:
    """Raise InvalidJson for a constant that JSON does not have."""
    raise InvalidJson(f"{text} is not valid JSON; write null instead")


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
    element, bodies = united([_value(each) for each in decoded])
    return Value(ArrayType(element), b"".join(map(tagged, bodies)))
