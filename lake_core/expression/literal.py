"""Literals of Spark SQL as values of a column's type: strictly spelled, exact, and rounded only where SQL rounds."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.arrow_scalar import scalar
from lake_core.expression.errors import InvalidExpression
from lake_core.expression.tree import FALSE, Column, Comparison, In, Literal, Operator, Predicate, always, never

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MAX_EXPONENT = 400
"""The largest exponent of a number, in powers of ten: more than any column holds, and few enough digits to write."""

_EXACT = decimal.Context(prec=2 * _MAX_EXPONENT + 2, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DAY = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_DATE = re.compile(_DAY)
_TIMESTAMP = re.compile(
    _DAY + r"(?:[T ]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?"
    r"(?: ?(Z|UTC|[+-][0-9]{1,2}(?::?[0-9]{2})?))?)?"
)
_BLANK = " \t\n\v\f\r"


def to_number(value: object) -> Decimal:
    """Convert a literal or a text to a number. Refuses numbers that are too long to compute with."""
    if isinstance(value, str):
        text = value.strip(_BLANK)
        if not _NUMBER.fullmatch(text) or len(text) > 2 * _MAX_EXPONENT:
            raise ValueError(text)
        value = Decimal(text)
    if isinstance(value, float):
        # `repr` gives the shortest decimal that is equal to this double.
        value = Decimal(repr(value))
    if not isinstance(value, Decimal) or not value.is_finite() or abs(value.adjusted()) > _MAX_EXPONENT:
        raise ValueError(value)
    return value


def round_integer(value: object, bits: int) -> Decimal:
    """Return a whole number that an integer type with this many bits can hold.

    Raises ValueError for a fraction, and for a number that is out of range.
    """
    if isinstance(value, str) and not _INTEGER.fullmatch(value.strip(_BLANK)):
        raise ValueError(value)
    number = to_number(value)
    if number != number.to_integral_value(context=_EXACT) or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(number)
    return number


def round_decimal(number: Decimal, parameters: Sequence[int]) -> Decimal:
    """Return a number as DECIMAL(precision, scale) holds it, rounded half up. The default is (10, 0).

    Raises ValueError for a number with more digits than the precision.
    """
    precision, scale = (*parameters, 10, 0)[:2] if not parameters else (*parameters, 0)[:2]
    if not 0 <= scale <= precision <= 38:
        raise ValueError(parameters)
    rounded = number.quantize(Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP, _EXACT)
    if rounded.copy_abs() >= Decimal(1).scaleb(precision - scale):
        raise ValueError(number)
    return rounded


def round_float(number: Decimal, kind: pa.DataType) -> float:
    """Round a number to a float in one step. In two steps, through a double, a 32-bit float may be off by one bit."""
    rounded: float = float(number) if pa.types.is_float64(kind) else scalar(str(number)).cast(kind).as_py()
    if not math.isfinite(rounded):
        raise ValueError(number)
    return rounded + 0.0  # -0.0 becomes 0.0


@functools.cache
def _limits(kind: pa.DataType) -> tuple[Decimal, Decimal, Decimal]:
    """Return the smallest and the largest value of an integer or decimal type, and the step between values."""
    if pa.types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        greatest = Decimal("9" * kind.precision).scaleb(-kind.scale, _EXACT)
        return greatest.copy_negate(), greatest, step
    bits = kind.bit_width
    if pa.types.is_signed_integer(kind):
        return Decimal(-(1 << bits - 1)), Decimal((1 << bits - 1) - 1), Decimal(1)
    return Decimal(0), Decimal((1 << bits) - 1), Decimal(1)


def exact_scalar(number: Decimal, kind: pa.DataType) -> pa.Scalar | None:
    """Return the number as a value of this type, or None if the type cannot hold it."""
    least, greatest, step = _limits(kind)
    if not least <= number <= greatest or number.quantize(step, decimal.ROUND_FLOOR, _EXACT) != number:
        return None
    return scalar(number if pa.types.is_decimal(kind) else int(number), kind)


def compare_exactly(operator: Operator, column: Column, number: Decimal) -> Predicate:
    """Return a comparison with a number that the column's type may not be able to hold.

    Such a number is replaced by one of its neighbors in the type.
    """
    _, greatest, step = _limits(column.type)
    floor = number.quantize(step, decimal.ROUND_FLOOR, _EXACT)
    if floor != number:
        if operator in ("<", "<="):
            operator, number = "<=", floor
        elif operator in (">", ">="):
            operator, number = ">", floor
    value = exact_scalar(number, column.type)
    if value is not None:
        return Comparison(operator, column, Literal(value))
    if operator == "<=>":
        return FALSE
    passes = operator == "!=" or operator in (("<", "<=") if number > greatest else (">", ">="))
    return always(column) if passes else never(column)


def compare(operator: Operator, column: Column, value: pa.Scalar | Decimal) -> Predicate:
    """Return a comparison with a literal, as `literal_of` returns it."""
    if isinstance(value, Decimal):
        return compare_exactly(operator, column, value)
    return Comparison(operator, column, Literal(value))


def one_of(column: Column, literals: Sequence[pa.Scalar | Decimal]) -> Predicate:
    """Return whether a column has one of the literals."""
    values = [exact_scalar(value, column.type) if isinstance(value, Decimal) else value for value in literals]
    # A literal that the column's type cannot hold does not equal any of its values.
    possible = tuple(value for value in values if value is not None)
    return In(column, possible) if possible else never(column)


def _exact(value: object, kind: pa.DataType) -> Decimal:
    if isinstance(value, str) and pa.types.is_integer(kind) and not _INTEGER.fullmatch(value.strip(_BLANK)):
        raise ValueError(value)
    return to_number(value)


def _float(value: object, _: pa.DataType) -> pa.Scalar:
    return scalar(round_float(to_number(value), pa.float64()), pa.float64())


def text_value(value: object, data_type: pa.DataType) -> pa.Scalar:
    """Return a text as a scalar of the type. Raises ValueError for other values."""
    if not isinstance(value, str):
        raise ValueError(value)
    return scalar(value, data_type)


def _bytes(value: object, data_type: pa.DataType) -> pa.Scalar:
    if not isinstance(value, (bytes, str)):
        raise ValueError(value)
    return scalar(value.encode() if isinstance(value, str) else value, data_type)


def _flag(value: object, _: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(value)
    return scalar(value)


def _date(value: object, data_type: pa.DataType) -> pa.Scalar:
    if isinstance(value, str):
        value = parse_date(value)
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise ValueError(value)
    return scalar(value, data_type)


def _instant(value: object, data_type: pa.DataType) -> pa.Scalar:
    if isinstance(value, str):
        value = parse_timestamp(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if not isinstance(value, dt.datetime) or value != value:  # NaT of pandas is a datetime
        raise ValueError(value)
    if data_type.tz is None:
        if value.tzinfo is not None:
            raise ValueError(value)
        moment = scalar(value, pa.timestamp("us"))
    else:
        value = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
        moment = scalar(value, pa.timestamp("us", tz="UTC"))
    if moment.as_py() != value:  # a datetime of pandas may have nanoseconds
        raise ValueError(value)
    return moment


def parse_date(text: str) -> dt.date:
    """Read a date such as `2024-01-31`, with blanks around it. Raises ValueError."""
    match = _DATE.fullmatch(text.strip(_BLANK))
    if match is None:
        raise ValueError(text)
    return dt.date(*map(int, match.groups()))


def parse_timestamp(text: str) -> dt.datetime:
    """Read a date with or without a time of day and a UTC offset. Raises ValueError.

    The result has a time zone only if the text has one.
    """
    match = _TIMESTAMP.fullmatch(text.strip(_BLANK))
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = match.groups(default="")
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    return dt.datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, _zone(zone)
    )


def _zone(text: str) -> dt.tzinfo | None:
    if text in ("", "Z", "UTC"):
        return dt.UTC if text else None
    digits = text[1:].replace(":", "")
    hours, minutes = (int(digits), 0) if len(digits) < 3 else (int(digits[:-2]), int(digits[-2:]))
    if hours > 18 or minutes > 59 or (hours == 18 and minutes):
        raise ValueError(text)
    offset = dt.timedelta(hours=hours, minutes=minutes)
    return dt.timezone(-offset if text[0] == "-" else offset)


_CONVERT: dict[str, Callable[[object, pa.DataType], pa.Scalar | Decimal]] = {
    "integer": _exact,
    "decimal": _exact,
    "float": _float,
    "text": text_value,
    "binary": _bytes,
    "boolean": _flag,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _instant,
}


def literal_of(column: Column, value: object, within: str, text: str) -> pa.Scalar | Decimal:
    """Return a value, which is not null, as a literal of a column's type.

    For integers and decimals, return the number, which may be out of range for that type.

    Raises:
        InvalidExpression: The column cannot have the value, which is shown as `text`, `within` what it stands in.
    """
    name = ".".join(column.path)
    convert = _CONVERT.get(family(column.type))
    if convert is None:
        raise InvalidExpression(f"{within}: columns of type {column.type} cannot be compared ({name})")
    try:
        return convert(value, column.type)
    except (ValueError, ArithmeticError, TypeError, pa.ArrowInvalid):
        remedy = ""
        if isinstance(value, float) and not math.isfinite(value):
            remedy = f". Write the filter as text, with CAST('{value}' AS DOUBLE)"
        raise InvalidExpression(f"{within}: {text} is not a value of {name} ({column.type}){remedy}") from None


def family(data_type: pa.DataType) -> str:
    """Return the name of the types whose values a type's values are compared with."""
    types = pa.types
    if types.is_integer(data_type):
        return "integer"
    if types.is_floating(data_type):
        return "float"
    if types.is_decimal(data_type):
        return "decimal"
    if types.is_string(data_type) or types.is_large_string(data_type):
        return "text"
    if types.is_binary(data_type) or types.is_large_binary(data_type):
        return "binary"
    if types.is_boolean(data_type):
        return "boolean"
    if types.is_date(data_type):
        return "date"
    if types.is_timestamp(data_type):
        return "timestamp" if data_type.tz else "timestamp_ntz"
    return str(data_type)
