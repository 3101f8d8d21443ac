"""Sorting of partitions that are too large for one task along a curve, by a shuffle of Spark.

One task a file distributes its rows over the ranges of the curve. Spark brings together the rows of each range, which
one task sorts and writes. Rows travel as bytes of Arrow's format for messages, so that all types stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake_core.delta.numpy_arrays import integers
from lake_core.delta.operations.curve_ranges import CurveRanges, plan_ranges
from lake_core.delta.ordered_rows import in_order
from lake_core.spark.errors import SparkJobFailed
from lake_core.spark.executor import batch_function
from lake_core.spark.runner import run_in
from lake_core.spark.write import FILE_ROWS, collect_files, file_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from lake_core.delta.curve import Curve
    from lake_core.delta.data_file import AddFile
    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.delta.operations.optimize import OptimizeTask
    from lake_core.delta.row_writer import RowWriter

_MOST_TASKS = 10_000
_HELD_BYTES = 64 << 20
"""How many bytes of rows a task holds before it passes them on."""
_PASSED_BYTES = 8 << 20
_PIECES = "output int, piece binary"


def sort_in(spark: SparkSession) -> Callable[[OptimizeTask], list[AddFile]]:
    """Return a function that writes the bins of a task of OPTIMIZE, sorted along its curve, by a shuffle."""

    def sort(task: OptimizeTask) -> list[AddFile]:
        ranges, rows = plan_ranges(task.files, task.curve, task.bins, task.outputs, run_in(spark))
        counts = [each.count for each in ranges]
        starts = np.cumsum([0, *counts[:-1]])
        numbers = [(int(number), bin_index) for bin_index, part in enumerate(task.bins) for number in part]
        distribution = Distribution(task.files, tuple(ranges), tuple(int(start) for start in starts), tuple(numbers))
        writer = RangeWriter(
            task.files.schema, task.curve, task.writer, task.values, np.repeat(np.arange(len(counts)), counts)
        )
        files = spark.range(0, len(numbers), 1, min(len(numbers), _MOST_TASKS))
        pieces = files.mapInArrow(batch_function(distribution.pieces), _PIECES)
        together = _by_output(pieces, min(sum(counts), _MOST_TASKS)).sortWithinPartitions("output")
        adds, _ = collect_files(together.mapInArrow(batch_function(writer.write), FILE_ROWS))
        written = sum(add.rows for add in adds)
        if written != rows:
            raise SparkJobFailed(
                f"a Z-order has read {rows} rows, and written {written}: nothing is committed. Try again, and report it"
            )
        return adds

    return sort


def _by_output(pieces: DataFrame, partitions: int) -> DataFrame:
    # By their hashes, some outputs would share a partition, and other partitions stay empty. Spark 4.0 has only that.
    by_id = getattr(pieces, "repartitionById", None)
    moved: DataFrame = pieces.repartition(partitions, "output") if by_id is None else by_id(partitions, "output")
    return moved


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distributes the rows of files over ranges. Picklable."""

    files: DataFiles
    ranges: tuple[CurveRanges, ...]
    """The ranges of each bin."""
    starts: tuple[int, ...]
    """The number of the first output of each bin."""
    numbers: tuple[tuple[int, int], ...]
    """Files, and their bins."""

    def pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files as pieces with the numbers of their outputs."""
        held: dict[int, list[pa.Table]] = {}
        size = 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                for output, rows in self._rows(*self.numbers[index]):
                    held.setdefault(output, []).append(rows)
                    size += rows.nbytes
                    if size >= _HELD_BYTES:
                        yield from _passed(held)
                        held, size = {}, 0
        yield from _passed(held)

    def _rows(self, number: int, bin_index: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of a file with their outputs. A repeated call yields the same."""
        ranges, start, first = self.ranges[bin_index], self.starts[bin_index], 0
        for rows in self.files.batches(number):
            if not rows.num_rows:
                continue
            own = ranges.ranges_of(rows, first)
            first += rows.num_rows
            order = np.argsort(own, kind="stable")
            ordered, sorted_rows = own[order], rows.take(integers(order))
            begins = np.flatnonzero(np.diff(ordered, prepend=-1))
            for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
                yield start + int(ordered[begin]), sorted_rows.slice(begin, end - begin)


def _passed(held: dict[int, list[pa.Table]]) -> Iterator[pa.RecordBatch]:
    outputs: list[int] = []
    pieces: list[pa.Buffer] = []
    for output, parts in held.items():
        for batch in pa.concat_tables(parts).combine_chunks().to_batches():
            outputs.append(output)
            pieces.append(batch.serialize())
        if sum(piece.size for piece in pieces) >= _PASSED_BYTES:
            yield _piece_rows(outputs, pieces)
            outputs, pieces = [], []
    if pieces:
        yield _piece_rows(outputs, pieces)


def _piece_rows(outputs: list[int], pieces: list[pa.Buffer]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(outputs, pa.int32()), pa.array([piece.to_pybytes() for piece in pieces], pa.binary())],
        names=["output", "piece"],
    )


@dataclass(frozen=True, slots=True)
class RangeWriter:
    """Sorts the rows of each output and writes them to a file. Picklable."""

    schema: pa.Schema
    curve: Curve
    writer: RowWriter
    values: tuple[dict[str, str | None], ...]
    """The partition values of each bin."""
    bins: npt.NDArray[np.int64]
    """The bin of each output."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files of pieces that are sorted by the numbers of their outputs, and yield what was written."""
        pieces = (
            (output, piece)
            for batch in batches
            for output, piece in zip(batch.column(0).to_pylist(), batch.column(1), strict=True)
        )
        for output, group in groupby(pieces, key=itemgetter(0)):
            parts = [pa.ipc.read_record_batch(piece.as_buffer(), self.schema) for _, piece in group]
            rows = pa.Table.from_batches(parts, self.schema)
            order = np.argsort(self.curve.positions(self.curve.values(rows)), kind="stable")
            adds = self.writer.files().write_one(in_order(rows, order), self.values[self.bins[output]])
            yield file_rows(adds, [])
