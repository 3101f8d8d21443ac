"""Whole numbers in JSON, which has one kind of number: 710.0 and 7.1e2 are 710.

Writers whose JSON library has no integers write them so.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?')
_MOST_DIGITS = 19
"""The digits of the largest number that a field of the log can hold."""


def loads(text: bytes | str) -> Any:
    """Decode JSON. Numbers that are whole become int however they are written. Raises ValueError, RecursionError."""
    return json.loads(text, parse_float=_number)


def dumps(value: Any) -> str:
    """Encode JSON without spaces. Decimals keep all of their digits."""
    with suppress(TypeError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # There is a decimal, of which json.dumps cannot write all digits.
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumps(key)}:{dumps(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    assert isinstance(value, Decimal)
    return format(value, "f")


def with_whole_numbers(body: bytes) -> bytes:
    """Return JSON with its whole numbers written without fraction and exponent. Texts and other numbers stay."""
    return _TOKEN.sub(_whole, body)


def _whole(token: re.Match[bytes]) -> bytes:
    text = token[0]
    if text.startswith(b'"') or text.lstrip(b"-").isdigit():
        return text
    number = _number(text.decode())
    return str(number).encode() if isinstance(number, int) else text


def _number(text: str) -> int | float:
    exact = Decimal(text)
    if exact.adjusted() < _MOST_DIGITS and exact == exact.to_integral_value():
        return int(exact)
    return float(text)
