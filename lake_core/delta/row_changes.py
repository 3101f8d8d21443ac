"""The rows that differ between two snapshots of a table, matched by a key.

Files that both have are not opened. Of files that both have with other deletion vectors, only the rows are read whose
deletion differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.conform import conform_out
from lake_core.delta.difference import file_changes
from lake_core.delta.errors import CorruptDataFile
from lake_core.delta.net_feed import groupable, uncancelled
from lake_core.delta.numpy_arrays import empty_table, integers, mask
from lake_core.delta.row_conflict import VectorChanges
from lake_core.delta.row_counts import row_count
from lake_core.delta.scan import Scan, deleted_of_files, open_data_files
from lake_core.inspection import RowChanges, TooMuchToShow
from lake_core.python_rows import python_values
from lake_core.readable import count_of, readable_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.snapshot import Snapshot

_MOST_BYTES = 256 << 20
"""The most bytes of data files that are read: their rows are held in memory."""
_NUMBER, _ADDED = "\x00number", "\x00added"


def row_changes(before: Snapshot | None, after: Snapshot | None, key: Sequence[str], most_rows: int) -> RowChanges:
    """Return the rows that differ, as multisets: a row that only moved to another file does not differ.

    Args:
        before: The earlier snapshot. None if the table did not exist.
        after: The later one. None if the table was dropped.
        key: The columns that tell which removed row an added row replaces. Rows with a null there are not matched.
        most_rows: The most rows that are read.

    Raises TooMuchToShow, and the errors of reading data files.
    """
    newest = after or before
    assert newest is not None
    schema = _joint_schema(before, after)
    adds, removes = file_changes(before, after)
    vectors = VectorChanges.of(removes, adds)
    whole = vectors.without(adds), vectors.without(removes)
    size = sum(int(pc.sum(files["size"]).as_py() or 0) for files in whole)
    if size > _MOST_BYTES:
        raise TooMuchToShow(
            f"the files that differ have {readable_bytes(size)}, and at most {readable_bytes(_MOST_BYTES)} are "
            "compared: compare versions that are closer to one another"
        )
    counts = [row_count(files) for files in whole]
    if any(count is None for count in counts) or sum(count or 0 for count in counts) > most_rows:
        known = "an unknown number of" if None in counts else f"{sum(count or 0 for count in counts):,}"
        raise TooMuchToShow(
            f"the files that differ hold {known} rows, and at most {count_of(most_rows, 'row')} are compared: "
            "compare versions that are closer to one another"
        )
    added = pa.concat_tables([*_read(after, whole[0], schema), *_marked_rows(after, vectors, schema, comes=True)])
    removed = pa.concat_tables([*_read(before, whole[1], schema), *_marked_rows(before, vectors, schema, comes=False)])
    inserts, deletes = uncancelled(added, removed)
    added, removed = added.filter(mask(inserts)), removed.filter(mask(deletes))
    return _matched(added, removed, [name for name in key if name in schema.names])


def _joint_schema(before: Snapshot | None, after: Snapshot | None) -> pa.Schema:
    """Return the later columns, then those that were dropped. A column of two types is text."""
    old, new = (pa.schema([]) if each is None else each.metadata.arrow_schema for each in (before, after))
    sides = [{child.name: child.type for child in each} for each in (old, new)]
    fields = []
    for child in [*new, *(child for child in old if child.name not in sides[1])]:
        kinds = {side[child.name] for side in sides if child.name in side}
        fields.append(pa.field(child.name, child.type if len(kinds) == 1 else _common(kinds)))
    return pa.schema(fields)


def _common(kinds: set[pa.DataType]) -> pa.DataType:
    try:
        return (
            pa.unify_schemas([pa.schema([("value", kind)]) for kind in kinds], promote_options="permissive")
            .field(0)
            .type
        )
    except pa.ArrowException:
        return pa.string()


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    own = dict(zip(rows.column_names, rows.columns, strict=True))
    columns = []
    for child in schema:
        column = own.get(child.name)
        if column is None:
            columns.append(pa.chunked_array([pa.nulls(len(rows), child.type)]))
            continue
        if column.type == child.type:
            columns.append(column)
        elif pa.types.is_nested(column.type) and not pa.types.is_nested(child.type):
            columns.append(pa.chunked_array([pa.array(map(repr, python_values(column)), pa.string())]))
        else:
            columns.append(_converted(column, child))
    return pa.Table.from_arrays(columns, schema=schema)


def _converted(column: pa.ChunkedArray, target: pa.Field) -> pa.ChunkedArray:
    """Return the values of a column as those of the type that both snapshots have in common. Raises TooMuchToShow."""
    try:
        if not pa.types.is_nested(column.type):
            return column.cast(target.type)
        return conform_out(pa.table({target.name: column}), pa.schema([target])).column(0)
    except (pa.ArrowException, CorruptDataFile):
        raise TooMuchToShow(
            f"the column {target.name!r} was of another type, {column.type}, and has values that {target.type} does "
            "not hold: compare versions that are closer to one another"
        ) from None


def _read(snapshot: Snapshot | None, files: pa.Table, schema: pa.Schema) -> Iterator[pa.Table]:
    yield empty_table(schema)
    if snapshot is None or not len(files):
        return
    own = snapshot.metadata.arrow_schema
    opened = open_data_files(Scan(snapshot, own, None, files, own))
    for index in range(len(opened.keys)):
        for table in opened.batches(index):
            yield _conformed(table.select(own.names), schema)


def _marked_rows(
    snapshot: Snapshot | None, vectors: VectorChanges, schema: pa.Schema, *, comes: bool
) -> Iterator[pa.Table]:
    """Read the rows that one side has and the other one's deletion vector deletes."""
    if snapshot is None or not len(vectors):
        return
    here, there = (vectors.after, vectors.before) if comes else (vectors.before, vectors.after)
    gone_here, gone_there = (deleted_of_files(side, snapshot.roots) or [None] * len(side) for side in (here, there))
    only = [np.setdiff1d(_rows(other), _rows(own)) for own, other in zip(gone_here, gone_there, strict=True)]
    numbers = [number for number, rows in enumerate(only) if len(rows)]
    own = snapshot.metadata.arrow_schema
    opened = open_data_files(Scan(snapshot, own, None, here, own), numbers)
    opened = replace(opened, only=[only[number] for number in numbers])
    for index in range(len(opened.keys)):
        for table in opened.batches(index):
            yield _conformed(table.select(own.names), schema)


def _rows(gone: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    return np.empty(0, np.int64) if gone is None else gone


def _matched(added: pa.Table, removed: pa.Table, key: Sequence[str]) -> RowChanges:
    names = added.column_names
    if not key or not len(added) or not len(removed):
        return RowChanges(names, key, added, removed, removed.slice(0, 0), added.slice(0, 0))
    together = pa.concat_tables([added.select(key), removed.select(key)])
    is_null = np.zeros(len(together), np.bool_)
    for column in together.columns:
        is_null |= np.asarray(column.is_null())
    numbered = groupable(together)
    numbered = numbered.append_column(_NUMBER, integers(np.arange(len(together)))).append_column(
        _ADDED, integers((np.arange(len(together)) < len(added)).astype(np.int64))
    )
    numbered = numbered.filter(mask(~is_null))
    groups = numbered.group_by(list(key), use_threads=False).aggregate(
        [(_NUMBER, "min"), (_NUMBER, "max"), (_NUMBER, "count"), (_ADDED, "sum")]
    )
    count, news = np.asarray(groups[f"{_NUMBER}_count"]), np.asarray(groups[f"{_ADDED}_sum"])
    pairs = groups.filter(mask((count == 2) & (news == 1)))
    # Added rows are numbered first.
    new, old = np.asarray(pairs[f"{_NUMBER}_min"]), np.asarray(pairs[f"{_NUMBER}_max"]) - len(added)
    rest_added, rest_removed = np.ones(len(added), np.bool_), np.ones(len(removed), np.bool_)
    rest_added[new], rest_removed[old] = False, False
    return RowChanges(
        names,
        key,
        added.filter(mask(rest_added)),
        removed.filter(mask(rest_removed)),
        removed.take(integers(old)),
        added.take(integers(new)),
        is_unique=not bool(((news > 1) | (count - news > 1)).any()),
    )
