"""OPTIMIZE: the same rows in fewer, or better sorted, files.

Rows do not change, and appends of other writers do not conflict.

Bin-packing combines small files of a partition. Z-order sorts the rows of a partition along a curve through several
columns, so that a filter on any of them skips files. A clustered table is sorted by its own columns, along the Hilbert
curve, each time only the files that were not sorted yet and those of cubes that can still grow.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.clustering import CUBE_COLUMNS, clustered_by, cube_of, new_cube, ordered_columns, to_cluster
from lake_core.delta.curve import Curve
from lake_core.delta.errors import InvalidPredicate, InvalidProperty, SchemaMismatch
from lake_core.delta.file_layout import file_layout
from lake_core.delta.numpy_arrays import integers, mask, numbers
from lake_core.delta.operation import Operation
from lake_core.delta.operations.rewrite import on_partitions_only, predicate_parameter, sizes
from lake_core.delta.ordered_rows import in_order
from lake_core.delta.row_rules import RowRules
from lake_core.delta.row_writer import RowWriter
from lake_core.delta.scan import Scan, files_of_partitions, open_data_files, with_tracked_rows
from lake_core.delta.skipping import num_records
from lake_core.expression import parse_predicate
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.delta.data_file import AddFile
    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.parquet_options import ParquetOptions
    from lake_core.delta.snapshot import Snapshot

DEFAULT_TARGET = 128 << 20
_TARGET_PROPERTY = "delta.targetFileSize"
_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
MANY_OUTPUTS = 4
"""If a bin is sorted into more files, it is large."""
_DELETED_SHARE = 0.05
"""A share of rows: if its deletion vector deletes more of them, a file is rewritten even if it is large."""


def optimize(
    snapshot: Snapshot,
    now: int,
    *,
    where: str | None = None,
    target_size: int | None = None,
    zorder_by: Sequence[str] = (),
    purge: bool = False,
    full: bool = False,
    parquet: ParquetOptions | None = None,
    run: Runner = run_here,
    sort_large: Callable[[OptimizeTask], list[AddFile]] | None = None,
) -> Operation | None:
    """Plan and write an OPTIMIZE.

    `now`: milliseconds; `target_size`: bytes of a file, `delta.targetFileSize` or 128 MiB by default.

    `where` selects partitions. `purge` rewrites the files with deleted rows, and no others. `full` sorts all files of a
    clustered table. `sort_large` writes those bins of a task that are to be sorted into many files; without it, one
    task sorts each bin. Returns None if there is nothing to improve. Raises InvalidPredicate, InvalidExpression,
    SchemaMismatch, InvalidProperty and what reading and writing raise.
    """
    target = _target_size(snapshot, target_size)
    schema = snapshot.metadata.arrow_schema
    clustered = clustered_by(snapshot.metadata, snapshot.domains)
    if clustered and zorder_by:
        columns = ", ".join(clustered.names)
        raise SchemaMismatch(f"the table is clustered by {columns}, by which optimize sorts it: leave out zorder_by")
    if full and not clustered:
        raise SchemaMismatch("full sorts all files of a clustered table, and this one is not: call cluster_by first")
    if purge and (zorder_by or full):
        raise SchemaMismatch("purge rewrites files as they are: pass either purge, or zorder_by or full")
    curve = Curve() if purge else clustered or _curve(snapshot, zorder_by)
    files = _chosen(snapshot, where, now, is_clustered=bool(clustered))
    groups = _by_partition(files, snapshot)
    tags: tuple[tuple[str, str], ...] = ()
    if purge:
        bins = [np.array([number]) for number in np.flatnonzero(_holey(files, 0.0))]
    elif clustered:
        chosen = to_cluster(files, clustered, _holey(files), full=full)
        bins, tags = [chosen] if len(chosen) else [], new_cube(clustered)
    else:
        bins = [group for group in groups if len(group) > 1 or curve] if curve else _bins(files, groups, target)
    if not bins:
        return None
    touched = files.take(integers(np.concatenate(bins)))
    task = OptimizeTask(
        open_data_files(with_tracked_rows(Scan(snapshot, schema, None, files, schema))),
        tuple(bins),
        tuple(dict(files["partitionValues"][int(chosen_files[0])].as_py()) for chosen_files in bins),
        tuple(max(1, round(int(numbers(files["size"])[chosen_files].sum()) / target)) for chosen_files in bins),
        curve,
        RowWriter(
            snapshot.data_root,
            snapshot.metadata,
            RowRules(),
            now,
            parquet=parquet,
            layout=file_layout(snapshot.protocol, snapshot.metadata),
        ),
    )
    large = task.chosen([bool(curve) and count > MANY_OUTPUTS for count in task.outputs])
    adds = []
    if sort_large is not None and large.bins:
        adds += sort_large(large)
        task = task.chosen([count <= MANY_OUTPUTS for count in task.outputs])
    for number, part in enumerate(run(task, len(task.bins))):
        adds += [replace(add, clustering=cube_of(files, bins[number])) for add in part] if purge else part
    if tags:
        adds = [replace(add, clustering=tags) for add in adds]
    metrics = {
        "numRemovedFiles": len(touched),
        "numRemovedBytes": sizes(touched),
        **_added_metrics([add.size for add in adds]),
    }
    parameters = predicate_parameter(where) | {
        "zOrderBy": json.dumps([] if clustered else curve.names, ensure_ascii=False),
        **({"clusterBy": dict(tags)[CUBE_COLUMNS], "isFull": json.dumps(full)} if tags else {}),
    }
    return Operation(
        "OPTIMIZE", parameters, snapshot, metrics, adds=adds, removes=touched, read_files=touched, data_change=False
    )


def _curve(snapshot: Snapshot, zorder_by: Sequence[str]) -> Curve:
    """Return the curve through the columns to sort by.

    Raises SchemaMismatch for those that have no order, or one value a file.
    """
    if isinstance(zorder_by, str):
        raise SchemaMismatch(f"zorder_by must be a list of columns: [{zorder_by!r}]")
    columns = ordered_columns(zorder_by, snapshot.metadata.arrow_schema)
    for path in columns:
        if path[0] in snapshot.partition_columns:
            raise SchemaMismatch(
                f"column {path[0]!r} is a partition column, of which each file has one value only: choose "
                "another column to sort by"
            )
    return Curve(tuple(columns))


def _added_metrics(added_sizes: Sequence[int]) -> dict[str, int]:
    metrics = {"numAddedFiles": len(added_sizes), "numAddedBytes": sum(added_sizes)}
    if added_sizes:
        ordered = sorted(added_sizes)
        quartiles = {
            "minFileSize": 0.0,
            "p25FileSize": 0.25,
            "p50FileSize": 0.5,
            "p75FileSize": 0.75,
            "maxFileSize": 1.0,
        }
        metrics |= {name: ordered[int(share * (len(ordered) - 1))] for name, share in quartiles.items()}
    return metrics


def _target_size(snapshot: Snapshot, size: int | None) -> int:
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidProperty(f"target_size must be a number of bytes, not {size!r}")
        return size
    text = snapshot.metadata.configuration.get(_TARGET_PROPERTY)
    if text is None:
        return DEFAULT_TARGET
    number = text.strip().lower().rstrip("bkmg")
    unit = text.strip().lower()[len(number) :]
    if not (number.isascii() and number.strip().isdigit() and unit in _UNITS and int(number)):
        raise InvalidProperty(f"{_TARGET_PROPERTY} is {text!r}: use a number of bytes, or a size such as '128mb'")
    return int(number) * _UNITS[unit]


def _chosen(snapshot: Snapshot, where: str | None, now: int, *, is_clustered: bool) -> pa.Table:
    fields = ["size", "stats"] if snapshot.has_deletion_vectors() else ["size"]
    if is_clustered:
        fields += ["clusteringProvider", "tags"]
    predicate = None if where is None else parse_predicate(where, snapshot.metadata.arrow_schema, now=now)
    if predicate is not None and not on_partitions_only(predicate, snapshot.metadata):
        columns = ", ".join(snapshot.partition_columns) or "none"
        raise InvalidPredicate(
            f"optimize works on whole partitions: {where!r} may only name the table's partition columns ({columns})"
        )
    return files_of_partitions(snapshot, fields, predicate)


def _by_partition(files: pa.Table, snapshot: Snapshot) -> list[npt.NDArray[np.int64]]:
    """Return the files' numbers, partition by partition, by ascending size."""
    if not len(files):
        return []
    code = np.zeros(len(files), dtype=np.int64)
    values = files["partitionValues"].combine_chunks()
    for key in snapshot.metadata.partition_keys.values():
        text = pc.map_lookup(values, scalar(key), "first") if len(values) else pa.nulls(0, pa.string())
        indices = numbers(text.dictionary_encode(null_encoding="encode").indices)
        code = np.unique(code * (int(indices.max(initial=0)) + 1) + indices, return_inverse=True)[1]
    order = np.lexsort((numbers(files["size"]), code))
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    return [order[start:stop] for start, stop in zip(starts, [*starts[1:], len(order)], strict=True)]


def _bins(files: pa.Table, groups: Sequence[npt.NDArray[np.int64]], target: int) -> list[npt.NDArray[np.int64]]:
    """Select files to compact: groups of small files up to the target size, and files with many deleted rows."""
    size, holey = numbers(files["size"]), _holey(files)
    bins: list[npt.NDArray[np.int64]] = []
    for group in groups:
        small = group[size[group] < target]
        total = np.cumsum(size[small])
        start = 0
        while start < len(small):
            before = total[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(total, before + target, side="right")))
            if stop - start > 1 or holey[small[start]]:
                bins.append(small[start:stop])
            start = stop
        bins += [np.array([number]) for number in group[size[group] >= target] if holey[number]]
    return bins


def _holey(files: pa.Table, share: float = _DELETED_SHARE) -> npt.NDArray[np.bool_]:
    """Mark the files of which more than a share of the rows are deleted."""
    if "deletionVector" not in files.column_names:
        return np.zeros(len(files), dtype=bool)
    gone = pc.fill_null(pc.struct_field(files["deletionVector"], ["cardinality"]), scalar(0, pa.int32()))
    rows = pc.fill_null(num_records(files["stats"]), scalar(0, pa.int64()))
    return numbers(gone) > numbers(rows) * share


@dataclass(frozen=True, slots=True)
class OptimizeTask:
    """Rewrites the rows of each bin of files. Picklable."""

    files: DataFiles
    bins: tuple[npt.NDArray[np.int64], ...]
    """Numbers of files of one partition each."""
    values: tuple[dict[str, str | None], ...]
    """The partition values of each bin, as in the log."""
    outputs: tuple[int, ...]
    """The number of files that each bin is written to, if it is sorted."""
    curve: Curve
    writer: RowWriter

    def __call__(self, index: int) -> list[AddFile]:
        """Write the rows of the bin `index` anew: into one file, or sorted along the curve into several."""
        values = self.values[index]
        if not self.curve:
            return self.writer.files().write_one(self._rows(index, self.files), values)
        return list(self._sorted(index, values))

    def chosen(self, flags: Sequence[bool]) -> OptimizeTask:
        """Return the task for some of the bins: those with a flag."""
        return replace(
            self,
            bins=tuple(compress(self.bins, flags)),
            values=tuple(compress(self.values, flags)),
            outputs=tuple(compress(self.outputs, flags)),
        )

    def _rows(self, index: int, files: DataFiles) -> Iterator[pa.Table]:
        for number in self.bins[index]:
            yield from files.batches(int(number))

    def _sorted(self, index: int, values: dict[str, str | None]) -> Iterator[AddFile]:
        """Sort in two passes: the first ranks rows by the curve's columns, the second distributes them over files."""
        keys = [values for rows in self._rows(index, self.files) for values in self.curve.values(rows)]
        width = len(self.curve.columns)
        if not keys:
            return
        order = np.argsort(
            self.curve.positions(
                pa.chunked_array([c for column in keys[n::width] for c in column.chunks]) for n in range(width)
            ),
            kind="stable",
        )
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        count = min(self.outputs[index], max(1, len(order)))
        share = -(-len(order) // count) or 1
        with tempfile.TemporaryDirectory(prefix="lake-zorder-") as folder, ExitStack() as open_files:
            spills: dict[int, pa.ipc.RecordBatchFileWriter] = {}
            ranks: dict[int, list[npt.NDArray[np.int64]]] = {}
            start = 0
            for rows in self._rows(index, self.files):
                batch_rank = rank[start : start + rows.num_rows]
                start += rows.num_rows
                for output in np.unique(batch_rank // share):
                    hit = batch_rank // share == output
                    part = rows.filter(mask(hit))
                    if output not in spills:
                        sink = open_files.enter_context(pa.OSFile(str(Path(folder) / str(output)), "wb"))
                        spills[output] = open_files.enter_context(pa.ipc.new_file(sink, part.schema))
                        ranks[output] = []
                    spills[output].write_table(part)
                    ranks[output].append(batch_rank[hit])
            open_files.pop_all().close()
            for output in sorted(spills):
                with pa.memory_map(str(Path(folder) / str(output))) as source:
                    part = pa.ipc.open_file(source).read_all()
                    order = np.argsort(np.concatenate(ranks[output]))
                    yield from self.writer.files().write_one(in_order(part, order), values)
