"""Binds the SQL parser's tree to leaves of predicates: exact comparisons of columns with literals of their types."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from lake_core.arrow_scalar import scalar
from lake_core.expression.bind import OPERATORS, TYPES, Binder
from lake_core.expression.coercion import implicit, wider
from lake_core.expression.errors import EvaluationFailed, InvalidExpression, short
from lake_core.expression.evaluate import evaluate
from lake_core.expression.literal import (
    compare,
    family,
    literal_of,
    one_of,
    parse_date,
    parse_timestamp,
    round_decimal,
    round_float,
    round_integer,
    to_number,
)
from lake_core.expression.sql import is_column, parts_of, short_sql
from lake_core.expression.sql_literal import hex_bytes
from lake_core.expression.tree import (
    FLIPPED,
    NULL,
    TRUE,
    And,
    Column,
    Comparison,
    IsNull,
    Like,
    Literal,
    Operator,
    Or,
    Predicate,
    columns,
    negated,
)

if TYPE_CHECKING:
    from lake_core.expression.name import Names

_UNDERSTOOD = frozenset(
    {
        "this",
        "expression",
        "expressions",
        "low",
        "high",
        "query",
        "unnest",
        "negate",
        "quoted",
        "table",
        "db",
        "catalog",
        "to",
    }
)
"""Arguments of the parser's nodes that this binder handles. The code that handles them may refuse some."""


class NoLeaf(InvalidExpression):
    """A node is not a comparison of a column with a literal. It has to be evaluated row by row."""


class LeafBinder:
    """Binds nodes of the parser's tree that are leaves of a predicate."""

    def __init__(self, text: str, names: Names, expressions: Binder) -> None:
        self._text, self._names, self._expressions = text, names, expressions

    def bind(self, node: exp.Expr) -> Predicate:
        """Bind a leaf. Raises NoLeaf for another node, InvalidExpression for a leaf that is wrong."""
        self._expressions.check(node)
        unknown = [name for name, value in node.args.items() if value and name not in _UNDERSTOOD]
        if unknown:
            # The parser knows more variants of a node than this binder. Ignoring one would return wrong rows.
            raise self._refused(node)
        leaf = self._positive(node)
        return negated(leaf) if node.args.get("negate") else leaf

    def _positive(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Is(this=left, expression=exp.Null()):
                return IsNull(self._column(left))
            case exp.Is(this=left, expression=exp.Boolean(this=flag)):
                return Comparison("<=>", self._boolean(left), Literal(scalar(flag)))
            case exp.In(this=left) if not node.args.get("query") and not node.args.get("unnest"):
                return self._in(left, node.expressions)
            case exp.Between(this=left):
                low = self._comparison(">=", left, node.args["low"])
                return And((low, self._comparison("<=", left, node.args["high"])))
            case exp.Like(this=left, expression=pattern):
                return self._like(left, pattern)
            case exp.Boolean(this=flag):
                return Literal(scalar(bool(flag)))
            case exp.Null() | exp.Cast(this=exp.Null()):
                return NULL
            case exp.Column() | exp.Dot():
                return Comparison("=", self._boolean(node), TRUE)
        operator = OPERATORS.get(type(node))
        if operator is None:
            raise self._refused(node)
        return self._comparison(operator, node.this, node.expression)

    def _comparison(self, operator: Operator, left: exp.Expr, right: exp.Expr) -> Predicate:
        left, right = left.unnest(), right.unnest()
        if self._is_column(left) and self._is_column(right):
            pair = self._column(left), self._column(right)
            if family(pair[0].type) != family(pair[1].type):
                raise InvalidExpression(
                    f"predicate {short(self._text)} compares {'.'.join(pair[0].path)} ({pair[0].type}) "
                    f"with {'.'.join(pair[1].path)} ({pair[1].type})"
                )
            if pa.types.is_null(pair[0].type):
                return TRUE if operator == "<=>" else NULL
            if pa.types.is_nested(pair[0].type):
                raise InvalidExpression(
                    f"predicate {short(self._text)}: columns of type {pair[0].type} cannot be compared; "
                    "name their fields"
                )
            if not _comparable(pair[0].type, pair[1].type):
                raise InvalidExpression(
                    f"predicate {short(self._text)}: {'.'.join(pair[0].path)} ({pair[0].type}) and "
                    f"{'.'.join(pair[1].path)} ({pair[1].type}) do not fit into a common decimal type; cast one of them"
                )
            return Comparison(operator, *pair)
        if self._is_column(right):
            left, right, operator = right, left, FLIPPED[operator]
        if not self._is_column(left):
            raise self._refused(left)
        column = self._column(left)
        if _is_null(right):
            return IsNull(column) if operator == "<=>" else NULL
        value = self._literal(right, column)
        return compare(operator, column, value)

    def _in(self, left: exp.Expr, items: list[exp.Expr]) -> Predicate:
        column = self._column(left)
        literals = [self._literal(item, column) for item in items if not _is_null(item.unnest())]
        leaf = one_of(column, literals)
        # `x IN (1, NULL)` is never false: true for 1, null for everything else.
        return leaf if len(literals) == len(items) else Or((leaf, NULL))

    def _like(self, left: exp.Expr, pattern: exp.Expr) -> Predicate:
        column = self._column(left)
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self._refused(pattern)
        if family(column.type) != "text":
            raise InvalidExpression(
                f"predicate {short(self._text)}: LIKE needs text, but {'.'.join(column.path)} is {column.type}"
            )
        return Like(column, pattern.this)

    def _is_column(self, node: exp.Expr) -> bool:
        return is_column(node) and not self._expressions.is_clock(node)

    def _boolean(self, node: exp.Expr) -> Column:
        column = self._column(node)
        if not pa.types.is_boolean(column.type):
            raise InvalidExpression(
                f"predicate {short(self._text)}: {'.'.join(column.path)} is {column.type}, not boolean"
            )
        return column

    def _column(self, node: exp.Expr) -> Column:
        node = node.unnest()
        if not is_column(node):
            raise self._refused(node)
        return self._names.column(parts_of(node))

    def _literal(self, node: exp.Expr, column: Column) -> pa.Scalar | Decimal:
        """Return a literal that is not null as a value of the column's type.

        For integers and decimals, return the number, which may be out of range for that type.
        """
        node = node.unnest()
        try:
            value = self._value(node)
        except NoLeaf:
            constant = self._moment(node, column.type)
            if constant is None:
                raise
            return constant
        return literal_of(column, value, f"predicate {short(self._text)}", short_sql(node))

    def _moment(self, node: exp.Expr, kind: pa.DataType) -> pa.Scalar | None:
        """Return the date or timestamp of an expression without columns, such as CURRENT_DATE() - INTERVAL 7 DAYS.

        Return None for any other expression. A value, unlike an expression, can be used to skip files.
        """
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        expression = self._expressions.bind(node)
        if any(columns(expression)) or wider(expression.type, kind, promote_text=False) != kind:
            return None
        try:
            value = evaluate(implicit(expression, kind), pa.table({"": [0]}))[0]
        except EvaluationFailed:
            return None
        return value if value.is_valid else None

    def _value(self, node: exp.Expr) -> object:
        match node:
            case exp.Literal(this=text) if node.is_string:
                return text
            case exp.Literal(this=text):
                try:
                    return to_number(text)
                except (ValueError, ArithmeticError):
                    raise InvalidExpression(
                        f"predicate {short(self._text)}: {short(text)} is not a number that can be compared"
                    ) from None
            case exp.Neg(this=inner):
                number = self._value(inner.unnest())
                if isinstance(number, Decimal):
                    return number.copy_negate()
                if isinstance(number, float):
                    return -number
            case exp.Boolean(this=flag):
                return bool(flag)
            case exp.HexString(this=digits):
                return hex_bytes(digits)
            case exp.Cast(this=inner, to=exp.DataType() as target) if not {k for k, v in node.args.items() if v} - {
                "this",
                "to",
                "safe",
            }:
                return self._cast(inner.unnest(), target)
        raise self._refused(node)

    def _cast(self, inner: exp.Expr, target: exp.DataType) -> object:
        value = self._value(inner)
        kinds = exp.DataType.Type
        try:
            if target.this == kinds.DATE and isinstance(value, str):
                return parse_date(value)
            if target.this in (
                kinds.TIMESTAMP,
                kinds.TIMESTAMPTZ,
                kinds.TIMESTAMPLTZ,
                kinds.TIMESTAMPNTZ,
            ) and isinstance(value, str):
                moment = parse_timestamp(value)
                if target.this != kinds.TIMESTAMPNTZ or moment.tzinfo is None:
                    return moment
            if target.this in (kinds.FLOAT, kinds.DOUBLE):
                return round_float(to_number(value), pa.float32() if target.this == kinds.FLOAT else pa.float64())
            if (kind := TYPES.get(target.this)) is not None and pa.types.is_integer(kind):
                return round_integer(value, kind.bit_width)
            if target.this == kinds.DECIMAL:
                return round_decimal(to_number(value), [int(part.name) for part in target.expressions])
            if target.this in exp.DataType.TEXT_TYPES and isinstance(value, str):
                return value
        except (ValueError, ArithmeticError):
            pass
        raise InvalidExpression(
            f"predicate {short(self._text)}: "
            f"CAST({short_sql(inner)} AS {short_sql(target)}) is not a literal that can be compared"
        )

    def _refused(self, node: exp.Expr) -> InvalidExpression:
        return NoLeaf(
            f"predicate {short(self._text)}: "
            f"{short_sql(node)!r} ({type(node).__name__}) is not a comparison with a literal"
        )


def _comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether engines can cast both to one type: for decimals, one of at most 38 digits."""
    if not pa.types.is_decimal(left):
        return True
    return bool(max(left.precision - left.scale, right.precision - right.scale) + max(left.scale, right.scale) <= 38)


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Null)
