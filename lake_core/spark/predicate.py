"""Predicates as Spark columns. Not as SQL text: Spark replaces `${…}` in text before it parses it."""

from __future__ import annotations

import functools
import operator as op
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lake_core.expression import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    is_pushable,
    matching,
)
from lake_core.expression.spark_sql import literal, quote_identifier
from lake_core.spark.executor import BatchFunction, batch_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
}


def filtered(frame: DataFrame, predicate: Predicate) -> DataFrame:
    """Return the rows for which the predicate is true. The session's settings do not change the result.

    Spark evaluates the parts that it has columns for first, because it can push them into a scan. Arrow evaluates the
    other parts in the executors. If an expression fails for a row, the job fails.
    """
    parts = predicate.operands if isinstance(predicate, And) else (predicate,)
    plain = tuple(part for part in parts if is_pushable(part))
    in_arrow = tuple(part for part in parts if not is_pushable(part))
    if plain:
        frame = frame.where(to_column(And(plain)))
    return frame.mapInArrow(batch_function(_keep(And(in_arrow))), frame.schema) if in_arrow else frame


def _keep(predicate: Predicate) -> BatchFunction:
    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from matching(pa.Table.from_batches([batch]), predicate).to_batches()

    return keep


def to_column(predicate: Predicate) -> SparkColumn:
    """Convert a pushable predicate for `DataFrame.where`. The session's settings do not change its meaning."""
    match predicate:
        case Not(
            operand=In(operand=Column() as column) | Comparison(operator="<=>", left=Column() as column) as operand
        ):
            return _with_nan(~to_column(operand), column)
        case Not(operand=operand):
            return ~to_column(operand)
        case And(operands=operands):
            return _tree(op.and_, [to_column(operand) for operand in operands])
        case Or(operands=operands):
            return _tree(op.or_, [to_column(operand) for operand in operands])
        case _:
            return _leaf_column(predicate)


def _leaf_column(leaf: Predicate) -> SparkColumn:
    match leaf:
        case Comparison(operator="=" | "<=>" as operator, left=Column() as column, right=Literal(value=value)) if (
            _is_zero(value)
        ):
            return F.coalesce(_equals_zero(column), F.lit(False)) if operator == "<=>" else _equals_zero(column)
        case Comparison(operator=operator, left=Column() as column, right=Literal(value=value)):
            compared = _compare(operator, _field(column), _literal(value))
            return _with_nan(compared, column) if operator in (">", ">=", "!=") else compared
        case Comparison(operator=operator, left=Column() as left, right=Column() as right):
            return _compare(operator, _field(left), _field(right))
        case In(operand=Column() as column, values=values):
            others = [value for value in values if not _is_zero(value)]
            parts = [_field(column).isin(*map(_literal, others))] if others else []
            if len(others) < len(values):
                parts.append(_equals_zero(column))
            return functools.reduce(op.or_, parts) if parts else F.when(_field(column).isNotNull(), F.lit(False))
        case Like(operand=Column() as column, pattern=str(pattern)):
            return _field(column).like(pattern)
        case IsNull(operand=Column() as column):
            return _field(column).isNull()
        case Literal(value=value):
            return F.lit(value.as_py()).cast("boolean")
        case _:
            raise AssertionError(f"{type(leaf).__name__} cannot be a column of Spark: use `filtered`")


def _tree(join: Callable[[SparkColumn, SparkColumn], SparkColumn], parts: list[SparkColumn]) -> SparkColumn:
    """Combine many parts as a tree of small depth, because Spark recurses into it."""
    while len(parts) > 1:
        parts = [functools.reduce(join, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def _with_nan(condition: SparkColumn, column: Column) -> SparkColumn:
    """Return the same condition, in a form that is not pushed down into Parquet.

    The bounds of a row group ignore its NaNs. These are above every number, so Spark would skip groups that have
    matching rows.
    """
    return condition | F.isnan(_field(column)) if pa.types.is_floating(column.type) else condition


def _equals_zero(column: Column) -> SparkColumn:
    """Return the condition that a column equals 0.0 or -0.0.

    It is not an equality, because Parquet looks that up in the dictionary of a row group, where the two zeros differ.
    It is not a set, because Spark itself distinguishes the zeros there. Bounds include both, so `<=` can be pushed
    down.
    """
    zero = F.lit(0.0)
    return (_field(column) <= zero) & _with_nan(_field(column) >= zero, column)


def _is_zero(value: pa.Scalar) -> bool:
    return bool(pa.types.is_floating(value.type) and value.as_py() == 0)


def _compare(operator: str, left: SparkColumn, right: SparkColumn) -> SparkColumn:
    return left.eqNullSafe(right) if operator == "<=>" else _COMPARE[operator](left, right)


def _field(column: Column) -> SparkColumn:
    return F.col(".".join(map(quote_identifier, column.path)))


def _literal(value: pa.Scalar) -> SparkColumn:
    plain = value.as_py()
    return F.lit(plain) if isinstance(plain, str) else F.expr(literal(value))
