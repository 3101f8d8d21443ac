"""DELETE: remove whole files if partition values decide, else rewrite only the files that hold a matching row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.conflict import Reads
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
from lake_core.delta.transaction import Operation
from lake_core.expression import Predicate, parse_predicate
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from lake_core.delta.snapshot import Snapshot


def delete(snapshot: Snapshot, where: str | None, now: int, run: Runner = run_here) -> Operation | None:
    """Plan and write a DELETE of the rows for which `where` is true, of all rows for None. `now`: milliseconds.

    Returns None if there is no such row. Raises AppendOnlyTable, InvalidExpression and what reading and writing raise.
    """
    check_not_append_only(snapshot)
    predicate = None if where is None else parse_predicate(where, snapshot.metadata.arrow_schema, now=now)
    if predicate is None or on_partitions_only(predicate, snapshot.metadata):
        return _delete_files(snapshot, predicate, where)
    scan = plan_scan(snapshot, None, predicate)
    writer = row_writer(snapshot.data_root, snapshot.metadata, snapshot.protocol, now)
    removes, rewritten = rewrite(scan, writer, None, run)
    return row_operation("DELETE", where, scan, removes, rewritten, "numDeletedRows")


def _delete_files(snapshot: Snapshot, predicate: Predicate | None, where: str | None) -> Operation | None:
    files = files_of_partitions(snapshot, ["size", "stats"], predicate)
    if not len(files):
        return None
    metrics = {"numRemovedFiles": len(files), "numRemovedBytes": sizes(files), "numAddedFiles": 0, "numAddedBytes": 0}
    deleted = rows_of(files)
    metrics |= {} if deleted is None else {"numDeletedRows": deleted, "numCopiedRows": 0}
    reads = Reads.WHOLE_TABLE if predicate is None else predicate
    return Operation("DELETE", predicate_parameter(where), snapshot, metrics, removes=files, reads=reads)
