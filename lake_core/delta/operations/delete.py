"""DELETE: remove whole files if partition values decide, else take rows only out of the files that hold a match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.conflict import Reads
from lake_core.delta.operation import Operation
from lake_core.delta.operations.marking import marks_rows
from lake_core.delta.operations.rewrite import (
    check_not_append_only,
    on_partitions_only,
    predicate_parameter,
    rewrite,
    row_operation,
    rows_of,
    sizes,
)
from lake_core.delta.row_writer import row_writer
from lake_core.delta.scan import files_of_partitions, plan_scan
from lake_core.expression import Filters, Predicate, parse_where
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from lake_core.delta.snapshot import Snapshot


def delete(
    snapshot: Snapshot,
    where: str | Filters | None,
    now: int,
    run: Runner = run_here,
    *,
    deletion_vectors: bool | None = None,
) -> Operation | None:
    """Plan and write a DELETE of the rows for which `where` is true, of all rows for None. `now`: milliseconds.

    `deletion_vectors`: see `marks_rows`. Returns None if there is no such row. Raises AppendOnlyTable,
    InvalidExpression, InvalidProperty and what reading and writing raise.
    """
    check_not_append_only(snapshot)
    by_vectors = marks_rows(snapshot, deletion_vectors)
    if where is None:
        return _delete_files(snapshot, None, None)
    predicate, text = parse_where(where, snapshot.metadata.arrow_schema, now=now)
    if on_partitions_only(predicate, snapshot.metadata):
        return _delete_files(snapshot, predicate, text)
    scan = plan_scan(snapshot, None, predicate)
    writer = row_writer(snapshot.data_root, snapshot.metadata, snapshot.protocol, now)
    replaced, rewritten = rewrite(scan, writer, None, run, by_vectors=by_vectors)
    return row_operation("DELETE", text, scan, replaced, rewritten, "numDeletedRows")


def _delete_files(snapshot: Snapshot, predicate: Predicate | None, text: str | None) -> Operation | None:
    files = files_of_partitions(snapshot, ["size", "stats"], predicate)
    if not len(files):
        return None
    metrics = {"numRemovedFiles": len(files), "numRemovedBytes": sizes(files), "numAddedFiles": 0, "numAddedBytes": 0}
    deleted = rows_of(files)
    metrics |= {} if deleted is None else {"numDeletedRows": deleted, "numCopiedRows": 0}
    reads = Reads.WHOLE_TABLE if predicate is None else predicate
    return Operation("DELETE", predicate_parameter(text), snapshot, metrics, removes=files, reads=reads)
