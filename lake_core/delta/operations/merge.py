"""MERGE: match the rows of a source with those of a table, and apply clauses to matched and unmatched rows.

Only files that hold a row which changes are rewritten. The source is held in memory here, the table is not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.delta.batches import together
from lake_core.delta.conflict import Reads
from lake_core.delta.conform import plain
from lake_core.delta.data_file import AddFile, change_rows
from lake_core.delta.errors import InvalidMerge, MultipleSourceRows, SchemaMismatch
from lake_core.delta.features import upgraded_for
from lake_core.delta.fit import fit_rows
from lake_core.delta.numpy_arrays import integers, mask
from lake_core.delta.operation import Operation
from lake_core.delta.operations.assignment import check_not_identity
from lake_core.delta.operations.marking import Replaced, mark, marks_rows
from lake_core.delta.operations.merge_clause import (
    Clause,
    Clauses,
    ClauseText,
    Values,
    check_clauses,
    first_true,
    parse_clause,
    relation,
    with_plain_targets,
)
from lake_core.delta.operations.merge_condition import Condition, take_apart
from lake_core.delta.operations.merge_file import FileMerge, Matches, MergedFile, inserted
from lake_core.delta.operations.merge_keys import check_keys
from lake_core.delta.operations.merge_match import KeyValues, has_range, matching_pairs, numbered_keys, range_predicate
from lake_core.delta.operations.rewrite import check_not_append_only, logs_changes, sizes
from lake_core.delta.row_writer import RowWriter, row_writer
from lake_core.delta.scan import Scan, open_data_files, with_tracked_rows
from lake_core.delta.schema_evolution import evolved
from lake_core.delta.skipping import partition_filter, skip
from lake_core.expression import And, Expression, Predicate, columns, parse_predicate
from lake_core.readable import count_of
from lake_core.runner import run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.result import OperationResult
    from lake_core.delta.snapshot import Snapshot

_BATCH_ROWS = 1 << 16
_JOIN_ROWS = 1 << 21


@dataclass(slots=True)
class MergeText:
    """A merge as the caller describes it."""

    on: str
    target: str = "t"
    source: str = "s"
    matched: list[ClauseText] = field(default_factory=list)
    not_matched: list[ClauseText] = field(default_factory=list)
    not_matched_by_source: list[ClauseText] = field(default_factory=list)
    evolve: bool = False
    keys: tuple[str, ...] = ()
    """The columns whose values must not be null and must differ between source rows."""
    deletion_vectors: bool | None = None
    """See `marks_rows`."""


class Merge:
    """A merge that is being built: add clauses, then call `execute`.

    For each row, the first clause of a kind whose condition is true applies. Expressions name columns with the aliases
    (`t.price + s.price`), or without them if only one side has the column.
    """

    def __init__(
        self, on: str, alias: tuple[str, str], execute: Callable[[MergeText, tuple[str, int] | None], OperationResult]
    ) -> None:
        self._text = MergeText(on, *_aliases(alias))
        self._execute = execute

    def when_matched_update(self, set: Values, condition: str | None = None) -> Merge:
        """Update rows that match: `{"column": "sql"}`, or `"*"` to set every column to the source's of that name."""
        self._text.matched.append(ClauseText("update", set, condition))
        return self

    def when_matched_delete(self, condition: str | None = None) -> Merge:
        """Delete rows that match."""
        self._text.matched.append(ClauseText("delete", None, condition))
        return self

    def when_not_matched_insert(self, values: Values, condition: str | None = None) -> Merge:
        """Insert source rows that match no row of the table; columns without a value are null."""
        self._text.not_matched.append(ClauseText("insert", values, condition))
        return self

    def when_not_matched_by_source_update(self, set: Values, condition: str | None = None) -> Merge:
        """Update rows of the table that match no source row. Expressions can use only columns of the table."""
        if set == "*":
            raise InvalidMerge(
                'rows that match no source row cannot take their values from "*": name the columns and their values'
            )
        self._text.not_matched_by_source.append(ClauseText("update", set, condition))
        return self

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Merge:
        """Delete rows of the table that match no source row."""
        self._text.not_matched_by_source.append(ClauseText("delete", None, condition))
        return self

    def with_schema_evolution(self) -> Merge:
        """Make `"*"` add the source's columns that the table does not have.

        Columns, and fields of structs, that the source does not have keep their values in updates, and are null in new
        rows. Other structs that are assigned may lack fields, which are null.
        """
        self._text.evolve = True
        return self

    def with_deletion_vectors(self, enabled: bool = True) -> Merge:
        """Mark rows in deletion vectors instead of rewriting their files, or not, whatever the table's property says.

        `execute` raises InvalidProperty where the table does not allow vectors.
        """
        self._text.deletion_vectors = enabled
        return self

    def with_unique_keys(self, keys: Sequence[str]) -> Merge:
        """Make `execute` raise NullKeys or DuplicateKeys if source rows have nulls or equal values in these columns."""
        self._text.keys = tuple(keys)
        return self

    def execute(self, txn: tuple[str, int] | None = None) -> OperationResult:
        """Execute the merge in one commit, and return its OperationResult.

        Raises InvalidMerge, MultipleSourceRows, DuplicateKeys, NullKeys, SchemaMismatch, InvalidExpression,
        EvaluationFailed, ConstraintViolation, AppendOnlyTable, ConcurrentModification and its subclasses, and what
        reading and writing raise.
        """
        return self._execute(self._text, txn)


def _aliases(alias: tuple[str, str]) -> tuple[str, str]:
    if isinstance(alias, str) or len(alias) != 2 or not all(isinstance(name, str) and name for name in alias):
        raise InvalidMerge(f'alias must name the table and the source, such as ("t", "s"), not {alias!r}')
    target, source = alias
    if target.lower() == source.lower():
        raise InvalidMerge(f"the table and the source are both called {target!r}: give them different aliases")
    return target, source


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge, parsed against its table and its source's schema."""

    snapshot: Snapshot
    source: pa.Schema
    aliases: tuple[str, str]
    condition: Condition
    clauses: Clauses
    writer: RowWriter
    """Under the metadata that the merge gives the table."""
    log_changes: bool
    parameters: dict[str, str]
    by_vectors: bool
    """Whether rows are marked as deleted, instead of writing their files anew."""

    @property
    def rewrites(self) -> bool:
        """Return whether rows of the table may change; else source rows are only inserted."""
        return bool(self.clauses.matched or self.clauses.not_matched_by_source)


def plan_merge(snapshot: Snapshot, source: pa.Schema, text: MergeText, now: int) -> MergePlan:
    """Parse a merge. Raises InvalidMerge, SchemaMismatch, InvalidExpression, AppendOnlyTable, UnsupportedExpression."""
    check_clauses(text.matched, text.not_matched, text.not_matched_by_source)
    folded = [name.lower() for name in source.names]
    twice = next((name for name in source.names if folded.count(name.lower()) > 1), None)
    if twice is not None:
        raise SchemaMismatch(f"the source has several columns {twice!r}, when case is ignored: rename all but one")
    if text.matched or text.not_matched_by_source:
        check_not_append_only(snapshot)
    takes_all = any(clause.values == "*" for clause in (*text.matched, *text.not_matched))
    metadata = evolved(snapshot.metadata, source) if text.evolve and takes_all else snapshot.metadata
    protocol = upgraded_for(snapshot.protocol, snapshot.metadata, metadata)
    writer = row_writer(snapshot.data_root, metadata, protocol, now)
    table, current_schema = metadata.arrow_schema, snapshot.metadata.arrow_schema
    target_scope = pa.field(text.target, pa.struct(list(current_schema)))
    source_scope = pa.field(text.source, pa.struct(list(source)))
    both = pa.schema([target_scope, source_scope])
    aliases = text.target, text.source

    def clauses(texts: Sequence[ClauseText], scope: pa.Schema) -> tuple[Clause, ...]:
        plain = [with_plain_targets(clause, text.target, table) for clause in texts]
        return tuple(
            parse_clause(clause, table, scope, aliases, writer.optional, now, evolve=text.evolve) for clause in plain
        )

    on = parse_predicate(text.on, both, relations=True, now=now)
    parsed = Clauses(
        clauses(text.matched, both),
        clauses(text.not_matched, pa.schema([source_scope])),
        clauses(text.not_matched_by_source, pa.schema([target_scope])),
    )
    for clause in (*parsed.matched, *parsed.not_matched_by_source):
        check_not_identity(clause.assignments, metadata)
    return MergePlan(
        snapshot,
        source,
        aliases,
        take_apart(on, text.target, text.source),
        parsed,
        writer,
        logs_changes(snapshot),
        _parameters(text),
        marks_rows(snapshot, text.deletion_vectors),
    )


def _parameters(text: MergeText) -> dict[str, str]:
    def spelled(clauses: Sequence[ClauseText]) -> str:
        bodies = [
            {"actionType": clause.kind} | ({} if clause.condition is None else {"predicate": clause.condition})
            for clause in clauses
        ]
        return json.dumps(bodies, ensure_ascii=False)

    return {
        "predicate": json.dumps([text.on], ensure_ascii=False),
        "matchedPredicates": spelled(text.matched),
        "notMatchedPredicates": spelled(text.not_matched),
        "notMatchedBySourcePredicates": spelled(text.not_matched_by_source),
    }


def candidates(plan: MergePlan, ranges: Sequence[Predicate]) -> tuple[Scan, Reads | Predicate]:
    """Return the files that a merge must read, and the reads of the table.

    `ranges` are conditions on the target that follow from the source's keys.
    """
    snapshot = plan.snapshot
    names = [*snapshot.identity, "partitionValues", "size", "stats"]
    whole = snapshot.metadata.arrow_schema
    parts = (*plan.condition.target_files, *ranges)
    if plan.clauses.not_matched_by_source or not parts:
        return Scan(snapshot, whole, None, snapshot.files(names), whole), Reads.WHOLE_TABLE
    predicate = And(parts) if len(parts) > 1 else parts[0]
    files = snapshot.files(names, partition_filter(predicate, snapshot.metadata))
    chosen = files.filter(mask(skip(files, predicate, snapshot.metadata)))
    return Scan(snapshot, whole, predicate, chosen, whole), predicate


def columns_of(scan: Scan, names: set[str]) -> DataFiles:
    """Return the scan's files with only these columns."""
    return open_data_files(_with_columns(scan, names))


def _with_columns(scan: Scan, names: set[str]) -> Scan:
    # Without any column there would be no rows to count.
    schema = pa.schema([child for child in scan.schema if child.name in names] or [scan.schema.field(0)])
    return replace(scan, schema=schema, read_schema=schema)


def asked_columns(plan: MergePlan, expressions: Sequence[Expression | None]) -> set[str]:
    """Return the table's columns that expressions over the relations name."""
    target = plan.aliases[0]
    return {
        column.path[1]
        for expression in expressions
        if expression is not None
        for column in columns(expression)
        if column.path[0] == target
    }


def _columns_of_updates(plan: MergePlan, scan: Scan) -> Scan:
    """Return the scan with the columns whose old values a merge needs: those that it writes or computes with."""
    if plan.log_changes or not plan.by_vectors:
        return scan
    clauses = (*plan.clauses.matched, *plan.clauses.not_matched_by_source)
    updates = [clause.assignments for clause in clauses if clause.kind == "update"]
    asked = asked_columns(plan, [assignment.expression for update in updates for assignment in update])
    names = set(scan.schema.names)
    for update in updates:
        replaced = {assignment.target[0] for assignment in update if len(assignment.target) == 1}
        asked |= names - replaced
    return _with_columns(scan, asked)


def match_probe(plan: MergePlan, scan: Scan) -> DataFiles:
    """Return the scan's files with the columns that ON and the matched clauses need."""
    return columns_of(
        scan, asked_columns(plan, [plan.condition.whole, *(clause.condition for clause in plan.clauses.matched)])
    )


def file_merge(plan: MergePlan, scan: Scan) -> FileMerge:
    """Return the FileMerge that merges the scan's files with the source rows that match them."""
    by_source = plan.clauses.not_matched_by_source
    probe = columns_of(scan, asked_columns(plan, [clause.condition for clause in by_source]))
    files = open_data_files(with_tracked_rows(_columns_of_updates(plan, scan)))
    return FileMerge(files, probe, plan.clauses, *plan.aliases, plan.writer, plan.log_changes, plan.by_vectors)


def merge(snapshot: Snapshot, source: pa.Table, text: MergeText, now: int) -> Operation | None:
    """Plan and write a MERGE with a source in memory. `now`: milliseconds. Returns None where no row changes."""
    # Values of a source may have other types than the table's columns of their names: clauses compute with them.
    source = plain(source if source.num_rows else fit_rows(source, snapshot.metadata.arrow_schema))
    plan = plan_merge(snapshot, source.schema, text, now)
    if text.keys:
        check_keys(source, text.keys)
    condition, keys = numbered_keys(source, plan.condition, target=False)
    scan, reads = candidates(
        plan, range_predicate([(key, KeyValues.of(keys[key.name])) for key in condition.keys if has_range(key)])
    )
    matched = np.zeros(source.num_rows, dtype=bool)
    task = _LocalMerge(plan, condition, match_probe(plan, scan), source, keys, file_merge(plan, scan))
    merged: dict[int, MergedFile] = {}
    for index, (rows, file) in enumerate(run_here(task, len(scan.files))):
        matched[rows] = True
        merged[index] = file
    new = _insert(plan, source, matched)
    return finish_merge(plan, scan, reads, merged, new, source.num_rows)


@dataclass(slots=True)
class Inserted:
    """The rows that a merge adds."""

    adds: list[AddFile] = field(default_factory=list)
    changes: list[AddFile] = field(default_factory=list)
    rows: int = 0


def _insert(plan: MergePlan, source: pa.Table, matched: npt.NDArray[np.bool_]) -> Inserted:
    alone = source.filter(mask(~matched)) if plan.clauses.not_matched else source.slice(0, 0)
    pieces = (alone.slice(start, _BATCH_ROWS) for start in range(0, alone.num_rows, _BATCH_ROWS))
    return insert_rows(plan.clauses, plan.aliases[1], plan.writer, plan.log_changes, pieces)


def insert_rows(
    clauses: Clauses, alias: str, writer: RowWriter, log_changes: bool, source: Iterator[pa.Table]
) -> Inserted:
    """Write the rows that source rows without a match become."""
    files, log, count = writer.files(), writer.change_files(), 0
    for piece in source:
        rows = inserted(clauses.not_matched, piece, alias, writer)
        if rows is not None:
            count += rows.num_rows
            files.add(rows)
            if log_changes:
                log.add(change_rows(rows, "insert"))
    return Inserted(files.finish(), log.finish(), count)


def finish_merge(
    plan: MergePlan,
    scan: Scan,
    reads: Reads | Predicate,
    merged: Mapping[int, MergedFile],
    new: Inserted,
    source_rows: int | None,
) -> Operation | None:
    """Return the commit of a merge after its files are written; None if no row changes.

    `merged`: the results by the number of the file in the scan. Files that are not in it did not change.
    """
    touched = [number for number in sorted(merged) if merged[number].touched]
    results = [merged[number] for number in touched]
    if not results and not new.rows and plan.writer.metadata == plan.snapshot.metadata:
        return None
    files = scan.files.take(integers(np.array(touched, np.int64)))
    marked = [result.marked for result in results if result.marked is not None]
    replaced = mark(plan.snapshot, files, marked, plan.writer.now) if plan.by_vectors else Replaced(files)
    adds = [*(add for result in results for add in result.adds), *new.adds]
    # Change data files hold all changes of a commit, so with one for an update there must be one for the inserts.
    logged = [file for result in results for file in result.changes]
    changes = [*logged, *new.changes] if logged else []

    def total(name: str) -> int:
        return sum(getattr(result, name) for result in results)

    updated, updated_by_source = total("updated"), total("updated_by_source")
    deleted, deleted_by_source = total("deleted"), total("deleted_by_source")
    metrics = {
        "numTargetRowsInserted": new.rows,
        "numTargetRowsUpdated": updated,
        "numTargetRowsDeleted": deleted,
        "numTargetRowsMatchedUpdated": updated - updated_by_source,
        "numTargetRowsMatchedDeleted": deleted - deleted_by_source,
        "numTargetRowsNotMatchedBySourceUpdated": updated_by_source,
        "numTargetRowsNotMatchedBySourceDeleted": deleted_by_source,
        "numTargetRowsCopied": total("copied"),
        "numOutputRows": new.rows + updated + total("copied"),
        "numTargetFilesAdded": len(adds),
        "numTargetFilesRemoved": len(replaced.gone),
        "numTargetBytesAdded": sum(add.size for add in adds),
        "numTargetBytesRemoved": sizes(replaced.gone),
        "numTargetChangeFilesAdded": len(changes),
        **{name.replace("num", "numTarget", 1): count for name, count in replaced.metrics.items()},
    }
    if source_rows is not None:
        metrics = {"numSourceRows": source_rows, **metrics}
    operation = Operation(
        "MERGE",
        plan.parameters,
        plan.snapshot,
        metrics,
        adds=adds,
        restored=replaced.restored,
        changes=changes,
        removes=files if len(files) else None,
        reads=reads,
        read_files=scan.files,
    )
    return operation.defining(plan.writer.final_metadata)


@dataclass(frozen=True, slots=True)
class _LocalMerge:
    plan: MergePlan
    condition: Condition
    """ON, with the keys that every source row has."""
    probe: DataFiles
    """The candidates with the columns that ON and the matched clauses ask for."""
    source: pa.Table
    keys: pa.Table
    """The source's join keys."""
    merge: FileMerge

    def _clauses(
        self, part: pa.Table, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the matched clause that applies to each pair of rows."""
        target, source = self.plan.aliases
        clauses = self.plan.clauses.matched
        if all(clause.condition is None for clause in clauses):
            return np.full(len(left), 0 if clauses else -1)
        scope = {target: relation(part.take(integers(left))), source: relation(self.source.take(integers(right)))}
        return first_true(clauses, pa.table(scope))

    def __call__(self, index: int) -> tuple[npt.NDArray[np.int64], MergedFile]:
        """Merge the file with this number. Return the numbers of the source rows that match, and what was written."""
        plan = self.plan
        rows: list[npt.NDArray[np.int64]] = []
        clause: list[npt.NDArray[np.int64]] = []
        source: list[npt.NDArray[np.int64]] = []
        start = 0
        for part in together(self.probe.batches(index), _JOIN_ROWS):
            for left, right in matching_pairs(self.condition, part, self.source, self.keys, plan.aliases):
                rows.append(left + start)
                clause.append(self._clauses(part, left, right))
                source.append(right)
            start += part.num_rows
        if not rows:
            return np.array([], dtype=np.int64), self.merge(index, no_matches(self.source))
        all_rows, all_clauses, all_source = np.concatenate(rows), np.concatenate(clause), np.concatenate(source)
        merged = MergedFile()
        if plan.rewrites:
            merged = self.merge(index, settled(all_rows, all_clauses, all_source, self.source, plan.clauses))
        return all_source, merged


def no_matches(source: pa.Table) -> Matches:
    """Return the matches of a file of which no row matches."""
    nothing = np.array([], dtype=np.int64)
    return Matches(nothing, nothing, source.slice(0, 0))


def settled(
    rows: npt.NDArray[np.int64],
    clause: npt.NDArray[np.int64],
    number: npt.NDArray[np.int64],
    source: pa.Table,
    clauses: Clauses,
) -> Matches:
    """Return the matches of one file, one a row, from all pairs that match.

    A pair consists of `rows` (the row), `clause` (the clause that applies, -1: none) and `number` (the row number in
    `source`). Raises MultipleSourceRows where clauses apply to one row for several source rows.
    """
    # Pairs with a clause come first, because the first pair of a row is kept.
    order = np.argsort(rows * 2 + (clause < 0), kind="stable")
    rows, clause, number = rows[order], clause[order], number[order]
    is_first = np.diff(rows, prepend=-1) != 0
    kept = np.flatnonzero(is_first)
    several = int(np.count_nonzero((clause >= 0) & ~is_first))
    if several and not clauses.deletes_whatever_matches:
        raise MultipleSourceRows(
            f"{count_of(several, 'row')} of the table {'matches' if several == 1 else 'match'} more than one "
            "source row, so the result is ambiguous. Make the source unique by the columns of ON, or narrow "
            "the clauses' conditions. Nothing was changed"
        )
    return Matches(rows[kept], clause[kept], source.take(integers(number[kept])))
