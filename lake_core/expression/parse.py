"""From Spark SQL text to a predicate over a schema. What cannot be evaluated is refused by name, never skipped."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake_core.errors import LakeError
from lake_core.expression.predicate import (
    FLIPPED,
    And,
    Column,
    ColumnComparison,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Operator,
    Or,
    Predicate,
    negated,
)

_MAX_TEXT = 1 << 20

_UNDERSTOOD = frozenset(
    {"this", "expression", "expressions", "low", "high", "query", "unnest", "negate", "quoted", "table", "db", "catalog", "to"}
)
"""Arguments of the parser's nodes that the binder looks at, or refuses in a place of its own."""

_OPERATORS: dict[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}


class InvalidExpression(LakeError):
    """SQL text that does not parse, names no column of the schema, or uses what this package does not evaluate."""


def parse_predicate(text: str, schema: pa.Schema) -> Predicate:
    """Parse a boolean Spark SQL expression over the columns of `schema`.

    Known: `= == != <> < <= > >= <=>`, IN, BETWEEN, LIKE, IS [NOT] NULL, AND, OR, NOT, boolean columns; literals of every
    primitive type, typed ones (`DATE '…'`, `TIMESTAMP '…'`, CAST of a literal) included; nested fields by dots. Column names
    ignore case. A timestamp literal without a zone is UTC. Raises InvalidExpression.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidExpression("a predicate is Spark SQL text, such as \"month = DATE '2024-01-01'\"")
    if len(text) > _MAX_TEXT:
        raise InvalidExpression(f"a predicate of {len(text)} characters is too long (at most {_MAX_TEXT})")
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
        return _Binder(text, schema).predicate(tree)
    except SqlglotError as error:
        raise InvalidExpression(f"predicate {_short(text)} does not parse: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise InvalidExpression(f"predicate {_short(text)} nests too deeply; use IN (…) instead of long chains of OR") from None


class _Binder:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text, self._schema = text, schema

    def predicate(self, node: exp.Expr) -> Predicate:
        unknown = [name for name, value in node.args.items() if value and name not in _UNDERSTOOD]
        if unknown:
            # The parser knows more variants of a node than this binder: one that is overlooked would give wrong rows.
            raise self._refused(node)
        found = self._positive(node)
        return negated(found) if node.args.get("negate") else found

    def _positive(self, node: exp.Expr) -> Predicate:
        match node:
            case exp.Paren(this=inner):
                return self.predicate(inner)
            case exp.And():
                return And(tuple(self.predicate(part) for part in node.flatten()))
            case exp.Or():
                return Or(tuple(self.predicate(part) for part in node.flatten()))
            case exp.Not(this=inner):
                return negated(self.predicate(inner))
            case exp.Is(this=left, expression=exp.Null()):
                return IsNull(self._column(left))
            case exp.Is(this=left, expression=exp.Boolean(this=flag)):
                return Comparison("<=>", self._boolean(left), pa.scalar(flag))
            case exp.In(this=left) if not node.args.get("query") and not node.args.get("unnest"):
                return self._in(left, node.expressions)
            case exp.Between(this=left):
                low = self._comparison(">=", left, node.args["low"])
                return And((low, self._comparison("<=", left, node.args["high"])))
            case exp.Like(this=left, expression=pattern):
                return self._like(left, pattern)
            case exp.Boolean(this=flag):
                return Constant(bool(flag))
            case exp.Null() | exp.Cast(this=exp.Null()):
                return Constant(None)
            case exp.Column() | exp.Dot():
                return Comparison("=", self._boolean(node), pa.scalar(True))
        operator = _OPERATORS.get(type(node))
        if operator is None:
            raise self._refused(node)
        return self._comparison(operator, node.this, node.expression)

    def _comparison(self, operator: Operator, left: exp.Expr, right: exp.Expr) -> Predicate:
        left, right = left.unnest(), right.unnest()
        if _is_column(left) and _is_column(right):
            pair = self._column(left), self._column(right)
            if _family(pair[0].type) != _family(pair[1].type):
                raise InvalidExpression(
                    f"predicate {_short(self._text)} compares {'.'.join(pair[0].path)} ({pair[0].type}) "
                    f"with {'.'.join(pair[1].path)} ({pair[1].type})"
                )
            return ColumnComparison(operator, *pair)
        if _is_column(right):
            left, right, operator = right, left, FLIPPED[operator]
        if not _is_column(left):
            raise self._refused(left)
        column = self._column(left)
        value = self._literal(right, column)
        if not value.is_valid:
            return IsNull(column) if operator == "<=>" else Constant(None)
        return Comparison(operator, column, value)

    def _in(self, left: exp.Expr, items: list[exp.Expr]) -> Predicate:
        column = self._column(left)
        values = [self._literal(item, column) for item in items]
        found = In(column, tuple(value for value in values if value.is_valid))
        # `x IN (1, NULL)` is never false: true for 1, null for everything else.
        return found if len(found.values) == len(values) else Or((found, Constant(None)))

    def _like(self, left: exp.Expr, pattern: exp.Expr) -> Predicate:
        column = self._column(left)
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self._refused(pattern)
        if _family(column.type) != "text":
            raise InvalidExpression(f"predicate {_short(self._text)}: LIKE needs text, but {'.'.join(column.path)} is {column.type}")
        return Like(column, pattern.this)

    def _boolean(self, node: exp.Expr) -> Column:
        column = self._column(node)
        if not pa.types.is_boolean(column.type):
            raise InvalidExpression(f"predicate {_short(self._text)}: {'.'.join(column.path)} is {column.type}, not boolean")
        return column

    def _column(self, node: exp.Expr) -> Column:
        node = node.unnest()
        if not _is_column(node):
            raise self._refused(node)
        names = [part.name for part in node.parts]  # type: ignore[attr-defined]
        path: list[str] = []
        kind = pa.struct(list(self._schema))
        for name in names:
            if path and not pa.types.is_struct(kind):
                raise InvalidExpression(f"predicate {_short(self._text)}: {'.'.join(path)} is {kind}: it has no fields")
            found = _field(list(kind), name)
            if found is None:
                known = ", ".join(child.name for child in list(self._schema)[:20])
                raise InvalidExpression(f"predicate {_short(self._text)}: no column {'.'.join(names)!r}; there are {known}")
            path.append(found.name)
            kind = found.type
        return Column(tuple(path), kind)

    def _literal(self, node: exp.Expr, column: Column) -> pa.Scalar:
        node = node.unnest()
        if isinstance(node, exp.Null):
            return pa.scalar(None, column.type)
        value = self._value(node)
        family = _family(column.type)
        try:
            convert = _CONVERT[family]
        except KeyError:
            raise InvalidExpression(
                f"predicate {_short(self._text)}: columns of type {column.type} cannot be compared ({'.'.join(column.path)})"
            ) from None
        try:
            return convert(value, column.type)
        except (ValueError, ArithmeticError, TypeError, pa.ArrowInvalid):
            raise InvalidExpression(
                f"predicate {_short(self._text)}: {node.sql(dialect='spark')} is no value of {'.'.join(column.path)} ({column.type})"
            ) from None

    def _value(self, node: exp.Expr) -> object:
        match node:
            case exp.Literal(this=text) if node.is_string:
                return text
            case exp.Literal(this=text):
                return decimal.Decimal(text)
            case exp.Neg(this=inner) if isinstance(number := self._value(inner.unnest()), decimal.Decimal):
                return -number
            case exp.Boolean(this=flag):
                return bool(flag)
            case exp.HexString(this=digits):
                return bytes.fromhex(digits)
            case exp.Cast(this=inner, to=target):
                return self._cast(inner.unnest(), target)
        raise self._refused(node)

    def _cast(self, inner: exp.Expr, target: exp.DataType) -> object:
        value = self._value(inner)
        kinds = exp.DataType.Type
        try:
            if target.this == kinds.DATE and isinstance(value, str):
                return dt.date.fromisoformat(value.strip())
            if target.this in (kinds.TIMESTAMP, kinds.TIMESTAMPTZ, kinds.TIMESTAMPLTZ, kinds.TIMESTAMPNTZ) and isinstance(value, str):
                return _timestamp(value)
            if target.this in exp.DataType.NUMERIC_TYPES:
                number = decimal.Decimal(value) if isinstance(value, str) else value
                if isinstance(number, decimal.Decimal) and (target.this not in exp.DataType.INTEGER_TYPES or number == int(number)):
                    return number
            if target.this in exp.DataType.TEXT_TYPES and isinstance(value, str):
                return value
        except (ValueError, ArithmeticError):
            pass
        raise InvalidExpression(
            f"predicate {_short(self._text)}: CAST({inner.sql(dialect='spark')} AS {target.sql(dialect='spark')}) is no literal"
        )

    def _refused(self, node: exp.Expr) -> InvalidExpression:
        return InvalidExpression(
            f"predicate {_short(self._text)}: {node.sql(dialect='spark')[:80]!r} ({type(node).__name__}) is not evaluated here. "
            f"Compare columns with literals; filter the rest on the data itself"
        )


def _field(fields: Sequence[pa.Field], name: str) -> pa.Field | None:
    exact = next((child for child in fields if child.name == name), None)
    return exact or next((child for child in fields if child.name.lower() == name.lower()), None)


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) or (isinstance(node, exp.Dot) and all(isinstance(part, exp.Identifier) for part in node.parts))


def _family(data_type: pa.DataType) -> str:
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


def _number(value: object) -> decimal.Decimal:
    if isinstance(value, str):
        value = decimal.Decimal(value.strip())
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        raise ValueError(value)
    return value


def _exact(value: object, _: pa.DataType) -> pa.Scalar:
    number = _number(value)
    if number == number.to_integral_value() and -(2**63) <= number < 2**63:
        return pa.scalar(int(number), pa.int64())
    return _decimal(number, _)


def _decimal(value: object, _: pa.DataType) -> pa.Scalar:
    return pa.scalar(decimal.Decimal(format(_number(value), "f")))


def _text(value: object, data_type: pa.DataType) -> pa.Scalar:
    if not isinstance(value, str):
        raise ValueError(value)
    return pa.scalar(value, data_type)


def _bytes(value: object, data_type: pa.DataType) -> pa.Scalar:
    if not isinstance(value, (bytes, str)):
        raise ValueError(value)
    return pa.scalar(value.encode() if isinstance(value, str) else value, data_type)


def _flag(value: object, _: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(value)
    return pa.scalar(value)


def _date(value: object, data_type: pa.DataType) -> pa.Scalar:
    if isinstance(value, str):
        value = dt.date.fromisoformat(value.strip())
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise ValueError(value)
    return pa.scalar(value, data_type)


def _instant(value: object, data_type: pa.DataType) -> pa.Scalar:
    if isinstance(value, str):
        value = _timestamp(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if not isinstance(value, dt.datetime):
        raise ValueError(value)
    if data_type.tz is None:
        if value.tzinfo is not None:
            raise ValueError(value)
        return pa.scalar(value, pa.timestamp("us"))
    return pa.scalar(value if value.tzinfo else value.replace(tzinfo=dt.UTC), pa.timestamp("us", tz="UTC"))


def _timestamp(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.strip())


_CONVERT: dict[str, Callable[[object, pa.DataType], pa.Scalar]] = {
    "integer": _exact,
    "decimal": _decimal,
    "float": lambda value, _: pa.scalar(float(_number(value))),
    "text": _text,
    "binary": _bytes,
    "boolean": _flag,
    "date": _date,
    "timestamp": _instant,
    "timestamp_ntz": _instant,
}


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:117]}…")
