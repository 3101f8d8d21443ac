"""The ranges of the curve along which OPTIMIZE sorts, that large partitions are divided into.

A partition that one task can sort is ranked exactly. Of a larger one, tasks sample the curve's columns, file by file.
The samples give bounds for the values of each column, and with these the curve's ranges. Then each row by itself tells
its range, so any task can distribute rows, and each range is sorted by a task of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.numpy_arrays import integers, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.delta.curve import Curve
    from lake_core.delta.data_file_reader import DataFiles
    from lake_core.runner import Runner

_BYTES_A_TASK = 1 << 30
"""The size of the files that a task samples. Only the curve's columns are read."""
_SAMPLES = 100_000
_LEAST_SAMPLES = 20
"""How many rows are sampled of all files, and at least of each."""
_KEPT_OF_A_BATCH = 1024
_BOUNDS = 1023
"""The most bounds of a column."""
_ALL_BOUNDS = 200_000


@dataclass(frozen=True, slots=True)
class CurveRanges:
    """The ranges of the curve that the rows of one partition are divided into. Picklable."""

    curve: Curve
    bounds: tuple[pa.Array, ...]
    """Values of each column, in order and distinct."""
    ends: npt.NDArray[np.uint64]
    """The numbers on the curve at which the ranges but the first begin."""

    @property
    def count(self) -> int:
        """Return the number of ranges."""
        return len(self.ends) + 1

    def ranges_of(self, rows: pa.Table, first: int) -> npt.NDArray[np.int64]:
        """Return the range of each row.

        Rows at the same position, where several ranges meet, are spread over these by their numbers, from `first` on.
        """
        positions = _positions(self.curve, self.curve.values(rows), self.bounds)
        low = np.searchsorted(self.ends, positions, side="left").astype(np.int64)
        high = np.searchsorted(self.ends, positions, side="right").astype(np.int64)
        row_numbers = np.arange(first, first + rows.num_rows, dtype=np.int64)
        return np.asarray(low + row_numbers % (high - low + 1), dtype=np.int64)


def _positions(curve: Curve, columns: Sequence[pa.ChunkedArray], bounds: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """Return the positions of rows on the curve, by the number of bounds that are not above each value."""
    codes = []
    for column, values in zip(columns, bounds, strict=True):
        # Ranked together, because values of any type have ranks, but few can be searched.
        both = pa.chunked_array([values, *column.chunks], values.type)
        ranks = numbers(pc.rank(both, sort_keys="ascending", tiebreaker="dense"))
        codes.append(np.searchsorted(ranks[: len(values)], ranks[len(values) :], side="right").astype(np.uint64))
    return curve.number(codes, [len(values) for values in bounds])


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a file."""

    rows: int
    """The number of rows that the file has."""
    columns: pa.Table
    """The curve's columns of the sampled ones."""


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Samples the rows of groups of files. Picklable."""

    files: DataFiles
    curve: Curve
    groups: tuple[tuple[int, ...], ...]
    """Numbers of files."""
    most: int
    """The most rows that are sampled of a file."""

    def __call__(self, index: int) -> list[Sample]:
        """Sample the files of the group of this number."""
        return [self._sample(number) for number in self.groups[index]]

    def _sample(self, number: int) -> Sample:
        parts: list[pa.Table] = []
        total = 0
        for rows in self.files.batches(number):
            total += rows.num_rows
            columns = pa.table({str(number): values for number, values in enumerate(self.curve.values(rows))})
            parts.append(columns.take(_spread(rows.num_rows, _KEPT_OF_A_BATCH)))
        sampled = pa.concat_tables(parts) if parts else None
        if sampled is None:
            return Sample(0, pa.table({}))
        return Sample(total, sampled.take(_spread(sampled.num_rows, self.most)).combine_chunks())


def _spread(count: int, most: int) -> pa.Array:
    """Return row numbers below `count`, at equal distances: all of them, or `most`."""
    return integers(np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64))


def plan_ranges(
    files: DataFiles,
    curve: Curve,
    bins: Sequence[npt.NDArray[np.int64]],
    outputs: Sequence[int],
    run: Runner,
) -> tuple[list[CurveRanges], int]:
    """Return the ranges of each bin of files, and the number of rows in all files.

    Args:
        files: The files.
        curve: The curve to sort along.
        bins: The numbers of the files of each partition.
        outputs: The number of ranges of each.
        run: Calls the tasks that sample files.
    """
    chosen = [int(number) for part in bins for number in part]
    task = SampleTask(
        _restricted(files, curve),
        curve,
        tuple(_groups(chosen, files.sizes)),
        max(_LEAST_SAMPLES, _SAMPLES // len(chosen)),
    )
    samples = iter([sample for group in run(task, len(task.groups)) for sample in group])
    most = max(31, min(_BOUNDS, _ALL_BOUNDS // len(bins)))
    ranges, rows = [], 0
    for part, count in zip(bins, outputs, strict=True):
        own = [next(samples) for _ in part]
        rows += sum(sample.rows for sample in own)
        ranges.append(_ranges([sample for sample in own if sample.rows], curve, count, most))
    return ranges, rows


def _restricted(files: DataFiles, curve: Curve) -> DataFiles:
    """Return the same files with only the columns that the curve needs."""
    names = {path[0] for path in curve.columns}
    indexes = [index for index, child in enumerate(files.schema) if child.name in names]
    return replace(
        files,
        schema=pa.schema([files.schema.field(index) for index in indexes]),
        physical=pa.schema([files.physical.field(index) for index in indexes]),
    )


def _groups(files: Sequence[int], sizes: Sequence[int | None]) -> list[tuple[int, ...]]:
    """Divide files, in order, into groups of bounded size."""
    groups: list[list[int]] = []
    size = 0
    for number in files:
        if not groups or size + (sizes[number] or 0) > _BYTES_A_TASK:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += sizes[number] or 0
    return [tuple(group) for group in groups]


def _ranges(samples: Sequence[Sample], curve: Curve, count: int, most: int) -> CurveRanges:
    if not samples:
        return CurveRanges(curve, tuple(pa.nulls(0) for _ in curve.columns), np.empty(0, np.uint64))
    weights = np.concatenate([np.full(len(each.columns), each.rows / len(each.columns)) for each in samples])
    columns = pa.concat_tables([each.columns for each in samples]).columns
    bounds = []
    for column in columns:
        order = numbers(pc.array_sort_indices(column)) if column.num_chunks else np.empty(0, np.int64)
        at = _quantiles(weights[order], min(most, len(order)))
        bounds.append(column.take(integers(order[at])).unique())
    positions = _positions(curve, columns, bounds)
    order = np.argsort(positions, kind="stable")
    return CurveRanges(curve, tuple(bounds), positions[order[_quantiles(weights[order], count - 1)]])


def _quantiles(weights: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Return the positions in ordered rows of these weights that divide them into `count + 1` parts of equal weight."""
    total = np.cumsum(weights)
    shares = np.arange(1, count + 1) / (count + 1) * total[-1]
    return np.asarray(np.minimum(np.searchsorted(total, shares), len(total) - 1), dtype=np.int64)
