"""Deletion and update of rows in data files, one file a task: it is written anew, or its rows are marked as deleted."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar
from lake_core.delta.data_file import AddFile, change_rows
from lake_core.delta.data_file_reader import POSITION
from lake_core.delta.errors import AppendOnlyTable
from lake_core.delta.features import is_active
from lake_core.delta.numpy_arrays import booleans, integers, mask, numbers
from lake_core.delta.operation import Operation
from lake_core.delta.operations.assignment import Assignment, assign
from lake_core.delta.operations.marking import MarkedRows, Replaced, mark
from lake_core.delta.row_tracking import changed_rows, without_row_ids
from lake_core.delta.scan import Scan, open_data_files, with_tracked_rows
from lake_core.delta.skipping import num_records
from lake_core.expression import Predicate, columns, evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.action import Metadata
    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.row_writer import RowWriter
    from lake_core.delta.snapshot import Snapshot
    from lake_core.runner import Runner


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of a rewrite for one data file, or for all files of an operation."""

    adds: tuple[AddFile, ...] = ()
    changes: tuple[AddFile, ...] = ()
    changed: int = 0
    """The number of rows that were deleted or updated. A file without any is not rewritten."""
    copied: int = 0
    """The number of rows that were copied unchanged."""
    marked: MarkedRows | None = None
    """The rows of one file that its deletion vector is to delete; None if the file is written anew."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Deletes or updates the rows of data files for which a predicate is true. Picklable."""

    files: DataFiles
    """With all columns of the table."""
    probe: DataFiles
    """The same files with only the predicate's columns."""
    predicate: Predicate
    writer: RowWriter
    assignments: tuple[Assignment, ...] | None
    """None deletes."""
    log_changes: bool

    def __call__(self, index: int) -> Rewritten:
        """Rewrite the file with this number if it holds a row for which the predicate is true."""
        # First read only the predicate's columns, because most of these files do not contain such a row.
        if self.probe.schema.names and not any(
            pc.any(_hits(rows, self.predicate)).as_py() for rows in self.probe.batches(index)
        ):
            return Rewritten()
        files, log = self.writer.files(), self.writer.change_files()
        changed = copied = 0
        for rows in self.files.batches(index):
            hits = booleans(_hits(rows, self.predicate))
            count = int(np.count_nonzero(hits))
            changed, copied = changed + count, copied + rows.num_rows - count
            if not count:
                files.add(rows)
            elif self.assignments is None:
                files.add(rows.filter(mask(~hits)))
                if self.log_changes:
                    log.add(change_rows(without_row_ids(rows.filter(mask(hits))), "delete"))
            else:
                with_ids = rows.filter(mask(hits))
                old = without_row_ids(with_ids)
                new = updated(old, self.assignments, old, self.writer)
                files.add(overlaid(rows, hits, changed_rows(new, with_ids)))
                if self.log_changes:
                    log.add(change_rows(old, "update_preimage"))
                    log.add(change_rows(new, "update_postimage"))
        return Rewritten(tuple(files.finish()), tuple(log.finish()), changed, copied)


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Marks the rows of data files for which a predicate is true, and writes their new versions. Picklable."""

    files: DataFiles
    """With the predicate, the numbers of rows, and the columns of the predicate or all of the table."""
    writer: RowWriter
    assignments: tuple[Assignment, ...] | None
    """None deletes."""
    log_changes: bool

    def __call__(self, index: int) -> Rewritten:
        """Find the rows of the file with this number, and write their new versions."""
        file = self.files.open(index)
        files, log = self.writer.files(), self.writer.change_files()
        found: list[npt.NDArray[np.int64]] = []
        for rows in file.parts():
            if not rows.num_rows:
                continue
            found.append(numbers(rows[POSITION]))
            # Readers find deletes by comparing a file's deletion vectors, so these need no change data.
            if self.assignments is not None:
                old = without_row_ids(rows.drop_columns([POSITION]))
                new = updated(old, self.assignments, old, self.writer)
                files.add(changed_rows(new, rows))
                if self.log_changes:
                    log.add(change_rows(old, "update_preimage"))
                    log.add(change_rows(new, "update_postimage"))
        if not found:
            return Rewritten()
        marked = MarkedRows(np.concatenate(found), file.parquet.metadata.num_rows)
        return Rewritten(tuple(files.finish()), tuple(log.finish()), len(marked.rows), 0, marked)


def updated(rows: pa.Table, assignments: Sequence[Assignment], scope: pa.Table, writer: RowWriter) -> pa.Table:
    """Return rows after their assignments, checked by the table's rules. Other generated columns are recomputed."""
    targets = {assignment.target[0] for assignment in assignments}
    follow = [name for name in writer.rules.computed if name not in targets]
    return writer.prepare(assign(rows, assignments, scope).drop_columns(follow), new=False)


def overlaid(rows: pa.Table, hits: npt.NDArray[np.bool_], new: pa.Table) -> pa.Table:
    """Return rows of a table, those that `hits` marks replaced by the new ones in turn."""
    columns, where = [], mask(hits)
    for old, column in zip(rows.columns, new.columns, strict=True):
        if pa.types.is_nested(old.type):
            indexes = np.arange(rows.num_rows)
            indexes[hits] = rows.num_rows + np.arange(new.num_rows)
            columns.append(pa.chunked_array([*old.chunks, *column.chunks], old.type).take(integers(indexes)))
        else:
            columns.append(pc.replace_with_mask(old, where, column.combine_chunks()))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _hits(rows: pa.Table, predicate: Predicate) -> pa.ChunkedArray:
    return pc.fill_null(evaluate(predicate, rows), FALSE_VALUE)


def logs_changes(snapshot: Snapshot) -> bool:
    """Return whether writers must write change data for the table's readers (`delta.enableChangeDataFeed`)."""
    return is_active("changeDataFeed", snapshot.protocol, snapshot.metadata)


def check_not_append_only(snapshot: Snapshot) -> None:
    """Raise AppendOnlyTable for a table that does not allow its rows to be deleted or changed."""
    if is_active("appendOnly", snapshot.protocol, snapshot.metadata):
        raise AppendOnlyTable(
            f"the table at {snapshot.store.url()} is append-only: its rows cannot be changed or deleted. To "
            "change them, set the property delta.appendOnly to false first"
        )


def on_partitions_only(predicate: Predicate, metadata: Metadata) -> bool:
    """Return whether a predicate selects whole files, because it names only partition columns."""
    return all(column.path[0] in metadata.partition_columns for column in columns(predicate))


def rewrite(
    scan: Scan, writer: RowWriter, assignments: tuple[Assignment, ...] | None, run: Runner, *, by_vectors: bool
) -> tuple[Replaced, Rewritten]:
    """Delete or update the scan's rows. Returns how their files are replaced, and what was written.

    `by_vectors`: mark the rows in deletion vectors instead of writing the files anew.
    """
    snapshot = scan.snapshot
    whole = snapshot.metadata.arrow_schema
    named = {column.path[0] for column in columns(scan.condition)}
    probe = pa.schema([child for child in whole if child.name in named])
    task: MarkTask | RewriteTask
    if by_vectors:
        read = replace(scan, schema=whole, read_schema=whole)
        read = with_tracked_rows(read) if assignments else replace(scan, schema=probe, read_schema=probe)
        files = open_data_files(read, predicate=scan.condition)
        task = MarkTask(replace(files, position=POSITION), writer, assignments, logs_changes(snapshot))
    else:
        task = RewriteTask(
            open_data_files(with_tracked_rows(replace(scan, schema=whole, read_schema=whole))),
            open_data_files(replace(scan, schema=probe, read_schema=probe)),
            scan.condition,
            writer,
            assignments,
            logs_changes(snapshot),
        )
    parts = list(run(task, len(scan.files)))
    touched = scan.files.filter(mask(np.array([part.changed > 0 for part in parts], dtype=bool)))
    marked = [part.marked for part in parts if part.marked is not None]
    return mark(snapshot, touched, marked, writer.now) if by_vectors else Replaced(touched), Rewritten(
        tuple(add for part in parts for add in part.adds),
        tuple(file for part in parts for file in part.changes),
        sum(part.changed for part in parts),
        sum(part.copied for part in parts),
    )


def row_operation(
    name: str, where: str | None, scan: Scan, replaced: Replaced, rewritten: Rewritten, counted: str
) -> Operation | None:
    """Return the commit of a DELETE or UPDATE of the scan's rows; None if there was no such row.

    `counted`: the name of the metric for changed rows.
    """
    if not len(replaced.removes):
        return None
    metrics = {
        "numRemovedFiles": len(replaced.gone),
        "numRemovedBytes": sizes(replaced.gone),
        "numAddedFiles": len(rewritten.adds),
        "numAddedBytes": sum(add.size for add in rewritten.adds),
        "numAddedChangeFiles": len(rewritten.changes),
        counted: rewritten.changed,
        "numCopiedRows": rewritten.copied,
        **replaced.metrics,
    }
    return Operation(
        name,
        predicate_parameter(where),
        scan.snapshot,
        metrics,
        adds=rewritten.adds,
        restored=replaced.restored,
        changes=rewritten.changes,
        removes=replaced.removes,
        reads=scan.condition,
        read_files=scan.files,
    )


def predicate_parameter(where: str | None) -> dict[str, str]:
    """Return a `where` as in commitInfo, as a JSON list."""
    return {"predicate": json.dumps([] if where is None else [where], ensure_ascii=False)}


def rows_of(files: pa.Table) -> int | None:
    """Count the rows of files by their statistics and deletion vectors; None if one of the files lacks them."""
    records = num_records(files["stats"])
    if records.null_count:
        return None
    gone = 0
    if "deletionVector" in files.column_names:
        gone = pc.sum(pc.struct_field(files["deletionVector"], ["cardinality"])).as_py() or 0
    return int(pc.sum(records).as_py() or 0) - gone


def sizes(files: pa.Table) -> int:
    """Return the total size of files in bytes."""
    return int(np.nansum(numbers(pc.fill_null(files["size"], scalar(0, pa.int64())))))
