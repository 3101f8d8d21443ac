"""Evaluation of expressions over Arrow rows, one batch at a time. A branch is evaluated for the rows that reach it.

This code also runs in Spark's executors. It is sent to them by value, so it must not import the SQL parser.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.expression.arrays import Mask, Values, array, booleans, true, valid
from lake_core.expression.cast import cast_array
from lake_core.expression.errors import EvaluationFailed
from lake_core.expression.implementations import IMPLEMENTATIONS
from lake_core.expression.numeric import compare, compare_value, is_in
from lake_core.expression.tree import (
    And,
    Call,
    Case,
    Cast,
    Coalesce,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    columns,
    operands,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BATCH = 1 << 17


def evaluate(expression: Expression, rows: pa.Table) -> pa.ChunkedArray:
    """Return the expression's value for every row. Raises EvaluationFailed where Spark's ANSI mode fails a row."""
    if isinstance(expression, Column):
        return pa.chunked_array(
            [_column(chunk, expression.path[1:], expression.type) for chunk in rows.column(expression.path[0]).chunks],
            expression.type,
        )
    names = sorted({column.path[0] for column in columns(expression)})
    chunks = []
    if names:
        for batch in rows.select(names).to_batches(max_chunksize=_BATCH):
            chunks.append(
                evaluate_batch(expression, Rows(batch.num_rows, dict(zip(names, batch.columns, strict=True))))
            )
    else:
        for start in range(0, rows.num_rows, _BATCH):
            chunks.append(evaluate_batch(expression, Rows(min(_BATCH, rows.num_rows - start), {})))
    return pa.chunked_array(chunks, expression.type)


def matching(rows: pa.Table, predicate: Expression) -> pa.Table:
    """Return the rows for which the predicate is true. Raises EvaluationFailed."""
    return rows.filter(evaluate(predicate, rows))


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of rows that has a length even without columns."""

    length: int
    columns: Mapping[str, pa.Array]

    def take(self, chosen: Values) -> Rows:
        """Return the rows at these positions."""
        if len(chosen) == self.length:
            return self
        indices = array(chosen, pa.int64())
        return Rows(len(chosen), {name: column.take(indices) for name, column in self.columns.items()})


def evaluate_batch(expression: Expression, rows: Rows) -> pa.Array:
    """Evaluate one batch, as `evaluate` does for a table."""
    match expression:
        case Column(path=path, type=kind):
            return _column(rows.columns[path[0]], path[1:], kind)
        case Literal(value=value):
            return pa.repeat(value, rows.length) if value.is_valid else pa.nulls(rows.length, value.type)
        case Cast(operand=operand, type=kind, null_if_invalid=null_if_invalid):
            return cast_array(evaluate_batch(operand, rows), kind, null_if_invalid=null_if_invalid)
        case Case(branches=branches, otherwise=otherwise, type=kind):
            return _case(branches, otherwise, kind, rows)
        case Coalesce(operands=children, type=kind):
            return _coalesce(children, kind, rows)
        case Call():
            return _call(expression, rows)
        case And() | Or():
            return _junction(expression, rows)
        case _:
            return _test(expression, rows)


def _call(call: Call, rows: Rows) -> pa.Array:
    arguments = [evaluate_batch(argument, rows) for argument in call.arguments]
    try:
        result = IMPLEMENTATIONS[call.function](call, arguments)
    except pa.ArrowException as error:
        raise EvaluationFailed(f"{call.function}: {error}") from None
    return result if result.type == call.type else result.cast(call.type)


def _test(test: Comparison | In | Like | IsNull | Not, rows: Rows) -> pa.Array:
    operand = evaluate_batch(test.left if isinstance(test, Comparison) else test.operand, rows)
    try:
        match test:
            case Comparison(operator=operator, right=Literal(value=value)):
                return compare_value(operator, operand, value)
            case Comparison(operator=operator, right=right):
                return compare(operator, operand, evaluate_batch(right, rows))
            case In(values=values):
                return is_in(operand, values)
            case Like(pattern=pattern):
                return pa.nulls(rows.length, pa.bool_()) if pattern is None else pc.match_like(operand, pattern)
            case IsNull():
                return operand.is_null()
            case Not():
                return pc.invert(operand)
    except pa.ArrowException as error:
        name = test.operator if isinstance(test, Comparison) else type(test).__name__.upper()
        raise EvaluationFailed(f"{name}: {error}") from None


def _column(whole: pa.Array, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    for name in path:
        whole = pc.struct_field(whole, [name])
    # Spark hands over instants in the session's zone, and text of any offset size.
    return whole if whole.type == kind else whole.cast(kind)


def _case(
    branches: Sequence[tuple[Expression, Expression]], otherwise: Expression, kind: pa.DataType, rows: Rows
) -> pa.Array:
    remaining = np.arange(rows.length)
    pieces: list[tuple[Values, pa.Array]] = []
    for condition, value in branches:
        if not len(remaining):
            break
        remaining_rows = rows.take(remaining)
        is_true = true(evaluate_batch(condition, remaining_rows))
        if is_true.any():
            chosen = remaining[is_true]
            pieces.append((chosen, evaluate_batch(value, remaining_rows.take(np.flatnonzero(is_true)))))
            remaining = remaining[~is_true]
    if len(remaining):
        pieces.append((remaining, evaluate_batch(otherwise, rows.take(remaining))))
    return _assembled(pieces, kind, rows.length)


def _coalesce(operands: Sequence[Expression], kind: pa.DataType, rows: Rows) -> pa.Array:
    remaining = np.arange(rows.length)
    pieces: list[tuple[Values, pa.Array]] = []
    for number, operand in enumerate(operands):
        if not len(remaining):
            break
        value = evaluate_batch(operand, rows.take(remaining))
        has_value = np.ones(len(remaining), np.bool_) if number == len(operands) - 1 else valid(value)
        pieces.append((remaining[has_value], value if has_value.all() else value.filter(booleans(has_value))))
        remaining = remaining[~has_value]
    return _assembled(pieces, kind, rows.length)


def _assembled(pieces: Sequence[tuple[Values, pa.Array]], kind: pa.DataType, length: int) -> pa.Array:
    """Join the pieces in the order of the rows. Each piece comes with the numbers of its rows."""
    if not pieces:
        return pa.nulls(0, kind)
    if len(pieces) == 1:
        return pieces[0][1]
    position = np.empty(length, np.int64)
    position[np.concatenate([numbers for numbers, _ in pieces])] = np.arange(length)
    return pa.concat_arrays([part for _, part in pieces]).take(array(position, pa.int64()))


def _junction(junction: And | Or, rows: Rows) -> pa.Array:
    """Evaluate AND or OR. Each operand is evaluated for the rows that the operands before it did not decide.

    Null does not decide a row.
    """
    settles = isinstance(junction, Or)
    if not any(map(_may_fail, junction.operands)):
        join = pc.or_kleene if settles else pc.and_kleene
        return functools.reduce(join, (evaluate_batch(operand, rows) for operand in junction.operands))
    settled, unknown = np.zeros(rows.length, np.bool_), np.zeros(rows.length, np.bool_)
    for operand in junction.operands:
        remaining = np.flatnonzero(~settled)
        if not len(remaining):
            break
        answer = evaluate_batch(operand, rows.take(remaining))
        has_value: Mask = valid(answer)
        yes = true(answer)
        settled[remaining] = yes if settles else has_value & ~yes
        unknown[remaining] |= ~has_value
    return _array_of_truth(settled if settles else ~settled, ~unknown | settled)


def _may_fail(expression: Expression) -> bool:
    """Return whether the expression may fail for a row.

    It must then be evaluated only for rows that need it.
    """
    return isinstance(expression, (Call, Cast, Case, Coalesce)) or any(map(_may_fail, operands(expression)))


def _array_of_truth(answer: Mask, has_value: Mask) -> pa.BooleanArray:
    truth = booleans(answer)
    return truth if has_value.all() else pc.if_else(booleans(has_value), truth, scalar(None, pa.bool_()))
