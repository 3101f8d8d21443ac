"""Predicates as Arrow expressions, with Spark's semantics: null is not true, NaN equals itself and is above every number."""

from __future__ import annotations

import functools
import operator as op
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression.tree import (
    And,
    Column,
    ColumnComparison,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
)

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
_CHAIN = 32


def to_arrow(predicate: Predicate) -> pc.Expression:
    """The predicate as an expression over a table whose columns it names. `Table.filter` keeps the rows where it is true.

    For predicates without a Condition, which only `matching` and `truth` know.
    """
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
            field = _field(column)
            return pc.if_else(field.is_valid(), field.isin(_value_set(column, values)), pc.scalar(None).cast(pa.bool_()))
        case Like(column=column, pattern=pattern):
            return pc.match_like(_field(column), pattern)
        case IsNull(column=column):
            return _field(column).is_null()
        case Constant(value=value):
            return pc.scalar(value).cast(pa.bool_())
        case Condition():
            raise AssertionError("a condition is no expression of Arrow: use `matching`")
        case Not(operand=operand):
            return ~to_arrow(operand)
        case And(operands=operands):
            return _tree(op.and_, [to_arrow(operand) for operand in operands])
        case Or(operands=operands):
            return _tree(op.or_, [to_arrow(operand) for operand in operands])


def _tree(join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: list[pc.Expression]) -> pc.Expression:
    """Many parts as a tree of small depth. Arrow turns a tree of one operator into a chain, whose recursion overflows the stack;
    a double negation keeps it from that.
    """
    while len(parts) > _CHAIN:
        parts = [~~functools.reduce(join, parts[i : i + _CHAIN]) for i in range(0, len(parts), _CHAIN)]
    return functools.reduce(join, parts)


def _value_set(column: Column, values: Sequence[pa.Scalar]) -> pa.Array:
    """The values in the column's own type, which `isin` compares by their bytes."""
    plain = [value.as_py() for value in values]
    if not pa.types.is_floating(column.type):
        return pa.array(plain, column.type)
    if any(value == 0 for value in plain):
        plain += [0.0, -0.0]
    exact = pa.array(plain, pa.float64())
    own = exact.cast(column.type)
    # What is no value of a narrower float equals none of them; NaN, which only partition values bring here, equals itself.
    return own.filter(pc.or_(pc.equal(own.cast(pa.float64()), exact), pc.is_nan(exact)))


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
            return (a <= b) | (nan_b & a.is_valid())
        case ">":
            return (a > b) | (nan_a & ~nan_b)
        case _:
            return (a >= b) | (nan_a & b.is_valid())


def _equal(a: pc.Expression, b: pc.Expression, column: Column) -> pc.Expression:
    return (a == b) | (pc.is_nan(a) & pc.is_nan(b)) if pa.types.is_floating(column.type) else a == b


def _field(column: Column) -> pc.Expression:
    return pc.field(*column.path) if len(column.path) > 1 else pc.field(column.path[0])
