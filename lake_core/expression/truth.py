"""Predicates over Arrow rows: which rows one is true for."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression.arrow import to_arrow
from lake_core.expression.evaluate import Rows, evaluate_batch, junction
from lake_core.expression.tree import And, Condition, Constant, Not, Or, Predicate, columns

_BATCH = 1 << 17


def truth(predicate: Predicate, rows: pa.Table) -> pa.ChunkedArray:
    """TRUE, FALSE or NULL for every row. Raises EvaluationFailed."""
    names = sorted({column.path[0] for column in columns(predicate)})
    if not names:
        answer = _truth(predicate, Rows(min(1, rows.num_rows), {}))
        return pa.chunked_array([pa.repeat(answer[0], rows.num_rows) if len(answer) else answer], pa.bool_())
    chunks = []
    for batch in rows.select(names).to_batches(max_chunksize=_BATCH):
        chunks.append(_truth(predicate, Rows(batch.num_rows, dict(zip(names, batch.columns, strict=True)))))
    return pa.chunked_array(chunks, pa.bool_())


def matching(rows: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows for which the predicate is true. Raises EvaluationFailed."""
    if not has_condition(predicate) and next(columns(predicate), None) is not None:
        return rows.filter(to_arrow(predicate))  # Arrow filters by no constant
    return rows.filter(truth(predicate, rows))


def has_condition(predicate: Predicate) -> bool:
    """Whether a part of it is a Condition, so that neither Arrow nor Spark can filter by it alone."""
    match predicate:
        case Condition():
            return True
        case Not(operand=operand):
            return has_condition(operand)
        case And(operands=operands) | Or(operands=operands):
            return any(map(has_condition, operands))
        case _:
            return False


def _truth(predicate: Predicate, rows: Rows) -> pa.Array:
    match predicate:
        case Condition(expression=expression):
            return evaluate_batch(expression, rows)
        case Constant(value=value):
            return pa.repeat(pa.scalar(value, pa.bool_()), rows.length) if value is not None else pa.nulls(rows.length, pa.bool_())
        case Not(operand=operand) if has_condition(operand):
            return pc.invert(_truth(operand, rows))
        case And(operands=operands) if has_condition(predicate):
            return junction("and", [_deferred(operand) for operand in operands], rows)
        case Or(operands=operands) if has_condition(predicate):
            return junction("or", [_deferred(operand) for operand in operands], rows)
        case _:
            return _project(predicate, rows)


def _deferred(predicate: Predicate) -> Callable[[Rows], pa.Array]:
    return lambda rows: _truth(predicate, rows)


def _project(predicate: Predicate, rows: Rows) -> pa.Array:
    if not rows.columns:  # such as `NULL AND TRUE`: no rows to count without a column
        rows = Rows(rows.length, {"": pa.nulls(rows.length)})
    table = pa.table(dict(rows.columns))
    import pyarrow.acero as acero  # brings pandas along, where that is installed, which takes longer than all else here

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([to_arrow(predicate)], [""]))
    found = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False).column(0)
    return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
