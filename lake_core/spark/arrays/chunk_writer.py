"""Turns rows into chunks in Spark's executors: it finds the cell of each row, and one task writes all cells of a chunk.

In between, Spark moves the cells of a chunk as two blocks of bytes, not row by row.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core import runtime
from lake_core.icechunk.chunk_grid import grid_of
from lake_core.icechunk.manifest import InlineChunk, NativeChunk
from lake_core.spark.errors import DuplicateCells, InvalidValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.spark.arrays.cf_encoding import CFEncoding
    from lake_core.spark.arrays.coordinates import CoordinateIndex
    from lake_core.spark.arrays.stored_array import StoredArray

LOCATED_CELLS = "chunk bigint, positions binary, cells binary, unknown bigint, error string"
"""Cells that are sent to the task of their chunk: their positions in the chunk, and their new values.

A row with `error` has no chunk. `unknown` counts rows with coordinates that the array lacks. If it is 0, the error is
about values that the array cannot hold.
"""
WRITTEN_CHUNKS = "chunk bigint, chunk_id binary, length bigint, data binary, cells bigint, unknown bigint, error string"
"""The report of executors on a written chunk: its id (or its bytes, if they are few), and the number of written cells.

`unknown` and `error` are as in `LOCATED_CELLS`.
"""

_WRITTEN = pa.schema(
    [
        ("chunk", pa.int64()),
        ("chunk_id", pa.binary()),
        ("length", pa.int64()),
        ("data", pa.binary()),
        ("cells", pa.int64()),
        ("unknown", pa.int64()),
        ("error", pa.string()),
    ]
)
_NO_CHUNK = -1
_EXAMPLES = 5
"""The number of rows without a cell that an error names."""
_ROWS_AT_ONCE = 1 << 17
"""The number of rows that are grouped by chunk before they are sent."""
_CHUNKS_AHEAD = 4
"""The number of chunks that a task writes concurrently."""


@dataclass(frozen=True, slots=True)
class CellLocator:
    """Finds the cells of rows. Batches have a column of coordinates for each dimension, and a column of values."""

    indexes: tuple[CoordinateIndex, ...]
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    encoding: CFEncoding

    def locate(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `LOCATED_CELLS`."""
        grid = grid_of(self.shape, self.chunk_shape)
        steps = np.array(self.chunk_shape, np.int64)[:, None]
        for rows in _gathered(batches):
            positions = np.stack(
                [index.positions(column) for index, column in zip(self.indexes, rows.columns, strict=False)]
            )
            unknown: npt.NDArray[np.bool_] = np.asarray((positions < 0).any(axis=0))
            if unknown.any():
                yield _refused(int(unknown.sum()), self._examples(rows, unknown))
                located = np.flatnonzero(~unknown)
                rows, positions = rows.take(pa.array(located)), positions[:, located]
            if not rows.num_rows:
                continue
            try:
                cells = self.encoding.encode(rows.column(len(self.indexes)))
            except InvalidValues as error:
                # If it were raised here, Spark would run the task three more times, and wrap the error in a JVM trace.
                yield _refused(0, f"{type(error).__name__}: {error}")
                continue
            chunks = np.ravel_multi_index(tuple(positions // steps), grid)
            yield _located(chunks, np.ravel_multi_index(tuple(positions % steps), self.chunk_shape), cells)

    def _examples(self, rows: pa.RecordBatch, unknown: npt.NDArray[np.bool_]) -> str:
        examples = rows.take(pa.array(np.flatnonzero(unknown)[:_EXAMPLES]))
        return ", ".join(
            "("
            + ", ".join(
                f"{index.dimension} {column[row]}"
                for index, column in zip(self.indexes, examples.columns, strict=False)
            )
            + ")"
            for row in range(examples.num_rows)
        )


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine batches into larger ones."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(part.num_rows for part in pending) >= _ROWS_AT_ONCE:
            yield pa.concat_batches(pending)
            pending = []
    if pending:
        yield pa.concat_batches(pending)


def _located(
    chunks: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], cells: npt.NDArray[Any]
) -> pa.RecordBatch:
    """Return the cells of each chunk as one row of `LOCATED_CELLS`."""
    order = np.argsort(chunks, kind="stable")
    chunks = chunks[order]
    bounds = np.concatenate([[0], np.flatnonzero(chunks[1:] != chunks[:-1]) + 1, [len(chunks)]])
    count = len(bounds) - 1
    columns = [
        pa.array(chunks[bounds[:-1]], pa.int64()),
        _packed(positions[order].astype(np.int64), bounds),
        _packed(cells[order], bounds),
        pa.array(np.zeros(count, np.int64)),
        pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["chunk", "positions", "cells", "unknown", "error"])


def _refused(unknown: int, error: str) -> pa.RecordBatch:
    row = {"chunk": _NO_CHUNK, "positions": b"", "cells": b"", "unknown": unknown, "error": error}
    types = {
        "chunk": pa.int64(),
        "positions": pa.binary(),
        "cells": pa.binary(),
        "unknown": pa.int64(),
        "error": pa.string(),
    }
    return pa.RecordBatch.from_pylist([row], schema=pa.schema(types))


def _packed(values: npt.NDArray[Any], bounds: npt.NDArray[np.int64]) -> pa.Array:
    """Return runs of values as bytes. `bounds` are the positions between the runs."""
    if values.dtype.kind == "O":
        return pa.array(
            [pickle.dumps(values[start:stop].tolist()) for start, stop in pairwise(bounds.tolist())], pa.binary()
        )
    offsets = (bounds * values.dtype.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(np.ascontiguousarray(values).tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _unpacked(runs: Sequence[bytes], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values of all runs, one run after the other."""
    if dtype.kind in "OT":
        return np.array([value for run in runs for value in pickle.loads(run)], object)
    return np.frombuffer(b"".join(runs), dtype)


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Writes the chunks of an array."""

    array: StoredArray
    inline_threshold: int

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the chunks of rows that are sorted by chunk. Yield rows of `WRITTEN_CHUNKS`."""
        return runtime.map_ahead(self._write, _by_chunk(batches), _CHUNKS_AHEAD)

    def _write(self, rows: pa.Table) -> pa.RecordBatch:
        chunk = rows["chunk"][0].as_py()
        if chunk == _NO_CHUNK:
            refused = [{"unknown": row["unknown"], "error": row["error"], "cells": 0} for row in rows.to_pylist()]
            return pa.RecordBatch.from_pylist(refused, schema=_WRITTEN)
        positions = _unpacked(rows["positions"].to_pylist(), np.dtype(np.int64))
        try:
            reference = self._write_chunk(chunk, positions, _unpacked(rows["cells"].to_pylist(), self.array.dtype))
        except DuplicateCells as error:
            refused = [{"unknown": 0, "error": f"{type(error).__name__}: {error}", "cells": 0}]
            return pa.RecordBatch.from_pylist(refused, schema=_WRITTEN)
        stored = {"data": reference.data} if isinstance(reference, InlineChunk) else {"chunk_id": reference.chunk_id}
        written = {"chunk": chunk, "length": reference.length, "cells": len(positions), "unknown": 0, **stored}
        return pa.RecordBatch.from_pylist([written], schema=_WRITTEN)

    def _write_chunk(
        self, chunk: int, positions: npt.NDArray[np.int64], cells: npt.NDArray[Any]
    ) -> InlineChunk | NativeChunk:
        index = tuple(int(coordinate) for coordinate in np.unravel_index(chunk, self.array.grid))
        self._check_distinct(index, positions)
        before = self.array.read_chunk(index) if len(positions) < self.array.cells_inside(index) else None
        content = self.array.empty_chunk() if before is None else before.copy()
        content.reshape(-1)[positions] = cells
        return self.array.write_chunk(content, self.inline_threshold)

    def _check_distinct(self, index: tuple[int, ...], positions: npt.NDArray[np.int64]) -> None:
        ordered = np.sort(positions)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            steps = zip(
                np.unravel_index(int(twice[0]), self.array.chunk_shape), index, self.array.chunk_shape, strict=True
            )
            position = tuple(int(cell) + coordinate * chunk for cell, coordinate, chunk in steps)
            raise DuplicateCells(
                f"several rows belong to one cell of {self.array.path}, such as the cell at {position}: keep one of "
                "them, with dropDuplicates or an aggregate"
            )


def _by_chunk(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each chunk. The batches are sorted by chunk."""
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
