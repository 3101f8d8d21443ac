"""Predicates as Spark columns. Not as SQL text: Spark replaces `${…}` in text before it parses it."""

from __future__ import annotations

import functools
import operator as op
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from lake_core.expression import And, Column, ColumnComparison, Comparison, Constant, In, IsNull, Like, Not, Or, Predicate
from lake_core.expression.spark_sql import literal, quote_identifier, quote_text

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


def to_column(predicate: Predicate) -> SparkColumn:
    """The predicate for `DataFrame.where`; it means the same in every session, whatever its time zone."""
    match predicate:
        case Comparison(operator=operator, column=column, value=value):
            compared = _compare(operator, _field(column), _literal(value))
            return _with_nan(compared, column) if operator in (">", ">=", "!=") else compared
        case ColumnComparison(operator=operator, left=left, right=right):
            return _compare(operator, _field(left), _field(right))
        case In(column=column, values=values):
            if not values:
                return F.when(_field(column).isNotNull(), F.lit(False))
            return _field(column).isin(*map(_literal, values))
        case Like(column=column, pattern=pattern):
            return _field(column).like(pattern)
        case IsNull(column=column):
            return _field(column).isNull()
        case Constant(value=value):
            return F.lit(value).cast("boolean")
        case Not(operand=In(column=column) as operand):
            return _with_nan(~to_column(operand), column)
        case Not(operand=operand):
            return ~to_column(operand)
        case And(operands=operands):
            return functools.reduce(op.and_, map(to_column, operands))
        case Or(operands=operands):
            return functools.reduce(op.or_, map(to_column, operands))


def _with_nan(found: SparkColumn, column: Column) -> SparkColumn:
    """The same condition, in a form that is not pushed down into Parquet: the bounds of a row group do not tell of its NaNs,
    which are above every number, so that Spark would skip groups that have matching rows.
    """
    return found | F.isnan(_field(column)) if pa.types.is_floating(column.type) else found


def _compare(operator: str, left: SparkColumn, right: SparkColumn) -> SparkColumn:
    return left.eqNullSafe(right) if operator == "<=>" else _COMPARE[operator](left, right)


def _field(column: Column) -> SparkColumn:
    return F.col(".".join(map(quote_identifier, column.path)))


def _literal(value: pa.Scalar) -> SparkColumn:
    plain = value.as_py()
    # `$` may begin a variable, which only an escape keeps from being replaced.
    return F.expr(quote_text(plain).replace("$", "\\u0024") if isinstance(plain, str) else literal(value))
