"""Action reconciliation: the files, tombstones and txn actions in force after the actions of a log segment.

Protocol section: Action Reconciliation. It works on columns: the paths in commits, which are few, override those of the
checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.action_fields import ADD_FIELDS, REMOVE_FIELDS, TRANSACTION_FIELDS
from lake_core.delta.file_key import file_key
from lake_core.delta.numpy_arrays import empty_table, integers, mask, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.checkpoint import Checkpoint, FileFilter
    from lake_core.delta.commit_file import CommitRun


def live_files(
    checkpoint: Checkpoint | None,
    runs: Sequence[CommitRun],
    columns: Sequence[str],
    *,
    vectors: bool,
    only: FileFilter | None = None,
) -> pa.Table:
    """Return these fields of the add actions in force for which `only` is true.

    `vectors` is whether any file may have a deletion vector.
    """
    fields = [*_with_key(columns, vectors), *(["partitionValues"] if only else [])]
    schema = pa.schema([(name, kind) for name, kind in ADD_FIELDS if name in fields])
    tail, named = _latest(runs, schema.names, adds=True)
    if len(tail) and only:
        tail = tail.filter(mask(only(tail)))
    tables = [tail.cast(schema)] if len(tail) else []
    if checkpoint is not None:
        tables.insert(0, _without(checkpoint.adds(schema.names, only), named))
    table = pa.concat_tables(tables) if tables else empty_table(schema)
    return table.select([name for name, _ in ADD_FIELDS if name in columns])


def named_keys(runs: Sequence[CommitRun]) -> pa.ChunkedArray:
    """Return the key of each file action of the commits: run by run, the adds and then the removes."""
    keys = [chunk for run in runs for column in (run.add_keys, run.remove_keys) for chunk in column.chunks]
    return pa.chunked_array(keys, pa.string())


def name_any(checkpoint: Checkpoint | None, runs: Sequence[CommitRun], keys: pa.ChunkedArray, *, vectors: bool) -> bool:
    """Return whether a checkpoint has a file with one of these keys, or commits name one. No statistics are read."""
    if _is_any_in(keys, named_keys(runs)):
        return True
    return checkpoint is not None and _is_any_in(file_key(checkpoint.adds(_with_key((), vectors))), keys)


def _is_any_in(keys: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.is_in(keys, value_set=others)).as_py())


def tombstones(checkpoint: Checkpoint | None, runs: Sequence[CommitRun]) -> pa.Table:
    """Return the remove actions in force, including expired ones, with the fields of REMOVE_FIELDS."""
    schema = pa.schema(list(REMOVE_FIELDS))
    tail, named = _latest(runs, schema.names, adds=False)
    tables = [tail.cast(schema)] if len(tail) else []
    if checkpoint is not None:
        tables.insert(0, _without(checkpoint.removes(), named))
    return pa.concat_tables(tables) if tables else empty_table(schema)


def transactions(checkpoint: Checkpoint | None, runs: Sequence[CommitRun]) -> pa.Table:
    """Return the txn actions in force, one per application: appId, version, lastUpdated."""
    schema = pa.schema(list(TRANSACTION_FIELDS))
    tables = [checkpoint.transactions().cast(schema)] if checkpoint is not None else []
    tables += [run.transactions.select(schema.names).cast(schema) for run in runs]
    if not tables:
        return empty_table(schema)
    table = pa.concat_tables(tables)
    return table.take(last_of_each(table["appId"]))


def _latest(runs: Sequence[CommitRun], columns: Sequence[str], *, adds: bool) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return the adds (or removes) that no later action overrides, and the key of every file that the commits name."""
    kept: list[pa.Table] = []
    order: list[np.ndarray] = []
    is_add: list[np.ndarray] = []
    base = 0
    for run in runs:
        for table, flag in ((run.adds, True), (run.removes, False)):
            order.append(numbers(table["position"]) + base)
            is_add.append(np.full(len(table), flag))
        kept.append((run.adds if adds else run.removes).select(columns))
        base += 1 + max((int(pc.max(t["position"]).as_py() or 0) for t in (run.adds, run.removes) if len(t)), default=0)
    if not kept:
        return pa.table({}), pa.chunked_array([], pa.string())
    all_keys = named_keys(runs)
    positions = np.concatenate(order)
    flags = np.concatenate(is_add)
    # Within one key the action with the greatest position is in force.
    by_position = np.argsort(positions, kind="stable")
    winners = np.zeros(len(positions), dtype=bool)
    winners[by_position[numbers(last_of_each(all_keys.take(integers(by_position))))]] = True
    return pa.concat_tables(kept).filter(mask(winners[flags == adds])), all_keys


def last_of_each(keys: pa.ChunkedArray) -> pa.Array:
    """Return the row numbers of the last occurrence of each key, ascending."""
    codes = numbers(keys.combine_chunks().dictionary_encode().indices)
    last = np.zeros(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
    last[codes] = np.arange(len(codes))  # of several rows with one code the last is kept
    return integers(np.sort(last))


def _without(table: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    if not len(keys) or not len(table):
        return table
    # This goes batch by batch, so that batches without any of these files are not copied.
    kept = []
    for batch in table.to_batches():
        overruled = pc.is_in(file_key(pa.Table.from_batches([batch])), value_set=keys)
        kept.append(batch.filter(pc.invert(overruled).combine_chunks()) if pc.any(overruled).as_py() else batch)
    return pa.Table.from_batches(kept, schema=table.schema)


def _with_key(columns: Sequence[str], vectors: bool) -> list[str]:
    return [*columns, "path", "deletionVector"] if vectors else [*columns, "path"]
