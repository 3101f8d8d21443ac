"""Binds the SQL parser's tree to an expression with types. Unknown nodes are refused by name, never skipped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake_core.arrow_scalar import scalar
from lake_core.expression.coercion import TIMESTAMP, TIMESTAMP_NTZ, cast_expression, meet, spark_name
from lake_core.expression.errors import InvalidExpression, short
from lake_core.expression.functions import bind_call, bind_operator, compare
from lake_core.expression.interval import interval, moved
from lake_core.expression.sql import is_column, parts_of, short_sql, suffixed_numbers, too_deep
from lake_core.expression.sql_literal import like_pattern, literal, number_literal, typed_literal
from lake_core.expression.tree import NULL, And, Call, Case, Cast, Expression, In, IsNull, Literal, Not, Operator, Or
from lake_core.expression.variants import VARIANT_FUNCTIONS, parse_path
from lake_core.variant_values import is_variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.expression.name import Names

_MAX_DEPTH = 150
"""The deepest nesting of nodes. Evaluation recurses too, and also runs in executors."""

OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
"""Comparisons."""

_BINARY: dict[type[exp.Expr], str] = {
    **OPERATORS,
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.DPipe: "concat",
}
_COMPARISONS = (*OPERATORS, exp.NullSafeNEQ)
_TESTS = (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Not)

_TYPE = re.compile(r"\w+(?: *\([0-9 ,]*\))?")
"""A type without parts, as text."""
_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high", "ifs", "default", "true", "to", "negate"})
"""The arguments of the parser's nodes that the binder looks at."""

_HARMLESS = {"safe", "typed", "coalesce", "quoted", "is_string"}

TYPES: dict[object, pa.DataType] = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.VARCHAR: pa.string(),
    exp.DataType.Type.BINARY: pa.binary(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMP: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPLTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}


_CLOCK: dict[str, pa.DataType] = {
    "current_timestamp": TIMESTAMP,
    "now": TIMESTAMP,
    "current_date": pa.date32(),
    "curdate": pa.date32(),
}
CLOCK_WORDS = ("current_timestamp", "current_date")
"""Functions that can be called without parentheses, unless a column has the same name."""


class Binder:
    """Binds the nodes of one text. `now` is the value of CURRENT_TIMESTAMP, in milliseconds since the epoch."""

    def __init__(self, text: str, names: Names, now: int | None) -> None:
        self._text, self._names, self._now, self._depth = text, names, now, 0

    def explain_mismatch(self, node: exp.Expr, error: InvalidExpression) -> None:
        """Take note of what is wrong with a node as a leaf. Only a binder that goes on after errors needs it."""

    def bind(self, node: exp.Expr) -> Expression:
        """Bind a node of the parser to an expression. Raises InvalidExpression, RecursionError."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise too_deep(self._text)
        try:
            self.check(node)
            return self._bind(node)
        except InvalidExpression as error:
            message = str(error)
            raise (
                error if message.startswith(short(self._text)) else InvalidExpression(f"{short(self._text)}: {message}")
            ) from None
        finally:
            self._depth -= 1

    def condition(self, node: exp.Expr) -> Expression:
        """Bind a node that must be a boolean. Raises InvalidExpression for another type."""
        expression = self.bind(node)
        if pa.types.is_null(expression.type):
            return cast_expression(expression, pa.bool_())
        if not pa.types.is_boolean(expression.type):
            raise InvalidExpression(
                f"{short(self._text)}: {short_sql(node)} is {spark_name(expression.type)}, not a condition"
            )
        return expression

    def check(self, node: exp.Expr) -> None:
        """Refuse variants of a node that the binder does not know, and nodes that Spark would group differently."""
        if not is_column(node):
            unknown = [name for name, value in node.args.items() if value and name not in _ARGUMENTS | _HARMLESS]
            if unknown:
                raise self._refused(node)
        sides = [side for side in (node.args.get("this"), node.args.get("expression")) if isinstance(side, exp.Expr)]
        mixed = (isinstance(node, _COMPARISONS) and any(isinstance(side, _TESTS) for side in sides)) or (
            isinstance(node, exp.DPipe) and any(isinstance(side, (exp.Add, exp.Sub)) for side in sides)
        )
        if mixed:
            raise InvalidExpression(f"{short_sql(node)!r} is ambiguous: add parentheses")

    def _bind(self, node: exp.Expr) -> Expression:
        if is_column(node):
            return self._clock(node.name) if self.is_clock(node) else self._names.column(parts_of(node))
        if isinstance(node, (exp.Add, exp.Sub)) and (moment := self._moved(node)) is not None:
            return moment
        operator = _BINARY.get(type(node))
        if operator is not None:
            return bind_operator(operator, self.bind(node.this), self.bind(node.expression))
        expression = self._boolean(node) or self._other(node)
        return Not(expression) if node.args.get("negate") else expression

    def _boolean(self, node: exp.Expr) -> Expression | None:
        """Bind a node that combines conditions or tests a value. Return None for any other node."""
        match node:
            case exp.And():
                return And(tuple(self.condition(part) for part in node.flatten()))
            case exp.Or():
                return Or(tuple(self.condition(part) for part in node.flatten()))
            case exp.Not(this=inner):
                return Not(self.condition(inner))
            case exp.Is(this=left, expression=exp.Null()):
                return IsNull(self.bind(left))
            case exp.Is(this=left, expression=exp.Boolean(this=flag)):
                return compare("<=>", self.condition(left), Literal(scalar(bool(flag))))
            case exp.NullSafeNEQ(this=left, expression=right):
                return Not(compare("<=>", self.bind(left), self.bind(right)))
            case exp.In(this=left) if node.expressions:
                return self._in(self.bind(left), [self.bind(item) for item in node.expressions])
            case exp.Between(this=left):
                operand = self.bind(left)
                low = compare(">=", operand, self.bind(node.args["low"]))
                return And((low, compare("<=", operand, self.bind(node.args["high"]))))
            case exp.Like(this=left, expression=right):
                return self._like(left, right, "\\")
            case exp.RegexpLike(this=left, expression=right):
                return bind_call("rlike", [self.bind(left), self.bind(right)])
            case exp.Escape(this=exp.Like(this=left, expression=right) as like, expression=exp.Literal(this=escape)):
                test = self._like(left, right, escape)
                return Not(test) if like.args.get("negate") else test
        return None

    def _other(self, node: exp.Expr) -> Expression:
        match node:
            case exp.Paren(this=inner):
                return self.bind(inner)
            case exp.Case():
                return self._case(node)
            case exp.Cast(this=inner, to=exp.DataType() as target):
                return self._cast(node, inner, target)
            case exp.Neg(this=exp.Literal() as inner) if not inner.is_string:
                return number_literal(f"-{inner.this}")
            case exp.Neg(this=inner):
                return bind_operator("negative", self.bind(inner))
            case exp.Anonymous(this=str(name)) if name.lower() in _CLOCK and not node.expressions:
                return self._clock(name)
            case exp.Anonymous(this=str(name)) if name.lower() in VARIANT_FUNCTIONS:
                return self._part(name.lower(), node.expressions)
            case exp.Anonymous(this=str(name)):
                return bind_call(name.lower(), [self.bind(argument) for argument in node.expressions])
        constant = literal(node)
        if constant is None:
            raise self._refused(node)
        return constant

    def is_clock(self, node: exp.Expr) -> bool:
        """Return whether a name means the current time, not a column."""
        parts = parts_of(node)
        return (
            len(parts) == 1
            and parts[0].lower() in CLOCK_WORDS
            and not node.this.quoted
            and not self._names.knows(parts[0])
        )

    def _clock(self, name: str) -> Expression:
        if self._now is None:
            raise InvalidExpression(
                f"{name} has a different value each time it is evaluated, so a table's rules cannot use it"
            )
        moment = Literal(scalar(self._now * 1000, TIMESTAMP))
        return cast_expression(moment, _CLOCK[name.lower()])

    def _moved(self, node: exp.Add | exp.Sub) -> Expression | None:
        """Bind a date or timestamp plus or minus an interval. Return None for any other sum."""
        back = isinstance(node, exp.Sub)
        by, moment = interval(node.expression), node.this
        if by is None and not back:
            by, moment = interval(node.this), node.expression
        return None if by is None else moved(self.bind(moment), by, back=back)

    def _in(self, operand: Expression, items: Sequence[Expression]) -> Expression:
        operand, *converted = meet("IN", [operand, *items])
        literals = [item for item in converted if isinstance(item, Literal)]
        if pa.types.is_null(operand.type):
            return NULL
        if pa.types.is_nested(operand.type):
            raise InvalidExpression(f"IN: values of type {spark_name(operand.type)} cannot be compared")
        if len(literals) < len(converted):
            return Or(tuple(compare("=", operand, item) for item in converted))
        membership = In(operand, tuple(item.value for item in literals if item.value.is_valid))
        if len(membership.values) == len(literals):
            return membership
        # With a null in the list, the result is never false.
        return Or((membership, NULL))

    def _part(self, name: str, arguments: Sequence[exp.Expr]) -> Expression:
        """Bind a part of a variant. Raises InvalidExpression."""
        if len(arguments) != 3 or not all(isinstance(each, exp.Literal) and each.is_string for each in arguments[1:]):
            raise InvalidExpression(f"{name}() takes a variant, a path and a type, such as {name}(v, '$.a[0]', 'int')")
        operand, path, target = self.bind(arguments[0]), arguments[1].name, arguments[2].name
        if not is_variant(operand.type):
            raise InvalidExpression(f"{name}() takes a VARIANT, not {spark_name(operand.type)}")
        parse_path(path)
        try:
            built = exp.DataType.build(target, dialect="spark") if _TYPE.fullmatch(target) else None
        except SqlglotError:
            built = None
        if built is None:
            raise InvalidExpression(f"{name}(): {short(target)!r} is not a type to cast to")
        kind = self._type(built)
        return Call(name, (operand, Literal(scalar(path, pa.string()))), kind)

    def _like(self, left: exp.Expr, right: exp.Expr, escape: str) -> Expression:
        pattern = self.bind(right)
        if isinstance(pattern, Literal) and isinstance(text := pattern.value.as_py(), str):
            pattern = Literal(scalar(like_pattern(text, escape), pa.string()))
        return bind_call("like", [self.bind(left), pattern])

    def _case(self, node: exp.Case) -> Expression:
        subject = None if node.this is None else self.bind(node.this)
        conditions, values = [], []
        for branch in node.args["ifs"]:
            condition = (
                self.condition(branch.this) if subject is None else compare("=", subject, self.bind(branch.this))
            )
            conditions.append(condition)
            values.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        values.append(Literal(scalar(None, pa.null())) if default is None else self.bind(default))
        *converted, otherwise = meet("CASE", values)
        return Case(tuple(zip(conditions, converted, strict=True)), otherwise, otherwise.type)

    def _cast(self, node: exp.Expr, inner: exp.Expr, target: exp.DataType) -> Expression:
        null_if_invalid = bool(isinstance(node, exp.TryCast) and node.args.get("safe"))
        if not isinstance(node, exp.TryCast) and isinstance(inner, exp.Literal):
            return typed_literal(inner.this, target) or self._to(inner, target, null_if_invalid)
        return self._to(inner, target, null_if_invalid)

    def _to(self, inner: exp.Expr, target: exp.DataType, null_if_invalid: bool) -> Expression:
        operand, kind = self.bind(inner), self._type(target)
        cast = cast_expression(operand, kind, null_if_invalid=null_if_invalid)
        if (
            isinstance(inner, exp.Literal)
            and not inner.is_string
            and isinstance(cast, Literal)
            and cast.value.as_py() == float("inf")
        ):
            raise InvalidExpression(f"{short(inner.this)} is too large for {short_sql(target)}")
        if (
            isinstance(cast, Literal)
            and pa.types.is_integer(kind)
            and not (_is_number(inner) and self._are_suffixes(inner))
        ):
            # Spark does not count this as a literal; literals get fewer digits in decimal arithmetic.
            return Cast(operand, kind, null_if_invalid)
        return cast

    def _are_suffixes(self, inner: exp.Expr) -> bool:
        """Return whether the casts of numbers are suffixes (`7L`). The parser's tree does not tell them apart."""
        casts = sum(_is_number(cast.this) for cast in inner.root().find_all(exp.Cast))
        suffixes = suffixed_numbers(self._text)
        if 0 < suffixes < casts:
            raise InvalidExpression(
                "an expression cannot have both numbers with suffixes and casts of numbers; write only one of them"
            )
        return suffixes > 0

    def _type(self, target: exp.DataType) -> pa.DataType:
        if target.this == exp.DataType.Type.DECIMAL:
            sizes = [int(part.name) for part in target.expressions]
            precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
            if 0 <= scale <= precision <= 38 and precision:
                return pa.decimal128(precision, scale)
        elif not target.expressions and target.this in TYPES:
            return TYPES[target.this]
        raise InvalidExpression(f"casts to {short_sql(target)} are not supported")

    def _refused(self, node: exp.Expr) -> InvalidExpression:
        return InvalidExpression(
            f"{short_sql(node)!r} ({type(node).__name__}) is not supported: "
            "use only scalar functions of a row's columns"
        )


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string
