"""Predicates as Arrow expressions, with Spark's semantics: null is not true, NaN equals itself and is above every number."""

from __future__ import annotations

import functools
import operator as op
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression.predicate import And, Column, ColumnComparison, Comparison, Constant, In, IsNull, Like, Not, Or, Predicate

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}


def to_arrow(predicate: Predicate) -> pc.Expression:
    """The predicate as an expression over a table whose columns it names. `Table.filter` keeps the rows where it is true."""
    match predicate:
        case Comparison(operator=operator, column=column, value=value):
            field = _field(column)
            if operator == "<=>":
                return pc.coalesce(field == value, pc.scalar(False))
            compared = _COMPARE[operator](field, value)
            return compared | pc.is_nan(field) if operator in (">", ">=") and pa.types.is_floating(column.type) else compared
        case ColumnComparison(operator=operator, left=left, right=right):
            return _compare_columns(operator, left, right)
        case In(column=column, values=values):
            # One comparison a value, so that types widen as in any comparison; null stays null.
            field = _field(column)
            if not values:
                return pc.if_else(field.is_valid(), pc.scalar(False), pc.scalar(None).cast(pa.bool_()))
            if len({value.type for value in values}) == 1 and values[0].type == column.type:
                found = field.isin(pa.array([value.as_py() for value in values], column.type))
                return pc.if_else(field.is_valid(), found, pc.scalar(None).cast(pa.bool_()))
            return functools.reduce(op.or_, (field == value for value in values))
        case Like(column=column, pattern=pattern):
            return pc.match_like(_field(column), pattern)
        case IsNull(column=column):
            return _field(column).is_null()
        case Constant(value=value):
            return pc.scalar(value).cast(pa.bool_())
        case Not(operand=operand):
            return ~to_arrow(operand)
        case And(operands=operands):
            return functools.reduce(op.and_, map(to_arrow, operands))
        case Or(operands=operands):
            return functools.reduce(op.or_, map(to_arrow, operands))


def _compare_columns(operator: str, left: Column, right: Column) -> pc.Expression:
    a, b = _field(left), _field(right)
    if operator == "<=>":
        return pc.coalesce(_equal(a, b, left), a.is_null() & b.is_null())
    if not pa.types.is_floating(left.type):
        return _COMPARE[operator](a, b)
    # NaN equals NaN and is above every other value.
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    match operator:
        case "=":
            return _equal(a, b, left)
        case "!=":
            return ~_equal(a, b, left)
        case "<":
            return (a < b) | (~nan_a & nan_b)
        case "<=":
            return (a <= b) | nan_b
        case ">":
            return (a > b) | (nan_a & ~nan_b)
        case _:
            return (a >= b) | nan_a


def _equal(a: pc.Expression, b: pc.Expression, column: Column) -> pc.Expression:
    return (a == b) | (pc.is_nan(a) & pc.is_nan(b)) if pa.types.is_floating(column.type) else a == b


def _field(column: Column) -> pc.Expression:
    return pc.field(*column.path) if len(column.path) > 1 else pc.field(column.path[0])
