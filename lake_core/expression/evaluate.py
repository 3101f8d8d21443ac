"""Expressions over Arrow rows: one batch at a time, and what is lazy only for the rows that reach it.

Runs inside Spark's executors too, where this package travels by value: nothing here imports the SQL parser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression.arrays import Mask, Values, array, booleans, true, valid
from lake_core.expression.cast import cast_array
from lake_core.expression.errors import EvaluationFailed
from lake_core.expression.implementations import IMPLEMENTATIONS
from lake_core.expression.tree import (
    Call,
    Case,
    Cast,
    Coalesce,
    Column,
    Expression,
    Junction,
    Literal,
    OneOf,
    expression_columns,
)

_BATCH = 1 << 17


def evaluate(expression: Expression, rows: pa.Table) -> pa.ChunkedArray:
    """The expression's value for every row. Raises EvaluationFailed where Spark's ANSI mode fails a row."""
    if isinstance(expression, Column):
        return pa.chunked_array(
            [_column(chunk, expression.path[1:], expression.type) for chunk in rows.column(expression.path[0]).chunks], expression.type
        )
    names = sorted({column.path[0] for column in expression_columns(expression)})
    chunks = []
    if names:
        for batch in rows.select(names).to_batches(max_chunksize=_BATCH):
            chunks.append(evaluate_batch(expression, Rows(batch.num_rows, dict(zip(names, batch.columns, strict=True)))))
    else:
        for start in range(0, rows.num_rows, _BATCH):
            chunks.append(evaluate_batch(expression, Rows(min(_BATCH, rows.num_rows - start), {})))
    return pa.chunked_array(chunks, expression.type)


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of rows that knows its length without columns too."""

    length: int
    columns: Mapping[str, pa.Array]

    def take(self, chosen: Values) -> Rows:
        if len(chosen) == self.length:
            return self
        indices = array(chosen, pa.int64())
        return Rows(len(chosen), {name: column.take(indices) for name, column in self.columns.items()})


def evaluate_batch(expression: Expression, rows: Rows) -> pa.Array:
    """As `evaluate`, for one batch."""
    match expression:
        case Column(path=path, type=kind):
            return _column(rows.columns[path[0]], path[1:], kind)
        case Literal(value=value):
            return pa.repeat(value, rows.length) if value.is_valid else pa.nulls(rows.length, value.type)
        case Cast(operand=operand, type=kind, null_if_invalid=null_if_invalid):
            return cast_array(evaluate_batch(operand, rows), kind, null_if_invalid=null_if_invalid)
        case Case(branches=branches, otherwise=otherwise, type=kind):
            return _case(branches, otherwise, kind, rows)
        case Coalesce(operands=operands, type=kind):
            return _coalesce(operands, kind, rows)
        case Junction(operator=operator, operands=operands):
            return junction(operator, [_Deferred(operand) for operand in operands], rows)
        case OneOf(operand=operand, values=values):
            return _one_of(evaluate_batch(operand, rows), values)
        case Call(function=function, arguments=arguments, type=kind):
            found = [evaluate_batch(argument, rows) for argument in arguments]
            try:
                result = IMPLEMENTATIONS[function](expression, found)
            except pa.ArrowException as error:
                raise EvaluationFailed(f"{function}: {error}") from None
            return result if result.type == kind else result.cast(kind)


@dataclass(frozen=True, slots=True)
class _Deferred:
    expression: Expression

    def __call__(self, rows: Rows) -> pa.Array:
        return evaluate_batch(self.expression, rows)


def _column(whole: pa.Array, path: Sequence[str], kind: pa.DataType) -> pa.Array:
    for name in path:
        whole = pc.struct_field(whole, [name])
    # Spark hands over instants in the session's zone, and text of any offset size.
    return whole if whole.type == kind else whole.cast(kind)


def _one_of(found: pa.Array, values: Sequence[pa.Scalar]) -> pa.Array:
    plain = [value.as_py() for value in values]
    kind = found.type
    if pa.types.is_floating(kind):
        found = pc.add(found, pa.scalar(0.0, kind))  # -0.0 becomes 0.0
        plain = [value + 0.0 for value in plain]
    return pc.if_else(found.is_valid(), pc.is_in(found, value_set=pa.array(plain, kind)), pa.scalar(None, pa.bool_()))


def _case(branches: Sequence[tuple[Expression, Expression]], otherwise: Expression, kind: pa.DataType, rows: Rows) -> pa.Array:
    left = np.arange(rows.length)
    found: list[tuple[Values, pa.Array]] = []
    for condition, value in branches:
        if not len(left):
            break
        here = rows.take(left)
        hit = true(evaluate_batch(condition, here))
        if hit.any():
            chosen = left[hit]
            found.append((chosen, evaluate_batch(value, here.take(np.flatnonzero(hit)))))
            left = left[~hit]
    if len(left):
        found.append((left, evaluate_batch(otherwise, rows.take(left))))
    return _assembled(found, kind, rows.length)


def _coalesce(operands: Sequence[Expression], kind: pa.DataType, rows: Rows) -> pa.Array:
    left = np.arange(rows.length)
    found: list[tuple[Values, pa.Array]] = []
    for number, operand in enumerate(operands):
        if not len(left):
            break
        value = evaluate_batch(operand, rows.take(left))
        known = np.ones(len(left), np.bool_) if number == len(operands) - 1 else valid(value)
        found.append((left[known], value if known.all() else value.filter(booleans(known))))
        left = left[~known]
    return _assembled(found, kind, rows.length)


def _assembled(found: Sequence[tuple[Values, pa.Array]], kind: pa.DataType, length: int) -> pa.Array:
    """The parts, each with the numbers of its rows, in the order of the rows."""
    if not found:
        return pa.nulls(0, kind)
    if len(found) == 1:
        return found[0][1]
    position = np.empty(length, np.int64)
    position[np.concatenate([numbers for numbers, _ in found])] = np.arange(length)
    return pa.concat_arrays([part for _, part in found]).take(array(position, pa.int64()))


def junction(operator: str, operands: Sequence[Callable[[Rows], pa.Array]], rows: Rows) -> pa.Array:
    """AND or OR: an operand sees the rows that those before it leave open; null leaves them open."""
    settled, settles = np.zeros(rows.length, np.bool_), operator == "or"
    unknown = np.zeros(rows.length, np.bool_)
    for operand in operands:
        left = np.flatnonzero(~settled)
        if not len(left):
            break
        answer = operand(rows.take(left))
        known: Mask = valid(answer)
        yes = true(answer)
        settled[left] = yes if settles else known & ~yes
        unknown[left] |= ~known
    answer = settled if settles else ~settled
    return array_of_truth(answer, ~unknown | settled)


def array_of_truth(answer: Mask, known: Mask) -> pa.BooleanArray:
    found = booleans(answer)
    return found if known.all() else pc.if_else(booleans(known), found, pa.scalar(None, pa.bool_()))
