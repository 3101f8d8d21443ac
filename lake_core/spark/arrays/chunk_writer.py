"""From rows to chunks, in Spark's executors: first each row finds its cell, then, sorted by chunk, rows are put together and written."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core import runtime
from lake_core.icechunk.manifest import InlineChunk, NativeChunk
from lake_core.spark.arrays.cf_encoding import CFEncoding
from lake_core.spark.arrays.coordinates import CoordinateIndex
from lake_core.spark.arrays.stored_array import StoredArray
from lake_core.spark.errors import DuplicateCells, InvalidValues

WRITTEN_CHUNKS = "chunk bigint, chunk_id binary, length bigint, data binary, cells bigint, error string"
"""What executors tell of a chunk that they wrote: where it is, or its bytes if they are few, and how many of its cells were written.

With `error`, of rows that have no place in the array: of `cells` rows with unknown coordinates if there is no `chunk`.
"""

_WRITTEN = pa.schema(
    [
        ("chunk", pa.int64()),
        ("chunk_id", pa.binary()),
        ("length", pa.int64()),
        ("data", pa.binary()),
        ("cells", pa.int64()),
        ("error", pa.string()),
    ]
)
_NO_CHUNK = -1
_EXAMPLES = 5
"""How many rows without a cell are told of in each batch."""
_CHUNKS_AHEAD = 4
"""Chunks that a task writes side by side."""


@dataclass(frozen=True, slots=True)
class CellLocator:
    """Finds the cells of rows: from batches with a column of coordinates for each dimension and one of values."""

    indexes: tuple[CoordinateIndex, ...]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]

    def locate(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the number of each row's chunk, that of its cell in the chunk, and its value. Rows without a cell make one with `error`."""
        grid = tuple(-(-length // chunk) for length, chunk in zip(self.shape, self.chunk_shape, strict=True))
        for batch in batches:
            places = np.stack([index.places(column) for index, column in zip(self.indexes, batch.columns, strict=False)])
            unknown: npt.NDArray[np.bool_] = np.asarray((places < 0).any(axis=0))
            if unknown.any():
                yield self._unknown(batch, unknown)
                known = np.flatnonzero(~unknown)
                batch, places = batch.take(pa.array(known)), places[:, known]
            steps = np.array(self.chunk_shape, np.int64)[:, None]
            # Without rows there is nothing to number, in an array without cells in particular.
            chunks = np.ravel_multi_index(tuple(places // steps), grid) if batch.num_rows else np.empty(0, np.int64)
            cells = np.ravel_multi_index(tuple(places % steps), self.chunk_shape) if batch.num_rows else chunks
            yield _located(chunks, cells, batch.column(len(self.indexes)), [None] * batch.num_rows)

    def _unknown(self, batch: pa.RecordBatch, unknown: npt.NDArray[np.bool_]) -> pa.RecordBatch:
        numbers = np.flatnonzero(unknown)
        examples = batch.take(pa.array(numbers[:_EXAMPLES]))
        shown = [
            "(" + ", ".join(f"{index.dimension} {column[row]}" for index, column in zip(self.indexes, examples.columns, strict=False)) + ")"
            for row in range(examples.num_rows)
        ]
        value = pa.nulls(1, batch.schema.types[-1])
        return _located(np.array([_NO_CHUNK]), np.array([len(numbers)]), value, [", ".join(shown)])


def _located(chunks: npt.NDArray[np.int64], cells: npt.NDArray[np.int64], values: pa.Array, errors: Sequence[str | None]) -> pa.RecordBatch:
    columns = [pa.array(chunks, pa.int64()), pa.array(cells, pa.int64()), values, pa.array(errors, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["chunk", "cell", "value", "error"])


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Writes the chunks of an array."""

    array: StoredArray
    encoding: CFEncoding
    inline_threshold: int

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the chunks of rows that come sorted by chunk. Yields rows of `WRITTEN_CHUNKS`."""
        pending: collections.deque[Future[pa.RecordBatch]] = collections.deque()
        with runtime.thread_pool(_CHUNKS_AHEAD) as pool:
            for rows in _by_chunk(batches):
                pending.append(pool.submit(self._write, rows))
                if len(pending) == _CHUNKS_AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()

    def _write(self, rows: pa.Table) -> pa.RecordBatch:
        chunk = rows["chunk"][0].as_py()
        if chunk == _NO_CHUNK:
            return _written(None, None, int(rows["cell"].to_numpy().sum()), ", ".join(rows["error"].to_pylist()[:_EXAMPLES]))
        try:
            return self._write_chunk(chunk, rows["cell"].to_numpy(), rows["value"].combine_chunks())
        except (DuplicateCells, InvalidValues) as error:
            # Raised here, it would be tried again three times, and arrive inside the JVM's trace.
            return _written(chunk, None, 0, f"{type(error).__name__}: {error}")

    def _write_chunk(self, chunk: int, cells: npt.NDArray[np.int64], values: pa.Array) -> pa.RecordBatch:
        index = tuple(int(coordinate) for coordinate in np.unravel_index(chunk, self.array.grid))
        self._check_distinct(index, cells)
        encoded = self.encoding.encode(values)
        before = self.array.read_chunk(index) if len(cells) < self.array.cells_inside(index) else None
        content = self.array.empty_chunk() if before is None else before.copy()
        content.reshape(-1)[cells] = encoded
        reference = self.array.write_chunk(content, self.inline_threshold)
        return _written(chunk, reference, len(cells), None)

    def _check_distinct(self, index: tuple[int, ...], cells: npt.NDArray[np.int64]) -> None:
        ordered = np.sort(cells)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            steps = zip(np.unravel_index(int(twice[0]), self.array.chunk_shape), index, self.array.chunk_shape, strict=True)
            place = tuple(int(cell) + coordinate * chunk for cell, coordinate, chunk in steps)
            raise DuplicateCells(
                f"several rows are of one cell of {self.array.path}, such as the one at the place {place}: keep one of them, by "
                f"dropDuplicates or an aggregate"
            )


def _by_chunk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each chunk, of batches that are sorted by chunk."""
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        chunks = batch.column(0).to_numpy()
        bounds = [0, *(np.flatnonzero(chunks[1:] != chunks[:-1]) + 1).tolist(), len(chunks)]
        for start, stop in pairwise(bounds):
            if start == stop:
                continue
            if parts and parts[0].column(0)[0].as_py() != chunks[start]:
                yield pa.Table.from_batches(parts)
                parts = []
            parts.append(batch.slice(start, stop - start))
    if parts:
        yield pa.Table.from_batches(parts)


def _written(chunk: int | None, reference: InlineChunk | NativeChunk | None, cells: int, error: str | None) -> pa.RecordBatch:
    row: dict[str, Any] = {"chunk": chunk, "cells": cells, "error": error}
    if isinstance(reference, InlineChunk):
        row |= {"length": reference.length, "data": reference.data}
    elif reference is not None:
        row |= {"length": reference.length, "chunk_id": reference.chunk_id}
    return pa.RecordBatch.from_pylist([row], schema=_WRITTEN)
