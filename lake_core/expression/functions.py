"""The allow-list: every supported function and operator, with its type rule.

Untrusted text cannot call anything else.

Names are Spark's. A rule builds a tree of calls that `implementations` evaluates, or of other nodes (COALESCE is a node
of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from lake_core.arrow_scalar import scalar
from lake_core.expression import temporal
from lake_core.expression.coercion import (
    INTEGERS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    bounded_decimal,
    call,
    cast_expression,
    decimal_operand,
    implicit,
    is_number,
    meet,
    spark_name,
    wider,
)
from lake_core.expression.errors import InvalidExpression
from lake_core.expression.regex import translate
from lake_core.expression.texts import matches_regex
from lake_core.expression.tree import (
    Call,
    Case,
    Coalesce,
    Column,
    Comparison,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
)
from lake_core.readable import count_of

Bind: TypeAlias = Callable[[str, Sequence[Expression]], Expression]
Accept: TypeAlias = Callable[[str, Expression], Expression]
"""Converts an argument to the type that a parameter takes. Raises InvalidExpression if that is not possible."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: how to bind its calls, and how many arguments it takes. `most` is None if there is no limit."""

    bind: Bind
    least: int
    most: int | None


def bind_call(name: str, arguments: Sequence[Expression]) -> Expression:
    """Bind a call of a function by its name in lower case.

    Raises InvalidExpression for a function that is not on the list, and for wrong arguments.
    """
    function = FUNCTIONS.get(ALIASES.get(name, name))
    if function is None or not name.replace("_", "").isalnum():
        names = ", ".join(sorted([*(each for each in FUNCTIONS if each.replace("_", "").isalnum()), *ALIASES]))
        raise InvalidExpression(f"the function {name}() is not supported; the supported functions are: {names}")
    if len(arguments) < function.least or (function.most is not None and len(arguments) > function.most):
        raise InvalidExpression(f"{name}() does not take {count_of(len(arguments), 'argument')}")
    return function.bind(ALIASES.get(name, name), arguments)


def bind_operator(name: str, *arguments: Expression) -> Expression:
    """Bind an operator, as `bind_call` binds a function."""
    return FUNCTIONS[name].bind(name, arguments)


def _not_taken(name: str, argument: Expression, expected: str) -> InvalidExpression:
    return InvalidExpression(f"{name} takes {expected}, not {spark_name(argument.type)}; cast it")


def _is_constant_text(argument: Expression) -> bool:
    return isinstance(argument, Literal) and (pa.types.is_string(argument.type) or pa.types.is_null(argument.type))


# --- parameters


def _text(name: str, argument: Expression) -> Expression:
    if pa.types.is_floating(argument.type) or pa.types.is_nested(argument.type) or pa.types.is_binary(argument.type):
        raise _not_taken(name, argument, "text")
    return implicit(argument, pa.string())


def _integer(name: str, argument: Expression) -> Expression:
    if argument.type in INTEGERS[:3] or _is_constant_text(argument) or isinstance(argument, Literal):
        return implicit(argument, pa.int32())
    raise _not_taken(name, argument, "an INT")


def _double(name: str, argument: Expression) -> Expression:
    if is_number(argument.type) or _is_constant_text(argument):
        return implicit(argument, pa.float64())
    raise _not_taken(name, argument, "a number")


def _boolean(name: str, argument: Expression) -> Expression:
    if pa.types.is_boolean(argument.type) or pa.types.is_null(argument.type):
        return implicit(argument, pa.bool_())
    raise _not_taken(name, argument, "a condition")


def _date(name: str, argument: Expression) -> Expression:
    if argument.type in (pa.date32(), TIMESTAMP, TIMESTAMP_NTZ) or _is_constant_text(argument):
        return implicit(argument, pa.date32())
    raise _not_taken(name, argument, "a DATE")


def _timestamp(name: str, argument: Expression) -> Expression:
    if argument.type in (pa.date32(), TIMESTAMP, TIMESTAMP_NTZ) or _is_constant_text(argument):
        return implicit(argument, TIMESTAMP)
    raise _not_taken(name, argument, "a TIMESTAMP")


def _literal(accept: Accept) -> Callable[[str, Expression], Literal]:
    def accepted(name: str, argument: Expression) -> Literal:
        literal = accept(name, argument) if isinstance(argument, Literal) else argument
        if not isinstance(literal, Literal):
            raise InvalidExpression(f"{name} needs a literal here, not an expression")
        return literal

    return accepted


def _one_letter(name: str, argument: Expression) -> Expression:
    letter = _literal(_text)(name, argument)
    if letter.value.is_valid and len(letter.value.as_py()) != 1:
        raise InvalidExpression(f"{name} pads with a single character, not {letter.value.as_py()!r}")
    return letter


def _function(result: pa.DataType, *accepts: Accept, optional: int = 0) -> Function:
    """Return a function with fixed parameters. The last `optional` ones may be left out."""

    def bind(name: str, arguments: Sequence[Expression]) -> Expression:
        return Call(
            name, tuple(accept(name, argument) for accept, argument in zip(accepts, arguments, strict=False)), result
        )

    return Function(bind, len(accepts) - optional, len(accepts))


# --- rules of types that depend on the arguments


def compare(operator: Operator, left: Expression, right: Expression) -> Comparison:
    """Compare two expressions in their common type. Raises InvalidExpression."""
    left, right = meet(operator, (left, right))
    if pa.types.is_nested(left.type):
        raise InvalidExpression(
            f"{operator}: values of type {spark_name(left.type)} cannot be compared; compare their parts"
        )
    return Comparison(operator, left, right)


def _bind_comparison(operator: Operator) -> Bind:
    return lambda name, arguments: compare(operator, *arguments)


def _bind_arithmetic(name: str, arguments: Sequence[Expression]) -> Expression:
    left, right = arguments
    if pa.types.is_date(left.type) and name in "+-" and (right.type in INTEGERS[:3]):
        return FUNCTIONS["date_add" if name == "+" else "date_sub"].bind(
            "date_add" if name == "+" else "date_sub", arguments
        )
    if pa.types.is_date(right.type) and name == "+" and (left.type in INTEGERS[:3]):
        return FUNCTIONS["date_add"].bind("date_add", (right, left))
    return _numbers(name, left, right)


def _numbers(name: str, left: Expression, right: Expression) -> Expression:
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        kind = right.type if pa.types.is_null(left.type) else left.type
        left, right = (
            implicit(side, kind) if is_number(kind) and pa.types.is_null(side.type) else side for side in (left, right)
        )
    left, right = (_operand(name, side) for side in (left, right))
    if pa.types.is_string(left.type) and pa.types.is_string(right.type):
        raise InvalidExpression(f"{name} takes numbers, not two texts; cast them")
    floating = any(pa.types.is_floating(side.type) or pa.types.is_string(side.type) for side in (left, right))
    if any(pa.types.is_decimal(side.type) for side in (left, right)) and not floating:
        left, right = decimal_operand(left), decimal_operand(right)
        return call(name, _decimal_result(name, left.type, right.type), left, right)
    left, right = meet(name, (left, right))
    if name in ("/", "div"):
        target = pa.float64() if name == "/" else pa.int64()
        if name == "div" and not pa.types.is_integer(left.type):
            raise InvalidExpression(f"DIV takes whole numbers, not {spark_name(left.type)}")
        return call(name, target, implicit(left, target), implicit(right, target))
    return call(name, left.type, left, right)


def _operand(name: str, side: Expression) -> Expression:
    if pa.types.is_null(side.type):
        return implicit(side, pa.int32() if name != "/" else pa.float64())
    if not is_number(side.type) and not pa.types.is_string(side.type):
        raise _not_taken(name, side, "numbers")
    return side


def _decimal_result(name: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the result type as Spark's DecimalPrecision does."""
    if name in "+-":
        scale = max(left.scale, right.scale)
        return bounded_decimal(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)
    if name == "*":
        return bounded_decimal(left.precision + right.precision + 1, left.scale + right.scale)
    if name == "/":
        scale = max(6, left.scale + right.precision + 1)
        return bounded_decimal(left.precision - left.scale + right.scale + scale, scale)
    raise InvalidExpression(f"{name.upper()} of decimals is not supported; cast them to DOUBLE or BIGINT")


def _bind_same(name: str, arguments: Sequence[Expression]) -> Expression:
    """Bind unary minus and ABS."""
    (operand,) = arguments
    if pa.types.is_string(operand.type) or pa.types.is_null(operand.type):
        operand = implicit(operand, pa.float64())
    if not is_number(operand.type):
        raise _not_taken(name, operand, "a number")
    return call(name, operand.type, operand)


def _bind_concat(name: str, arguments: Sequence[Expression]) -> Expression:
    if all(pa.types.is_binary(argument.type) for argument in arguments):
        return call("concat", pa.binary(), *arguments)
    texts = [
        cast_expression(argument, pa.string()) if pa.types.is_binary(argument.type) else _text(name, argument)
        for argument in arguments
    ]
    return call("concat", pa.string(), *texts)


def _bind_extreme(name: str, arguments: Sequence[Expression]) -> Expression:
    converted = meet(name, arguments, promote_text=False)
    if pa.types.is_nested(converted[0].type) or pa.types.is_null(converted[0].type):
        raise InvalidExpression(f"{name}: values of type {spark_name(converted[0].type)} cannot be compared")
    return call(name, converted[0].type, *converted)


def _bind_coalesce(name: str, arguments: Sequence[Expression]) -> Expression:
    converted = meet(name, arguments)
    return converted[0] if len(converted) == 1 else Coalesce(tuple(converted), converted[0].type)


def _bind_if(name: str, arguments: Sequence[Expression]) -> Expression:
    condition = _boolean("if", arguments[0])
    converted = meet("if", arguments[1:])
    return Case(((condition, converted[0]),), converted[1], converted[0].type)


def _bind_nullif(name: str, arguments: Sequence[Expression]) -> Expression:
    null = Literal(scalar(None, arguments[0].type))
    return Case(((compare("=", *arguments), null),), arguments[0], arguments[0].type)


def _bind_nvl2(name: str, arguments: Sequence[Expression]) -> Expression:
    converted = meet(name, arguments[1:])
    return Case(((IsNull(arguments[0]), converted[1]),), converted[0], converted[0].type)


def _bind_is_null(name: str, arguments: Sequence[Expression]) -> Expression:
    test = IsNull(arguments[0])
    return test if name == "isnull" else Not(test)


def _bind_length(name: str, arguments: Sequence[Expression]) -> Expression:
    (operand,) = arguments
    return call(name, pa.int32(), operand if pa.types.is_binary(operand.type) else _text(name, operand))


def _bind_whole(name: str, arguments: Sequence[Expression]) -> Expression:
    """Bind FLOOR and CEIL."""
    (operand,) = arguments
    if pa.types.is_integer(operand.type):
        return implicit(operand, pa.int64())
    if pa.types.is_decimal(operand.type):
        kind = operand.type
        precision = kind.precision - kind.scale + (1 if kind.scale else 0)
        return call(name, pa.decimal128(max(min(precision, 38), 1), 0), operand)
    return call(name, pa.int64(), _double(name, operand))


def _bind_round(name: str, arguments: Sequence[Expression]) -> Expression:
    operand = arguments[0]
    digits = _literal(_integer)(name, arguments[1]) if len(arguments) > 1 else Literal(scalar(0, pa.int32()))
    places = digits.value.as_py()
    if places is None or abs(places) > 20:
        raise InvalidExpression(f"round takes between -20 and 20 digits, not {places}")
    if pa.types.is_decimal(operand.type):
        kind = operand.type
        whole = kind.precision - kind.scale + 1
        if places < 0:
            result = pa.decimal128(min(max(whole, -places + 1), 38), 0)
        else:
            scale = min(kind.scale, places)
            result = pa.decimal128(min(whole + scale, 38), scale)
        return call(name, result, operand, digits)
    if pa.types.is_float32(operand.type):
        raise InvalidExpression("round does not take a FLOAT; cast it to DOUBLE or DECIMAL")
    operand = operand if is_number(operand.type) else _double(name, operand)
    return call(name, operand.type, operand, digits)


def _bind_truncate(name: str, arguments: Sequence[Expression]) -> Expression:
    moment, unit = arguments if name == "trunc" else (arguments[1], arguments[0])
    units = (
        list(temporal.UNITS)
        if name == "date_trunc"
        else [each for each in temporal.UNITS if temporal.UNITS[each] in _DATE_UNITS]
    )
    chosen = unit.value.as_py() if isinstance(unit, Literal) else None
    if not isinstance(chosen, str) or chosen.lower() not in units:
        raise InvalidExpression(f"{name} takes one of these units as a literal: {', '.join(units)}")
    literal = Literal(scalar(chosen.lower()))
    if name == "trunc":
        return call(name, pa.date32(), literal, _date(name, moment))
    return call(name, TIMESTAMP, literal, _timestamp(name, moment))


_DATE_UNITS = ("year", "quarter", "month", "week")


def _bind_date_format(name: str, arguments: Sequence[Expression]) -> Expression:
    pattern = _literal(_text)(name, arguments[1])
    text = pattern.value.as_py() or ""
    if not text or "".join(match[0] for match in temporal.PATTERN.finditer(text)) != text:
        raise InvalidExpression(
            f"date_format does not support {text!r}: patterns consist of yyyy, MM, dd, HH, mm, ss and punctuation"
        )
    return call(name, pa.string(), _timestamp(name, arguments[0]), pattern)


def _bind_cast_to(kind: pa.DataType) -> Bind:
    return lambda name, arguments: cast_expression(arguments[0], kind)


def _bind_not(name: str, arguments: Sequence[Expression]) -> Expression:
    return Not(_boolean(name, arguments[0]))


def _bind_like(name: str, arguments: Sequence[Expression]) -> Expression:
    operand, pattern = _text(name, arguments[0]), _literal(_text)(name, arguments[1])
    return Like(operand, pattern.value.as_py())


def _bind_rlike(name: str, arguments: Sequence[Expression]) -> Expression:
    operand, pattern = _text(name, arguments[0]), _literal(_text)(name, arguments[1])
    if not pattern.value.is_valid:
        return Literal(scalar(None, pa.bool_()))
    regex = translate(pattern.value.as_py())
    patterns = [Literal(scalar(text)) for text in (regex.pattern, regex.pattern_after_crlf)]
    test = call("rlike", pa.bool_(), operand, *patterns)
    try:
        matches_regex(test, [pa.array(["", "\r\n"])])
    except pa.ArrowException as error:
        raise InvalidExpression(f"the regular expression {pattern.value} is not supported: {error}") from None
    return test


def _bind_from_unixtime(name: str, arguments: Sequence[Expression]) -> Expression:
    seconds = arguments[0]
    if not (seconds.type in INTEGERS or pa.types.is_null(seconds.type)):
        raise _not_taken(name, seconds, "a whole number of seconds")
    pattern = arguments[1] if len(arguments) > 1 else Literal(scalar("yyyy-MM-dd HH:mm:ss"))
    moment = cast_expression(cast_expression(seconds, pa.int64()), TIMESTAMP)
    return FUNCTIONS["date_format"].bind("date_format", (moment, pattern))


def _bind_parsed(kind: pa.DataType) -> Bind:
    """Bind TO_DATE and TO_TIMESTAMP, which are a cast unless a pattern says how the text is written."""

    def bind(name: str, arguments: Sequence[Expression]) -> Expression:
        if len(arguments) == 1:
            return cast_expression(arguments[0], kind)
        text, pattern = arguments[0], _literal(_text)(name, arguments[1])
        if not (pa.types.is_string(text.type) or pa.types.is_null(text.type)):
            raise _not_taken(name, text, "text with a pattern")
        try:
            temporal.parser(pattern.value.as_py() or "")
        except ValueError:
            raise InvalidExpression(
                f"{name} does not support {pattern.value.as_py()!r}: patterns consist of yyyy and of MM, dd, HH, mm, "
                "ss, each once, and of punctuation"
            ) from None
        return cast_expression(call("parse_moment", TIMESTAMP, implicit(text, pa.string()), pattern), kind)

    return bind


def _bind_md5(name: str, arguments: Sequence[Expression]) -> Expression:
    (operand,) = arguments
    return call(name, pa.string(), operand if pa.types.is_binary(operand.type) else _text(name, operand))


def _bind_mod(name: str, arguments: Sequence[Expression]) -> Expression:
    return _numbers("%", *arguments)


def _bind_named_struct(name: str, arguments: Sequence[Expression]) -> Expression:
    names = [argument.value.as_py() if isinstance(argument, Literal) else None for argument in arguments[::2]]
    if len(arguments) % 2 or not all(isinstance(each, str) and each for each in names):
        raise InvalidExpression(f"{name} takes a name as a literal text, a value, and so on")
    return _struct([str(each) for each in names], arguments[1::2])


def _bind_struct(name: str, arguments: Sequence[Expression]) -> Expression:
    names = [
        argument.path[-1] if isinstance(argument, Column) else f"col{number}"
        for number, argument in enumerate(arguments, 1)
    ]
    return _struct(names, arguments)


def _struct(names: Sequence[str], values: Sequence[Expression]) -> Expression:
    if len({each.lower() for each in names}) < len(names):
        raise InvalidExpression(
            f"the field names of a struct must differ when case is ignored, unlike {', '.join(names)}"
        )
    return call(
        "struct", pa.struct([pa.field(each, value.type) for each, value in zip(names, values, strict=True)]), *values
    )


def _bind_array(name: str, arguments: Sequence[Expression]) -> Expression:
    converted = meet(name, arguments)
    return call(name, pa.list_(pa.field("element", converted[0].type)), *converted)


def _bind_size(name: str, arguments: Sequence[Expression]) -> Expression:
    (operand,) = arguments
    if not (pa.types.is_list(operand.type) or pa.types.is_map(operand.type)):
        raise _not_taken(name, operand, "an ARRAY or a MAP")
    return call(name, pa.int32(), operand)


def _bind_array_contains(name: str, arguments: Sequence[Expression]) -> Expression:
    elements, element = arguments
    if not pa.types.is_list(elements.type):
        raise _not_taken(name, elements, "an ARRAY")
    kind = elements.type.value_type
    if pa.types.is_nested(kind) or wider(kind, element.type, promote_text=False) != kind:
        raise InvalidExpression(
            f"{name}: a value of type {spark_name(element.type)} cannot be searched for among values of type "
            f"{spark_name(kind)}; cast it"
        )
    return call(name, pa.bool_(), elements, implicit(element, kind))


OPERATORS: tuple[Operator, ...] = ("=", "!=", "<", "<=", ">", ">=", "<=>")

FUNCTIONS: dict[str, Function] = {
    **{operator: Function(_bind_comparison(operator), 2, 2) for operator in OPERATORS},
    **{name: Function(_bind_arithmetic, 2, 2) for name in ("+", "-", "*")},
    "/": Function(_bind_arithmetic, 2, 2),
    "div": Function(_bind_arithmetic, 2, 2),
    "%": Function(_bind_arithmetic, 2, 2),
    "mod": Function(_bind_mod, 2, 2),
    "negative": Function(_bind_same, 1, 1),
    "not": Function(_bind_not, 1, 1),
    "equal_null": Function(_bind_comparison("<=>"), 2, 2),
    "isnull": Function(_bind_is_null, 1, 1),
    "isnotnull": Function(_bind_is_null, 1, 1),
    "isnan": _function(pa.bool_(), _double),
    "coalesce": Function(_bind_coalesce, 1, None),
    "nvl": Function(_bind_coalesce, 2, 2),
    "nvl2": Function(_bind_nvl2, 3, 3),
    "if": Function(_bind_if, 3, 3),
    "nullif": Function(_bind_nullif, 2, 2),
    "greatest": Function(_bind_extreme, 2, None),
    "least": Function(_bind_extreme, 2, None),
    "abs": Function(_bind_same, 1, 1),
    "round": Function(_bind_round, 1, 2),
    "floor": Function(_bind_whole, 1, 1),
    "ceil": Function(_bind_whole, 1, 1),
    "sign": _function(pa.float64(), _double),
    "sqrt": _function(pa.float64(), _double),
    "concat": Function(_bind_concat, 1, None),
    "upper": _function(pa.string(), _text),
    "lower": _function(pa.string(), _text),
    "length": Function(_bind_length, 1, 1),
    **{name: _function(pa.string(), _text) for name in ("trim", "ltrim", "rtrim")},
    "substring": _function(pa.string(), _text, _integer, _integer, optional=1),
    "left": _function(pa.string(), _text, _integer),
    "right": _function(pa.string(), _text, _integer),
    "replace": _function(pa.string(), _text, _literal(_text), _literal(_text), optional=1),
    **{name: _function(pa.bool_(), _text, _literal(_text)) for name in ("contains", "startswith", "endswith")},
    "like": Function(_bind_like, 2, 2),
    "rlike": Function(_bind_rlike, 2, 2),
    "md5": Function(_bind_md5, 1, 1),
    **{name: _function(pa.string(), _text, _literal(_integer), _one_letter, optional=1) for name in ("lpad", "rpad")},
    "reverse": _function(pa.string(), _text),
    **{
        name: _function(pa.int32(), _date)
        for name in ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekday", "weekofyear")
    },
    **{name: _function(pa.int32(), _timestamp) for name in ("hour", "minute", "second")},
    "date_add": _function(pa.date32(), _date, _integer),
    "date_sub": _function(pa.date32(), _date, _integer),
    "datediff": _function(pa.int32(), _date, _date),
    "date_trunc": Function(_bind_truncate, 2, 2),
    "trunc": Function(_bind_truncate, 2, 2),
    "date_format": Function(_bind_date_format, 2, 2),
    "unix_timestamp": _function(pa.int64(), _timestamp),
    "to_date": Function(_bind_parsed(pa.date32()), 1, 2),
    "to_timestamp": Function(_bind_parsed(TIMESTAMP), 1, 2),
    "from_unixtime": Function(_bind_from_unixtime, 1, 2),
    "date": Function(_bind_cast_to(pa.date32()), 1, 1),
    "timestamp": Function(_bind_cast_to(TIMESTAMP), 1, 1),
    "string": Function(_bind_cast_to(pa.string()), 1, 1),
    "int": Function(_bind_cast_to(pa.int32()), 1, 1),
    "bigint": Function(_bind_cast_to(pa.int64()), 1, 1),
    "double": Function(_bind_cast_to(pa.float64()), 1, 1),
    "boolean": Function(_bind_cast_to(pa.bool_()), 1, 1),
    "named_struct": Function(_bind_named_struct, 2, None),
    "struct": Function(_bind_struct, 1, None),
    "array": Function(_bind_array, 1, None),
    "size": Function(_bind_size, 1, 1),
    "array_contains": Function(_bind_array_contains, 2, 2),
}

ALIASES = {
    "ifnull": "nvl",
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "dayofmonth": "day",
    "ceiling": "ceil",
    "cardinality": "size",
    "signum": "sign",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "regexp": "rlike",
    "regexp_like": "rlike",
}
