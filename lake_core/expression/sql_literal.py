"""Literals of the SQL parser's tree, with the types that Spark gives them on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from lake_core.arrow_scalar import scalar
from lake_core.expression.coercion import INTEGERS, TIMESTAMP, TIMESTAMP_NTZ
from lake_core.expression.errors import InvalidExpression, short
from lake_core.expression.literal import parse_date, parse_timestamp, to_number
from lake_core.expression.sql import short_sql
from lake_core.expression.tree import Literal

if TYPE_CHECKING:
    from decimal import Decimal


def literal(node: exp.Expr) -> Literal | None:
    """Return the literal of a parser's node, or None for any other node. Raises InvalidExpression."""
    match node:
        case exp.Literal(this=text):
            return Literal(scalar(text, pa.string())) if node.is_string else number_literal(text)
        case exp.RawString(this=text):
            return Literal(scalar(text, pa.string()))
        case exp.Concat(expressions=parts) if all(isinstance(part, exp.Literal) and part.is_string for part in parts):
            return Literal(scalar("".join(part.this for part in parts), pa.string()))  # 'a' 'b'
        case exp.Boolean(this=flag):
            return Literal(scalar(bool(flag)))
        case exp.Null():
            return Literal(scalar(None, pa.null()))
        case exp.HexString(this=digits):
            return Literal(scalar(hex_bytes(digits), pa.binary()))
    return None


def hex_bytes(digits: str) -> bytes:
    """Return the bytes of X'…'. If the number of digits is odd, the first digit is a byte of its own."""
    return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")


def typed_literal(text: str, target: exp.DataType) -> Literal | None:
    """Parse DATE '…' and TIMESTAMP '…'. Return None for any other type."""
    try:
        if target.this == exp.DataType.Type.DATE:
            return Literal(scalar(parse_date(text), pa.date32()))
        if target.this in (
            exp.DataType.Type.TIMESTAMPTZ,
            exp.DataType.Type.TIMESTAMPLTZ,
            exp.DataType.Type.TIMESTAMPNTZ,
        ):
            moment = parse_timestamp(text)
            zoned = target.this != exp.DataType.Type.TIMESTAMPNTZ
            if not zoned and moment.tzinfo is not None:
                raise ValueError(text)
            return Literal(scalar(moment, TIMESTAMP if zoned else TIMESTAMP_NTZ))
    except (ValueError, OverflowError):
        raise InvalidExpression(f"{text!r} is not a valid {short_sql(target)}") from None
    return None


def number_literal(text: str) -> Literal:
    """Return a number as Spark reads it: the first of INT, BIGINT and DECIMAL that fits, or DOUBLE for an exponent."""
    try:
        number = to_number(text)
        if "e" in text.lower():
            return _double_literal(float(text))
        if "." not in text:
            for kind in INTEGERS[2:]:
                if -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
                    return Literal(scalar(int(number), kind))
        return _decimal_literal(number)
    except (ValueError, ArithmeticError, pa.ArrowInvalid):
        raise InvalidExpression(f"{short(text)} is not a valid number") from None


def _double_literal(value: float) -> Literal:
    if value in (float("inf"), float("-inf")):
        raise ValueError(value)
    return Literal(scalar(value, pa.float64()))


def _decimal_literal(number: Decimal) -> Literal:
    digits, exponent = len(number.as_tuple().digits), number.as_tuple().exponent
    if not isinstance(exponent, int):  # not a number, or infinite
        raise ValueError(number)
    scale = max(-exponent, 0)
    return Literal(scalar(number, pa.decimal128(max(digits, scale), scale)))


def like_pattern(text: str, escape: str) -> str:
    """Return the pattern with a backslash as its escape character.

    Raises InvalidExpression where Spark does: for an escape character before an ordinary character.
    """
    if len(escape) != 1:
        raise InvalidExpression("ESCAPE takes one character")
    pattern, letters = [], iter(text)
    for letter in letters:
        if letter == escape:
            following = next(letters, None)
            if following not in ("%", "_", escape):
                raise InvalidExpression(f"LIKE {text!r}: {escape!r} must be followed by %, _ or {escape!r}")
            pattern.append(f"\\{following}" if following in "%_\\" else following)
        else:
            pattern.append("\\\\" if letter == "\\" else letter)
    return "".join(pattern)
