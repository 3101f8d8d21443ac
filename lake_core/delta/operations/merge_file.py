"""MERGE for one data file: change the rows that a clause applies to, and copy the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.delta.conform import conform_out
from lake_core.delta.data_file import AddFile, DataFileWriter, change_rows
from lake_core.delta.numpy_arrays import integers, mask
from lake_core.delta.operations.merge_clause import Clause, Clauses, first_true, relation
from lake_core.delta.operations.rewrite import overlaid, updated
from lake_core.expression import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.row_writer import RowWriter


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows of one data file that match the source, each once."""

    rows: npt.NDArray[np.int64]
    """Their numbers among the rows that the file's deletion vector leaves, ascending."""
    clause: npt.NDArray[np.int64]
    """The matched clause that applies to each; -1 for none."""
    source: pa.Table
    """The source row of each; any row where no clause applies."""


@dataclass(slots=True)
class MergedFile:
    """The result of a merge for one data file, or for all of them."""

    adds: list[AddFile] = field(default_factory=list)
    changes: list[AddFile] = field(default_factory=list)
    touched: bool = False
    copied: int = 0
    updated: int = 0
    deleted: int = 0
    updated_by_source: int = 0
    """The number of updated rows that no source row matches."""
    deleted_by_source: int = 0

    def include(self, other: MergedFile) -> None:
        """Add the result of another file."""
        self.adds += other.adds
        self.changes += other.changes
        for name in ("copied", "updated", "deleted", "updated_by_source", "deleted_by_source"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class FileMerge:
    """Merges data files with the source rows that match them. Picklable."""

    files: DataFiles
    """With all columns of the table, as they were before the merge."""
    probe: DataFiles
    """The same files with the columns that the clauses for rows without a match ask for."""
    clauses: Clauses
    target: str
    source: str
    """The relations' aliases."""
    writer: RowWriter
    log_changes: bool

    def __call__(self, index: int, matches: Matches) -> MergedFile:
        """Rewrite the file with this number if a clause applies to any of its rows or source rows."""
        if not (matches.clause >= 0).any() and not self._any_without_match(index, matches):
            return MergedFile()
        result = MergedFile(touched=True)
        files, log = self.writer.files(), self.writer.change_files()
        start = 0
        for rows in self.files.batches(index):
            self._batch(rows, start, matches, files, log, result)
            start += rows.num_rows
        result.adds, result.changes = files.finish(), log.finish()
        return result

    def _any_without_match(self, index: int, matches: Matches) -> bool:
        clauses = self.clauses.not_matched_by_source
        if not clauses:
            return False
        start = 0
        for rows in self.probe.batches(index):
            alone = np.flatnonzero(
                np.isin(np.arange(start, start + rows.num_rows), matches.rows, invert=True, assume_unique=True)
            )
            start += rows.num_rows
            scope = pa.table({self.target: relation(rows.take(integers(alone)))})
            if (first_true(clauses, scope) >= 0).any():
                return True
        return False

    def _batch(
        self,
        rows: pa.Table,
        start: int,
        matches: Matches,
        files: DataFileWriter,
        log: DataFileWriter,
        result: MergedFile,
    ) -> None:
        first, last = np.searchsorted(matches.rows, [start, start + rows.num_rows])
        matched = matches.rows[first:last] - start
        fate = np.full(
            rows.num_rows, -1, dtype=np.int64
        )  # by clause, those for rows without a match after the matched ones
        fate[matched] = matches.clause[first:last]
        offset = len(self.clauses.matched)
        if self.clauses.not_matched_by_source:
            alone = np.setdiff1d(np.arange(rows.num_rows), matched, assume_unique=True)
            clause_of_row = first_true(
                self.clauses.not_matched_by_source, pa.table({self.target: relation(rows.take(integers(alone)))})
            )
            fate[alone] = np.where(clause_of_row >= 0, clause_of_row + offset, -1)
        source_row = np.full(rows.num_rows, -1, dtype=np.int64)
        source_row[matched] = np.arange(first, last)
        merged, gone = conformed(rows, self.writer), np.zeros(rows.num_rows, dtype=bool)
        result.copied += int(np.count_nonzero(fate < 0))
        for number, clause in enumerate((*self.clauses.matched, *self.clauses.not_matched_by_source)):
            hits = fate == number
            hit = integers(np.flatnonzero(hits))
            if not len(hit):
                continue
            old, by_source = merged.take(hit), number >= offset
            if clause.kind == "delete":
                gone |= hits
                result.deleted += len(hit)
                result.deleted_by_source += len(hit) * by_source
                self._log(log, [(old, "delete")])
                continue
            scope = {self.target: relation(rows.take(hit))}
            if not by_source:
                scope[self.source] = relation(matches.source.take(integers(source_row[hits])))
            new = updated(old, clause.assignments, pa.table(scope), self.writer)
            result.updated += len(hit)
            result.updated_by_source += len(hit) * by_source
            self._log(log, [(old, "update_preimage"), (new, "update_postimage")])
            merged = overlaid(merged, hits, new)
        files.add(merged.filter(mask(~gone)) if gone.any() else merged)

    def _log(self, log: DataFileWriter, kinds: Sequence[tuple[pa.Table, str]]) -> None:
        if self.log_changes:
            for rows, kind in kinds:
                log.add(change_rows(rows, kind))


def conformed(rows: pa.Table, writer: RowWriter) -> pa.Table:
    """Return rows as the table has them, in the schema that the merge gives it."""
    schema = writer.metadata.arrow_schema
    return rows if rows.schema.equals(schema) else conform_out(rows, schema)


def inserted(clauses: Sequence[Clause], source: pa.Table, alias: str, writer: RowWriter) -> pa.Table | None:
    """Return the new rows for source rows without a match, checked by the table's rules; None for no row."""
    scope = pa.table({alias: relation(source)})
    chosen = first_true(clauses, scope)
    parts = []
    for number, clause in enumerate(clauses):
        hit = np.flatnonzero(chosen == number)
        if not len(hit):
            continue
        hit_rows = scope.take(integers(hit))
        schema = writer.metadata.arrow_schema
        columns = {
            assignment.target[0]: assignment.stored(
                evaluate(assignment.expression, hit_rows), schema.field(assignment.target[0]).type
            )
            for assignment in clause.assignments
        }
        parts.append(writer.prepare(pa.table(columns)))
    return pa.concat_tables(parts) if parts else None
