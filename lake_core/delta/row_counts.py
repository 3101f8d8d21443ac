"""The rows that a change adds and removes, counted from statistics and provenance, without reading data files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.commit_file import parse_run, read_commit_info
from lake_core.delta.errors import DeltaError
from lake_core.delta.file_key import file_key
from lake_core.delta.log_segment import commit_key
from lake_core.delta.skipping import num_records
from lake_core.delta.snapshot import Snapshot, load_snapshot
from lake_core.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows that a change added and removed; an updated row counts as both. None if the statistics lack it."""

    added: int | None
    removed: int | None
    exact: bool = True
    """False if the counts may include rows that were only copied into new files."""


def row_count(files: pa.Table) -> int | None:
    """Count the rows in force of some add actions; None where one of them has no statistics."""
    counts = row_counts(files)
    return None if counts.null_count else int(pc.sum(counts).as_py() or 0)


def deletions(files: pa.Table) -> tuple[int, int]:
    """Return how many file actions have a deletion vector, and how many rows these delete."""
    if not len(files):
        return 0, 0  # without any chunks, PyArrow imports pandas
    rows = pc.struct_field(files["deletionVector"].combine_chunks(), ["cardinality"])
    return len(rows) - rows.null_count, int(pc.sum(rows).as_py() or 0)


def row_counts(files: pa.Table) -> pa.Array:
    """Count each add action's rows, without those that its deletion vector deletes. Null if unknown."""
    counts = num_records(files["stats"])
    if "deletionVector" not in files.column_names or files["deletionVector"].null_count == len(files):
        return counts
    vectors = files["deletionVector"].combine_chunks()
    return pc.subtract(counts, pc.fill_null(pc.struct_field(vectors, "cardinality"), 0))


def row_change(added: int | None, removed: int | None, metrics: Mapping[str, Any]) -> RowChange:
    """Return how many rows changed: those of the changed files, less the rows copied from one file to another."""
    if not added or not removed:
        return RowChange(added, removed)
    numbers = [str(metrics[name]) for name in ("numCopiedRows", "numTargetRowsCopied") if name in metrics]
    copied = sum(int(number) for number in numbers if number.isascii() and number.isdigit())
    least = min(added, removed)
    return RowChange(added - min(copied, least), removed - min(copied, least), exact=copied <= least)


def version_rows(snapshot: Snapshot, versions: Sequence[int]) -> Mapping[int, RowChange]:
    """Return the rows that consecutive versions added and removed, as far as the log still has them."""
    if not versions:
        return {}
    first, last = min(versions), max(versions)
    try:
        before = load_snapshot(snapshot.store, first - 1) if first else None
    except (DeltaError, NotFound):
        before = None  # cleaned up: rows that the oldest versions removed are unknown
    commits = list(
        zip(
            range(first, last + 1),
            snapshot.store.get_many([commit_key(v) for v in range(first, last + 1)]),
            strict=True,
        )
    )
    run = parse_run(commits, (), None)
    keys, counts = [run.add_keys], [row_counts(run.adds)]
    if before is not None:
        files = before.files(["path", "stats", "deletionVector"])
        keys.append(file_key(files))
        counts.append(row_counts(files))
    added = pa.chunked_array([chunk for key in keys for chunk in _chunks(key)], pa.string())
    positions = pc.index_in(run.remove_keys, value_set=added)
    removed = pc.take(pa.chunked_array(counts, pa.int64()), positions)
    changes: dict[int, RowChange] = {}
    for version, data in commits:
        added_here = run.adds.filter(pc.equal(run.adds["commit"], version))
        removed_here = run.removes.filter(pc.equal(run.removes["commit"], version))
        flags = {*added_here["dataChange"].unique().to_pylist(), *removed_here["dataChange"].unique().to_pylist()}
        if flags == {False}:
            changes[version] = RowChange(0, 0)
            continue
        info = read_commit_info(version, data).get("operationMetrics")
        gone = removed.filter(pc.equal(run.removes["commit"], version))
        count = None if gone.null_count else int(pc.sum(gone).as_py() or 0)
        changes[version] = row_change(row_count(added_here), count, info if isinstance(info, dict) else {})
    return changes


def _chunks(keys: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
