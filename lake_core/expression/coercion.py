"""Spark's ANSI type coercion: the common type of two operands, and the implicit casts that are allowed.

Behaves as Spark's AnsiTypeCoercion and DecimalPrecision with `spark.sql.ansi.enabled`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.expression.cast import cast_array, castable
from lake_core.expression.errors import EvaluationFailed, InvalidExpression
from lake_core.expression.tree import Call, Cast, Expression, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

INTEGERS: tuple[pa.DataType, ...] = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_MOMENTS = (pa.date32(), TIMESTAMP_NTZ, TIMESTAMP)
MAX_PRECISION = 38
_LEAST_SCALE = 6
"""The digits after the decimal point that a decimal keeps at least if not all of its digits fit."""

SPARK_NAMES = {
    pa.null(): "VOID",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}


def spark_name(kind: pa.DataType) -> str:
    """Return the name of a type in Spark SQL, for error messages and casts."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return SPARK_NAMES.get(kind, str(kind).upper())


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is integer, floating or decimal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds every value of an integer type. Return a decimal type unchanged."""
    return kind if pa.types.is_decimal(kind) else pa.decimal128(_DIGITS[kind], 0)


def decimal_operand(expression: Expression) -> Expression:
    """Convert an operand of decimal arithmetic to a decimal. The precision of a literal is its number of digits."""
    if (
        isinstance(expression, Literal) and expression.type in INTEGERS[1:] and expression.value.is_valid
    ):  # not TINYINT, in Spark
        return implicit(expression, pa.decimal128(len(str(abs(expression.value.as_py()))), 0))
    return implicit(expression, as_decimal(expression.type))


def bounded_decimal(precision: int, scale: int) -> pa.DataType:
    """Return the decimal type with this precision and scale. If it is too precise, cut digits after the point first."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _LEAST_SCALE))
    return pa.decimal128(MAX_PRECISION, kept)


def wider(left: pa.DataType, right: pa.DataType, *, promote_text: bool = True) -> pa.DataType | None:
    """Return the type to which both types are converted, or None if they have no common type.

    Decimals that together need more than 38 digits have none.
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _wider_number(left, right)
    if left in _MOMENTS and right in _MOMENTS:
        return _MOMENTS[max(_MOMENTS.index(left), _MOMENTS.index(right))]
    if promote_text and pa.types.is_string(left):
        return _promoted(right)
    if promote_text and pa.types.is_string(right):
        return _promoted(left)
    return None


def _wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left in INTEGERS and right in INTEGERS:
        return INTEGERS[max(INTEGERS.index(left), INTEGERS.index(right))]
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    return pa.decimal128(precision, scale) if precision <= MAX_PRECISION else None


def _promoted(other: pa.DataType) -> pa.DataType | None:
    """Return the type to which text is converted when it is combined with another type."""
    if pa.types.is_integer(other):
        return pa.int64()
    if is_number(other):
        return pa.float64()
    return other if other in SPARK_NAMES else None


def meet(what: str, expressions: Sequence[Expression], *, promote_text: bool = True) -> list[Expression]:
    """Convert all expressions to their common type. Raises InvalidExpression, which names `what`, if they have none."""
    kind = pa.null()
    for expression in expressions:
        common = wider(kind, expression.type, promote_text=promote_text)
        if common is None:
            listed = ", ".join(dict.fromkeys(spark_name(each.type) for each in expressions))
            raise InvalidExpression(f"{what}: {listed} do not have a common type; cast one of them")
        kind = common
    return [implicit(expression, kind) for expression in expressions]


def implicit(expression: Expression, kind: pa.DataType) -> Expression:
    """Return the expression with this type. Add a cast if its type differs. Convert a literal at once."""
    if expression.type == kind:
        return expression
    return cast_expression(expression, kind)


def cast_expression(expression: Expression, kind: pa.DataType, *, null_if_invalid: bool = False) -> Expression:
    """Make a CAST or TRY_CAST.

    Raises InvalidExpression for types without a cast between them, and for literals that cannot be cast.
    """
    if not castable(expression.type, kind):
        raise InvalidExpression(f"a cast from {spark_name(expression.type)} to {spark_name(kind)} is not supported")
    if isinstance(expression, Literal):
        try:
            return Literal(cast_array(pa.repeat(expression.value, 1), kind, null_if_invalid=null_if_invalid)[0])
        except EvaluationFailed as error:
            raise InvalidExpression(str(error)) from None
    return Cast(expression, kind, null_if_invalid)


def call(function: str, kind: pa.DataType, *arguments: Expression) -> Call:
    """Return a call whose arguments already have the types that the function takes."""
    return Call(function, arguments, kind)
