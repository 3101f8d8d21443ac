"""Readable differences between two states of a table: rows, columns, files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.dataset import ColumnChange, DatasetComparison
from lake_core.delta.action_fields import ADD_FIELDS
from lake_core.delta.commit_range import CommitRange
from lake_core.delta.difference import file_changes
from lake_core.delta.numpy_arrays import empty_table
from lake_core.delta.row_counts import RowChange, row_change, row_count
from lake_core.delta.scan import Scan, open_data_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.delta.snapshot import Snapshot

_ADD = [name for name, _ in ADD_FIELDS]
_SIGN = "\x00sign"


def compare(before: Snapshot | None, after: Snapshot | None, *, sample: int, most_rows: int) -> DatasetComparison:
    """Compare two states of a table. None stands for a table that does not exist.

    If files were rewritten, their rows are compared if they are at most `most_rows`; otherwise the numbers are those of
    the commits' metrics. The result shows up to `sample` of the rows that were added and removed.
    """
    adds, removes = file_changes(before, after)
    added, removed = row_count(adds), row_count(removes)
    rows: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]] = ((), ())
    change = RowChange(added, removed)
    if before is not None and after is not None and len(adds) and len(removes):
        if added is not None and removed is not None and added + removed <= most_rows:
            change, rows = _compared_rows(before, after, adds, removes, sample)
        else:
            change = _estimated(before, after, added, removed)
    elif sample:
        rows = (_first_rows(after, adds, sample), _first_rows(before, removes, sample))
    return DatasetComparison(
        None if before is None else before.version,
        None if after is None else after.version,
        change.added,
        change.removed,
        change.exact,
        len(adds),
        len(removes),
        list(_columns(before, after)),
        *rows,
    )


def _estimated(before: Snapshot, after: Snapshot, added: int | None, removed: int | None) -> RowChange:
    commits = CommitRange.between(before, after)
    if len(commits.bodies) == 1 and commits.only_rearranges():
        return RowChange(0, 0)
    change = row_change(added, removed, commits.metrics())
    return (
        change
        if commits.continues and len(commits.bodies) == 1
        else RowChange(change.added, change.removed, exact=False)
    )


def _columns(before: Snapshot | None, after: Snapshot | None) -> Iterator[ColumnChange]:
    old, new = ({} if s is None else {c.name: c.type for c in s.metadata.arrow_schema} for s in (before, after))
    for name, kind in new.items():
        if name not in old:
            yield ColumnChange(name, "added", None, str(kind))
        elif old[name] != kind:
            yield ColumnChange(name, "changed", str(old[name]), str(kind))
    yield from (ColumnChange(name, "dropped", str(kind), None) for name, kind in old.items() if name not in new)


def _tables(snapshot: Snapshot, files: pa.Table) -> Iterator[pa.Table]:
    schema = snapshot.metadata.arrow_schema
    opened = open_data_files(Scan(snapshot, schema, None, files, schema))
    for index in range(len(opened.keys)):
        yield from opened.batches(index)


def _first_rows(snapshot: Snapshot | None, files: pa.Table, count: int) -> Sequence[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for table in () if snapshot is None else _tables(snapshot, files):
        rows += table.slice(0, count - len(rows)).to_pylist()
        if len(rows) >= count:
            break
    return rows


def _compared_rows(
    before: Snapshot, after: Snapshot, adds: pa.Table, removes: pa.Table, sample: int
) -> tuple[RowChange, tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]]:
    """Compare the rows of the files that differ, as multisets.

    Each distinct row counts as often as its number of copies on the two sides differs.
    """
    new = _signed(after, after.metadata.arrow_schema, adds, 1)
    old = _signed(before, after.metadata.arrow_schema, removes, -1)
    names = [name for name in new.column_names if name in old.column_names and name != _SIGN]
    if len(names) < len(new.column_names) - 1:
        # A column changed to a type that cannot hold its values, so every row changed.
        return RowChange(len(new), len(old)), (_first_rows(after, adds, sample), _first_rows(before, removes, sample))
    together = pa.concat_tables([new.select([*names, _SIGN]), old.select([*names, _SIGN])])
    sums = together.group_by(names).aggregate([(_SIGN, "sum")])
    count = sums[f"{_SIGN}_sum"]
    sides = [sums.filter(pc.greater(count, 0)), sums.filter(pc.less(count, 0))]
    added, removed = (abs(int(pc.sum(side[f"{_SIGN}_sum"]).as_py() or 0)) for side in sides)
    shown = [side.select(names).slice(0, sample).to_pylist() for side in sides]
    return RowChange(added, removed), (shown[0], shown[1])


def _signed(snapshot: Snapshot, schema: pa.Schema, files: pa.Table, sign: int) -> pa.Table:
    """Return the rows of some files in the columns of `schema`, null where they have none.

    Nested values become JSON, by which rows can be grouped. The last column holds `sign`.
    """
    table_schema = snapshot.metadata.arrow_schema
    table = pa.concat_tables([empty_table(table_schema), *_tables(snapshot, files)])
    columns: dict[str, Any] = {}
    for child in schema:
        if child.name not in table_schema.names:
            columns[child.name] = pa.nulls(len(table), _groupable(child.type))
            continue
        column = table[child.name]
        if pa.types.is_nested(child.type) or pa.types.is_nested(column.type):
            values = (
                None if value is None else json.dumps(value, default=str, sort_keys=True)
                for value in column.to_pylist()
            )
            columns[child.name] = pa.chunked_array([pa.array(values, pa.string())])
        elif column.type == child.type:
            columns[child.name] = column
        else:
            try:
                columns[child.name] = column.cast(child.type)
            except pa.ArrowException:
                continue  # a value that the newer type cannot hold
    return pa.table({**columns, _SIGN: pa.repeat(scalar(sign, pa.int64()), len(table))})


def _groupable(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_nested(kind) else kind
