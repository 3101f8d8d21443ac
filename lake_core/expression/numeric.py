"""Arithmetic and comparison of Arrow arrays as Spark's ANSI mode does them: overflow and division by zero fail."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar
from lake_core.expression.arrays import array, booleans, true, valid, values
from lake_core.expression.decimals import WIDEST, exact_decimal, to_decimal, unscaled
from lake_core.expression.errors import EvaluationFailed, InvalidExpression
from lake_core.expression.tree import Call, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CHECKED: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_NEGATED_DIGITS = 34
_PLAIN: dict[str, Callable[[Any, Any], Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def compare(operator: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare values. Text is compared by its bytes. NaN equals itself and exceeds every number.

    `<=>` never returns null.
    """
    if operator == "<=>":
        equal = pc.fill_null(_compare("=", left, right), FALSE_VALUE)
        return pc.or_(equal, pc.and_(left.is_null(), right.is_null()))
    return _compare(operator, left, right)


def compare_value(operator: str, left: pa.Array, value: pa.Scalar) -> pa.Array:
    """Compare as `compare` does, with one value on the right."""
    floating = pa.types.is_floating(value.type)
    if not value.is_valid or (floating and math.isnan(value.as_py())):
        return compare(
            operator, left, pa.repeat(value, len(left)) if value.is_valid else pa.nulls(len(left), value.type)
        )
    if operator == "<=>":
        return pc.fill_null(pc.equal(left, value), FALSE_VALUE)
    compared = _COMPARE[operator](left, value)
    return pc.or_(compared, pc.is_nan(left)) if floating and operator in (">", ">=") else compared


def value_set(kind: pa.DataType, values: Sequence[pa.Scalar]) -> pa.Array:
    """Return the values of a list in this type, for a search that compares bytes."""
    if values and all(value.type == kind for value in values) and not pa.types.is_floating(kind):
        # Not `pa.array`: its first call imports pandas where that is installed.
        return pa.concat_arrays([pa.repeat(value, 1) for value in values])
    plain = [value.as_py() for value in values]
    if not pa.types.is_floating(kind):
        return pa.array(plain, kind)
    if any(value == 0 for value in plain):
        plain += [0.0, -0.0]
    exact = pa.array(plain, pa.float64())
    converted = exact.cast(kind)
    # A value that a narrower float cannot hold does not equal any of them; NaN equals itself.
    return converted.filter(pc.or_(pc.equal(converted.cast(pa.float64()), exact), pc.is_nan(exact)))


def is_in(operand: pa.Array, values: Sequence[pa.Scalar]) -> pa.Array:
    """Return for each operand whether it is one of the values. Return null where the operand is null."""
    member = pc.is_in(operand, value_set=value_set(operand.type, values))
    return pc.if_else(operand.is_valid(), member, scalar(None, pa.bool_())) if operand.null_count else member


def _compare(operator: str, left: pa.Array, right: pa.Array) -> pa.Array:
    if pa.types.is_null(left.type):
        return pa.nulls(len(left), pa.bool_())
    compared = _COMPARE[operator](left, right)
    if not pa.types.is_floating(left.type):
        return compared
    nan_left, nan_right = pc.is_nan(left), pc.is_nan(right)
    match operator:
        case "=":
            return pc.or_(compared, pc.and_(nan_left, nan_right))
        case "!=":
            return pc.and_(compared, pc.invert(pc.and_(nan_left, nan_right)))
        case "<":
            return pc.or_(compared, pc.and_(pc.invert(nan_left), nan_right))
        case "<=":
            return pc.or_(compared, pc.and_(nan_right, left.is_valid()))
        case ">":
            return pc.or_(compared, pc.and_(nan_left, pc.invert(nan_right)))
        case _:
            return pc.or_(compared, pc.and_(nan_left, right.is_valid()))


def arithmetic(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute `+ - *`: of decimals exactly, then rounded to the type of the result."""
    left, right = arguments
    if pa.types.is_decimal(call.type):
        first, second = (_wide(side) for side in arguments)
        if call.function == "*" and first.type.precision + second.type.precision >= WIDEST:
            # Arrow cannot multiply two decimals of 38 digits. The second one gets fewer digits, so a value that needs
            # them all fails.
            second = second.cast(pa.decimal256(WIDEST - 1 - first.type.precision, second.type.scale))
        return _decimal(_PLAIN[call.function](first, second), call)
    operations = _PLAIN if pa.types.is_floating(call.type) else _CHECKED
    return operations[call.function](left, right)


def _wide(side: pa.Array) -> pa.Array:
    return side.cast(pa.decimal256(side.type.precision, side.type.scale))


def _decimal(exact: pa.Array, call: Call) -> pa.Array:
    converted, ok = to_decimal(exact, call.type)
    if not ok.all():
        raise EvaluationFailed(f"a result of {call.function} is too large for {call.type}")
    return converted


def _check_divisor(left: pa.Array, right: pa.Array, call: Call) -> None:
    zero = pc.and_(pc.equal(right, scalar(0, right.type)), left.is_valid())
    if true(zero).any():
        raise EvaluationFailed(f"division by zero ({call.function}); use NULLIF(…, 0) to get null instead")


def divide(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Divide. Decimals are rounded half up to the scale of the call's type.

    Raises EvaluationFailed for a zero divisor.
    """
    left, right = arguments
    _check_divisor(left, right, call)
    if not pa.types.is_decimal(call.type):
        return pc.divide(left, right)
    # Arrow truncates the quotient. The dividend is widened so that the quotient has at least one digit more than the
    # result keeps, because rounding half up looks at that digit.
    a, b = left.type, right.type
    more = max(0, call.type.scale - a.scale - b.precision + b.scale)
    digits = min(b.precision, WIDEST - 1 - a.precision - more)
    more = max(more, call.type.scale - a.scale - digits + b.scale)
    exact = pc.divide(
        left.cast(pa.decimal256(a.precision + more, a.scale + more)), right.cast(pa.decimal256(digits, b.scale))
    )
    return _decimal(exact, call)


def whole_division(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Divide as DIV does: the quotient as BIGINT, truncated toward zero.

    Raises EvaluationFailed for a zero divisor, and on overflow.
    """
    left, right = arguments
    _check_divisor(left, right, call)
    where = valid(left) & valid(right)
    a, b = values(left), np.where(where, values(right), 1)
    least = np.iinfo(np.int64).min
    if (where & (a == least) & (b == -1)).any():
        raise EvaluationFailed("a result of DIV is too large for BIGINT")
    a = np.where(where, a, 0)
    quotient = np.abs(a) // np.abs(b) if not (a == least).any() and not (b == least).any() else _careful_quotient(a, b)
    return array(np.where((a < 0) == (b < 0), quotient, -quotient), pa.int64(), where)


def _careful_quotient(a: Any, b: Any) -> Any:
    """Return |a / b| where the absolute value of one of them does not fit its type."""
    unsigned_a, unsigned_b = (np.where(x < 0, ~x.view(np.uint64) + np.uint64(1), x.view(np.uint64)) for x in (a, b))
    return (unsigned_a // unsigned_b).astype(np.int64)


def remainder(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute the remainder with the sign of the dividend."""
    left, right = arguments
    _check_divisor(left, right, call)
    where = valid(left) & valid(right)
    a, b = values(left), np.where(where, values(right), 1)
    if pa.types.is_integer(call.type):
        # Where b is -1 the remainder is 0, and dividing the smallest number would overflow.
        return array(np.where(b == -1, 0, np.fmod(a, np.where(b == -1, 1, b))), call.type, where)
    with np.errstate(invalid="ignore"):
        return array(np.fmod(a, b), call.type, where)


def negative(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Negate. Raises EvaluationFailed for a decimal that Spark would round."""
    (source,) = arguments
    if pa.types.is_decimal(call.type) and call.type.precision > _NEGATED_DIGITS:
        bound = scalar(Decimal(10) ** _NEGATED_DIGITS, pa.decimal128(38, 0))
        if true(pc.greater_equal(pc.abs(unscaled(source)), bound)).any():
            raise EvaluationFailed(
                f"Spark rounds a negated decimal to {_NEGATED_DIGITS} digits; subtract it from 0 instead"
            )
    return pc.negate(source) if not pa.types.is_integer(call.type) else pc.negate_checked(source)


def absolute(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return absolute values. Fail for the smallest integer, whose absolute value does not fit."""
    return pc.abs_checked(arguments[0])


def is_nan(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return whether values are NaN: false for null."""
    return pc.fill_null(pc.is_nan(arguments[0]), FALSE_VALUE)


def extreme(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute GREATEST and LEAST, which skip nulls."""
    best = arguments[0]
    operator = ">" if call.function == "greatest" else "<"
    for other in arguments[1:]:
        better = pc.or_kleene(
            pc.and_(best.is_null(), other.is_valid()), pc.fill_null(_compare(operator, other, best), FALSE_VALUE)
        )
        best = pc.if_else(better, other, best)
    return best


def round_to_whole(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute FLOOR and CEIL."""
    (source,) = arguments
    operation = pc.floor if call.function == "floor" else pc.ceil
    if pa.types.is_decimal(source.type):
        return _decimal(operation(source.cast(pa.decimal256(WIDEST, source.type.scale))), call)
    rounded, where = values(operation(source)), valid(source)
    with np.errstate(invalid="ignore"):
        ok = ~where | ((rounded >= -(2.0**63)) & (rounded < 2.0**63))
    if not ok.all():
        raise EvaluationFailed(f"a result of {call.function} is too large for BIGINT")
    return array(np.where(where, rounded, 0).astype(np.int64), pa.int64(), where)


def round_half_up(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Round to digits after the decimal point, ties away from zero. Negative digits round before the point."""
    source = arguments[0]
    digits = constant(call, 1, 0)
    if pa.types.is_decimal(source.type):
        wide = source.cast(pa.decimal256(WIDEST, source.type.scale))
        return _decimal(pc.round(wide, digits, "half_towards_infinity"), call)
    if pa.types.is_integer(source.type):
        if digits >= 0:
            return source
        wide = pc.round(source.cast(pa.decimal256(WIDEST, 0)), max(digits, -20), "half_towards_infinity")
        return wide.cast(pa.int64()).cast(call.type)
    # A float is rounded as its shortest decimal; from 2^53 up it has no digits after the point.
    stored, where = values(source).astype(np.float64), valid(source)
    with np.errstate(invalid="ignore"):
        small = where & (np.abs(stored) < 2.0**53)
    rounded = pc.round(
        exact_decimal(array(np.where(small, stored, 0.0), pa.float64())), digits, "half_towards_infinity"
    )
    return pc.if_else(booleans(small), rounded.cast(pa.string()).cast(call.type), source)


def sign(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return -1.0, 1.0 or the value itself where it is a zero, whose sign it keeps."""
    stored, where = values(arguments[0]), valid(arguments[0])
    # The sign of -0.0 is -0.0.
    return array(np.where(stored == 0, stored, np.sign(stored)), pa.float64(), where)


def square_root(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return square roots: NaN for negative values, as in Spark."""
    return pc.sqrt(arguments[0])


def constant(call: Call, position: int, default: Any) -> Any:
    """Return the value of an argument that the binder has checked to be a literal."""
    if position >= len(call.arguments):
        return default
    argument = call.arguments[position]
    if not isinstance(argument, Literal):
        raise InvalidExpression(f"{call.function} needs a literal here, not an expression")
    return argument.value.as_py()
