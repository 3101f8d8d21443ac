"""The net change feed of several versions that become one, from what the states before and after them still hold.

Files that the versions added and replaced again may be gone by then: a vacuum ends their retention. The rows in the
files of both states tell what changed between the two, though not by which steps.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.changes import fits
from lake_core.delta.data_file import DataFileWriter, change_rows
from lake_core.delta.difference import difference
from lake_core.delta.numpy_arrays import empty_table, integers, mask
from lake_core.delta.path import data_keys
from lake_core.delta.scan import Scan, open_data_files
from lake_core.python_rows import python_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from lake_core.delta.snapshot import Snapshot
    from lake_core.store import ObjectStore

_MOST_BYTES = 256 << 20
"""The most bytes of data files whose rows are compared: they are held in memory."""
_NUMBER = "\x00number"
_ADDED = "\x00added"


def exist(store: ObjectStore, changes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all change files exist that these cdc actions name."""
    paths = pa.chunked_array([pa.array([body["path"] for body in changes], pa.string())])
    return all(store.gather(*(partial(store.exists, key) for key in data_keys(paths, store).to_pylist())))


def net_changes(
    before: Snapshot | None, after: Snapshot, data_root: ObjectStore, now: int, *, without: Sequence[str] = ()
) -> Sequence[dict[str, Any]]:
    """Write the net change of rows from one snapshot to another into change files, and return their cdc actions.

    The files `without` that the later one has are left out.

    A row that a copy in another file replaces has not changed. Returns none if readers derive the same from the files
    that the two differ in. They also do so, with copied rows as deletes and inserts, if there is too much to compare,
    or if the columns of the two do not fit.

    Raises DataFileMissing if a file of the two is missing.
    """
    if before is None:
        return ()
    net = difference(before, after)
    if without:
        outside = pc.invert(pc.is_in(net.adds["path"], value_set=pa.array(without, pa.string())))
        net = replace(net, adds=net.adds.filter(outside))
    size = pc.sum(net.adds["size"]).as_py() or 0, pc.sum(net.removes["size"]).as_py() or 0
    if not (len(net.adds) and len(net.removes)) or sum(size) > _MOST_BYTES or not fits(before.metadata, after.metadata):
        return ()
    added, removed = _rows(after, net.adds), _rows(after, net.removes)
    inserts, deletes = uncancelled(added, removed)
    writer = DataFileWriter(data_root, after.metadata, now, changes=True)
    try:
        writer.add(change_rows(removed.filter(mask(deletes)), "delete"))
        writer.add(change_rows(added.filter(mask(inserts)), "insert"))
        return [file.to_change_json() for file in writer.finish()]
    finally:
        writer.close()


def _rows(snapshot: Snapshot, files: pa.Table) -> pa.Table:
    schema = snapshot.metadata.arrow_schema
    opened = open_data_files(Scan(snapshot, schema, None, files, schema))
    tables = (table.select(schema.names) for index in range(len(opened.keys)) for table in opened.batches(index))
    return pa.concat_tables([empty_table(schema), *tables])


def uncancelled(added: pa.Table, removed: pa.Table) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Mark the rows of each side that remain where equal rows of the two cancel each other, one by one."""
    together = pa.concat_tables([groupable(added), groupable(removed)])
    is_added = np.arange(len(together)) < len(added)
    numbered = together.append_column(_NUMBER, integers(np.arange(len(together)))).append_column(
        _ADDED, integers(is_added.astype(np.int64))
    )
    groups = numbered.group_by(together.column_names, use_threads=False).aggregate([(_NUMBER, "list"), (_ADDED, "sum")])
    lists = groups[f"{_NUMBER}_list"].combine_chunks()
    numbers, lengths = np.asarray(lists.flatten()), np.asarray(lists.value_lengths())
    added_count = np.repeat(np.asarray(groups[f"{_ADDED}_sum"]), lengths)
    net = 2 * added_count - np.repeat(lengths, lengths)
    # The numbers of a group are in order, so those of its added rows come first.
    positions = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    remains = np.zeros(len(together), np.bool_)
    remains[numbers] = np.where(is_added[numbers], positions < net, positions - added_count < -net)
    return remains[: len(added)], remains[len(added) :]


def groupable(rows: pa.Table) -> pa.Table:
    """Return rows with nested values as JSON, by which they can be grouped."""
    columns: dict[str, Any] = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_nested(column.type):
            texts = (None if value is None else json.dumps(value, default=repr) for value in python_values(column))
            column = pa.chunked_array([pa.array(texts, pa.string())])
        columns[name] = column
    return pa.table(columns)
