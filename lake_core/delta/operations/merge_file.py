"""MERGE for one data file: change the rows that a clause applies to. The others are copied, or stay where they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.delta.conform import conform_out
from lake_core.delta.data_file import AddFile, DataFileWriter, change_rows
from lake_core.delta.numpy_arrays import integers, mask
from lake_core.delta.operations.marking import MarkedRows
from lake_core.delta.operations.merge_clause import Clause, Clauses, first_true, relation
from lake_core.delta.operations.rewrite import overlaid, updated
from lake_core.delta.row_tracking import changed_rows, with_row_ids, without_row_ids
from lake_core.expression import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.data_file_reader import DataFiles, OpenDataFile
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
    """The result of a merge for one data file."""

    adds: list[AddFile] = field(default_factory=list)
    changes: list[AddFile] = field(default_factory=list)
    touched: bool = False
    copied: int = 0
    updated: int = 0
    deleted: int = 0
    updated_by_source: int = 0
    """The number of updated rows that no source row matches."""
    deleted_by_source: int = 0
    marked: MarkedRows | None = None
    """The rows that the file's deletion vector is to delete; None if the file is written anew."""


@dataclass(frozen=True, slots=True)
class _Fates:
    """The rows of a data file to which a clause applies."""

    rows: npt.NDArray[np.int64]
    """Their numbers among the rows that the file's deletion vector leaves, ascending."""
    clause: npt.NDArray[np.int64]
    """The clause of each. Those for rows without a match follow the matched ones."""
    source: npt.NDArray[np.int64]
    """The source row of each, as its number in `Matches.source`; -1 for none."""

    def between(self, start: int, stop: int) -> _Fates:
        """Return those of the rows `start` to `stop`, counted from `start`."""
        first, last = np.searchsorted(self.rows, [start, stop])
        return _Fates(self.rows[first:last] - start, self.clause[first:last], self.source[first:last])


@dataclass(frozen=True, slots=True)
class FileMerge:
    """Merges data files with the source rows that match them. Picklable."""

    files: DataFiles
    """With the columns whose old values count, as they were before the merge."""
    probe: DataFiles
    """The same files with the columns that the clauses for rows without a match ask for."""
    clauses: Clauses
    target: str
    source: str
    """The relations' aliases."""
    writer: RowWriter
    log_changes: bool
    by_vectors: bool
    """Whether rows are marked as deleted, instead of writing the files anew."""

    def __call__(self, index: int, matches: Matches) -> MergedFile:
        """Change the rows of the file with this number to which a clause applies, if there are any."""
        fates = self._fates(index, matches)
        if not len(fates.rows):
            return MergedFile()
        result = MergedFile(touched=True)
        batches = self.files.batches(index)
        if self.by_vectors:
            file = self._file_of(index, fates.rows, result)
            # The others are not read, so those that are left are numbered anew.
            fates = replace(fates, rows=np.arange(len(fates.rows)))
            if not self.log_changes and self._only_deletes(fates):
                result.deleted = len(fates.rows)
                result.deleted_by_source = int(np.count_nonzero(fates.clause >= len(self.clauses.matched)))
                return result
            batches = file.parts()
        files, log = self.writer.files(), self.writer.change_files()
        start = 0
        for rows in batches:
            part = fates.between(start, start + rows.num_rows)
            result.copied += rows.num_rows - len(part.rows)
            self._change(rows, part, matches.source, files, log, result)
            start += rows.num_rows
        result.adds, result.changes = files.finish(), log.finish()
        return result

    def _fates(self, index: int, matches: Matches) -> _Fates:
        chosen = np.flatnonzero(matches.clause >= 0)
        matched = _Fates(matches.rows[chosen], matches.clause[chosen], chosen)
        clauses, offset = self.clauses.not_matched_by_source, len(self.clauses.matched)
        if not clauses:
            return matched
        found = [matched]
        start = 0
        for rows in self.probe.batches(index):
            first, last = np.searchsorted(matches.rows, [start, start + rows.num_rows])
            alone = np.setdiff1d(np.arange(rows.num_rows), matches.rows[first:last] - start, assume_unique=True)
            clause = first_true(clauses, pa.table({self.target: relation(rows.take(integers(alone)))}))
            hit = clause >= 0
            found.append(_Fates(start + alone[hit], clause[hit] + offset, np.full(int(np.count_nonzero(hit)), -1)))
            start += rows.num_rows
        rows, clause, source = (
            np.concatenate([getattr(part, name) for part in found]) for name in ("rows", "clause", "source")
        )
        order = np.argsort(rows)
        return _Fates(rows[order], clause[order], source[order])

    def _file_of(self, index: int, kept: npt.NDArray[np.int64], result: MergedFile) -> OpenDataFile:
        """Mark rows, numbered among those that are not deleted, and open their file for them alone."""
        gone = self.files.deleted[index] if self.files.deleted else None
        places = kept if gone is None else _among_all(kept, gone)
        only: list[npt.NDArray[np.int64] | None] = [None] * len(self.files.keys)
        only[index] = places
        file = replace(self.files, only=only).open(index)
        result.marked = MarkedRows(places, file.parquet.metadata.num_rows)
        return file

    def _only_deletes(self, fates: _Fates) -> bool:
        deletes = [number for number, clause in enumerate(self._all_clauses) if clause.kind == "delete"]
        return bool(np.isin(fates.clause, deletes).all())

    @property
    def _all_clauses(self) -> tuple[Clause, ...]:
        return (*self.clauses.matched, *self.clauses.not_matched_by_source)

    def _change(
        self,
        rows: pa.Table,
        fates: _Fates,
        source: pa.Table,
        files: DataFileWriter,
        log: DataFileWriter,
        result: MergedFile,
    ) -> None:
        """Write rows, those changed to which a clause applies."""
        merged, gone = conformed(rows, self.writer), np.zeros(rows.num_rows, dtype=bool)
        for number, clause in enumerate(self._all_clauses):
            chosen = fates.clause == number
            if not chosen.any():
                continue
            hits, hit = fates.rows[chosen], integers(fates.rows[chosen])
            with_ids, by_source = merged.take(hit), number >= len(self.clauses.matched)
            old = without_row_ids(with_ids)
            if clause.kind == "delete":
                gone[hits] = True
                result.deleted += len(hit)
                result.deleted_by_source += len(hit) * by_source
                self._log(log, [(old, "delete")])
                continue
            scope = {self.target: relation(rows.take(hit))}
            if not by_source:
                scope[self.source] = relation(source.take(integers(fates.source[chosen])))
            new = updated(old, clause.assignments, pa.table(scope), self.writer)
            result.updated += len(hit)
            result.updated_by_source += len(hit) * by_source
            self._log(log, [(old, "update_preimage"), (new, "update_postimage")])
            replaced = np.zeros(rows.num_rows, dtype=bool)
            replaced[hits] = True
            merged = overlaid(merged, replaced, changed_rows(new, with_ids))
        files.add(merged.filter(mask(~gone)) if gone.any() else merged)

    def _log(self, log: DataFileWriter, kinds: Sequence[tuple[pa.Table, str]]) -> None:
        if self.log_changes:
            for rows, kind in kinds:
                log.add(change_rows(rows, kind))


def _among_all(kept: npt.NDArray[np.int64], gone: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers in the file of rows that are numbered among those that are not deleted."""
    # `gone[n] - n` rows are kept before the n-th deleted one.
    return kept + np.searchsorted(gone - np.arange(len(gone)), kept, side="right")


def conformed(rows: pa.Table, writer: RowWriter) -> pa.Table:
    """Return rows as the table has them, in the schema that the merge gives it, with their ids."""
    schema, plain = writer.metadata.arrow_schema, without_row_ids(rows)
    return with_row_ids(plain if plain.schema.equals(schema) else conform_out(plain, schema), rows)


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
