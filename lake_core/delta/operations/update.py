"""UPDATE: rewrite the files that hold a matching row, or mark their rows and write the new versions of these alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.operations.assignment import check_not_identity, parse_assignments
from lake_core.delta.operations.marking import marks_rows
from lake_core.delta.operations.rewrite import check_not_append_only, rewrite, row_operation
from lake_core.delta.row_writer import row_writer
from lake_core.delta.scan import plan_scan
from lake_core.expression import TRUE, Filters, parse_where
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.delta.operation import Operation
    from lake_core.delta.snapshot import Snapshot


def update(
    snapshot: Snapshot,
    changes: Mapping[str, str],
    where: str | Filters | None,
    now: int,
    run: Runner = run_here,
    *,
    deletion_vectors: bool | None = None,
) -> Operation | None:
    """Plan and write an UPDATE of the rows for which `where` is true, of all rows for None. `now`: milliseconds.

    `changes`: SQL text by column. `deletion_vectors`: see `marks_rows`. Returns None if there is no such row. Raises
    AppendOnlyTable, SchemaMismatch, InvalidExpression, InvalidProperty, EvaluationFailed, ConstraintViolation and what
    reading and writing raise.
    """
    check_not_append_only(snapshot)
    by_vectors = marks_rows(snapshot, deletion_vectors)
    schema = snapshot.metadata.arrow_schema
    assignments = parse_assignments(changes, schema, schema, now)
    check_not_identity(assignments, snapshot.metadata)
    predicate, text = (TRUE, None) if where is None else parse_where(where, schema, now=now)
    scan = plan_scan(snapshot, None, predicate)
    writer = row_writer(snapshot.data_root, snapshot.metadata, snapshot.protocol, now)
    replaced, rewritten = rewrite(scan, writer, assignments, run, by_vectors=by_vectors)
    return row_operation("UPDATE", text, scan, replaced, rewritten, "numUpdatedRows")
