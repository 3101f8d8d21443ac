"""Predicates as Arrow expressions, with Spark's semantics: null is not true, and NaN equals itself and exceeds all."""

from __future__ import annotations

import functools
import operator as op
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression.numeric import value_set
from lake_core.expression.tree import And, Column, Comparison, In, IsNull, Like, Literal, Not, Or, Predicate

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}
_CHAIN = 32


def to_arrow(predicate: Predicate) -> pc.Expression:
    """Convert the predicate to an expression over a table with its columns.

    `Table.filter` keeps the rows where it is true.

    This is for pushable predicates. Use `matching` or `evaluate` for the others.
    """
    match predicate:
        case Comparison(operator=operator, left=Column() as column, right=Literal(value=value)):
            field = _field(column)
            if operator == "<=>":
                return pc.coalesce(field == value, pc.scalar(False))
            compared = _COMPARE[operator](field, value)
            return (
                compared | pc.is_nan(field)
                if operator in (">", ">=") and pa.types.is_floating(column.type)
                else compared
            )
        case Comparison(operator=operator, left=Column() as left, right=Column() as right):
            return _compare_columns(operator, left, right)
        case In(operand=Column() as column, values=values):
            field = _field(column)
            return pc.if_else(
                field.is_valid(), field.isin(value_set(column.type, values)), pc.scalar(None).cast(pa.bool_())
            )
        case Like(operand=Column() as column, pattern=pattern):
            return pc.match_like(_field(column), pattern)
        case IsNull(operand=Column() as column):
            return _field(column).is_null()
        case Literal(value=value):
            return pc.scalar(value.as_py()).cast(pa.bool_())
        case Not(operand=operand):
            return ~to_arrow(operand)
        case And(operands=operands):
            return _tree(op.and_, [to_arrow(operand) for operand in operands])
        case Or(operands=operands):
            return _tree(op.or_, [to_arrow(operand) for operand in operands])
        case _:
            raise AssertionError(f"{type(predicate).__name__} cannot be an Arrow expression: use `matching`")


def _tree(join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: list[pc.Expression]) -> pc.Expression:
    """Combine many parts as a tree of small depth.

    Arrow turns a tree of one operator into a chain, and its recursion overflows the stack. A double negation prevents
    that.
    """
    while len(parts) > _CHAIN:
        parts = [~~functools.reduce(join, parts[i : i + _CHAIN]) for i in range(0, len(parts), _CHAIN)]
    return functools.reduce(join, parts)


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
