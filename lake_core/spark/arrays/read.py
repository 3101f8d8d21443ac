"""Reads arrays as rows. The driver chooses the chunks, and executors read them, a few in each task."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lake_core import runtime
from lake_core.delta.schema import schema_from_arrow, schema_to_json
from lake_core.expression import parse_predicate
from lake_core.icechunk.chunk_grid import grid_of
from lake_core.spark.arrays.array_variable import ArrayGroup, ArrayVariable, common_group, session_of, split_path
from lake_core.spark.arrays.cell_types import to_arrow
from lake_core.spark.arrays.chunk_codec import unsupported
from lake_core.spark.arrays.chunk_pruning import Mask, prune
from lake_core.spark.arrays.executors import check_executors
from lake_core.spark.executor import batch_function
from lake_core.spark.predicate import filtered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.icechunk import Repository, Session
    from lake_core.icechunk.manifest import Extents
    from lake_core.spark.arrays.cf_encoding import CFEncoding
    from lake_core.spark.arrays.stored_array import StoredArray

_BYTES_PER_TASK = 64 << 20
"""About how many bytes of rows a task returns. A task reads whole boxes."""
_ROWS_PER_BATCH = 1 << 16
_BOXES_AHEAD = 4
"""The number of boxes that a task reads concurrently."""


def read_array(
    spark: SparkSession, source: Repository | Session, *, variables: Sequence[str], where: str | None = None
) -> DataFrame:
    """Return the cells of arrays as rows: a column for each dimension, and one for each array.

    Values and coordinates are decoded as by xarray: scaled and shifted, missing values as NaN, times as timestamps.
    Cells that were never written have the fill value. A dimension without coordinates counts 0, 1, …. The state to read
    is fixed now: the rows do not show later changes and commits.

    Args:
        spark: A session, classic or of Connect.
        source: A repository, to read its branch main, or a session, to read its state with its own changes.
        variables: The paths of the arrays. They must be in one group, and have the same dimensions.
        where: A predicate in Spark SQL over the columns. Only chunks whose coordinates may match it are read. A time
            without a zone is UTC.

    Raises:
        NodeNotFound: There is no such array.
        UnsupportedArray: An array cannot be read as rows, or its dimensions differ from those of the first array.
        InvalidCoordinates: The coordinates have a type that Spark lacks.
        InvalidExpression: `where` is not valid.
        MissingPackage: The array has codecs for which executors need the package zarr, and they lack it.
    """
    if isinstance(variables, str) or not variables:
        raise ValueError("variables must be a list of paths of arrays, such as variables=['t2m']")
    session = session_of(source)
    for path in variables:
        session.array("/" + path.strip("/"))
    group = ArrayGroup(session, common_group(variables))
    arrays = [group.variable(split_path(path)[1]) for path in dict.fromkeys(variables)]
    _check_same_dimensions(arrays)
    coordinates = group.coordinates(arrays[0])
    schema = pa.schema(
        [
            *((dimension.dimension, dimension.values.type) for dimension in coordinates),
            *((array.name, array.type) for array in arrays),
        ]
    )
    _check_names(schema.names, arrays)
    predicate = None if where is None else parse_predicate(where, schema)
    if any(array.codec.needs_zarr for array in arrays):
        check_executors(spark, arrays[0].path)
    box_shape = tuple(max(lengths) for lengths in zip(*(array.node.chunk_shape for array in arrays), strict=True))
    pruning = prune(predicate, coordinates, box_shape)
    scan = ArrayScan(
        schema=schema,
        coordinates=tuple(dimension.values for dimension in coordinates),
        positions=pruning.positions,
        box_shape=box_shape,
        boxes=pruning.boxes,
        boxes_per_task=max(1, _BYTES_PER_TASK // (math.prod(box_shape) * 8 * len(schema))),
        arrays=tuple(array.stored(session, _extents(array, box_shape, pruning.boxes)) for array in arrays),
        encodings=tuple(array.encoding for array in arrays),
    )
    frame = _frame(spark, scan)
    return frame if predicate is None else filtered(frame, predicate)


def _check_same_dimensions(arrays: Sequence[ArrayVariable]) -> None:
    first = arrays[0]
    for array in arrays:
        if (array.dimensions, array.node.shape) != (first.dimensions, first.node.shape):
            raise unsupported(
                array.path,
                f"it has the dimensions {dict(zip(array.dimensions, array.node.shape, strict=True))}, but "
                f"{first.path} has {dict(zip(first.dimensions, first.node.shape, strict=True))}. Read them "
                "separately, and join the DataFrames",
            )


def _check_names(names: Sequence[str], arrays: Sequence[ArrayVariable]) -> None:
    """Raise UnsupportedArray if Spark cannot tell an array's column from another one."""
    for array in arrays:
        alike = [name for name in names if name != array.name and name.lower() == array.name.lower()]
        if alike:
            raise unsupported(
                array.path,
                f"its name differs from {alike[0]!r} only in case, and Spark ignores the case of columns. "
                "Read it separately or rename it",
            )


def _extents(array: ArrayVariable, box_shape: Sequence[int], boxes: npt.NDArray[np.int64]) -> Extents:
    """Return the smallest box of chunks that contains all boxes to read of an array."""
    grid = grid_of(array.node.shape, box_shape)
    if not len(boxes):
        return tuple((0, 0) for _ in grid)
    spans = [(int(column.min()), int(column.max()) + 1) for column in np.unravel_index(boxes, grid)]
    chunks = zip(spans, box_shape, array.node.chunk_shape, strict=True)
    return tuple((first * box // chunk, -(-last * box // chunk)) for (first, last), box, chunk in chunks)


def _frame(spark: SparkSession, scan: ArrayScan) -> DataFrame:
    schema = T.StructType.fromJson(json.loads(schema_to_json(schema_from_arrow(scan.schema))))
    tasks = -(-len(scan.boxes) // scan.boxes_per_task)
    if not tasks:
        return spark.createDataFrame([], schema)
    # `range` distributes its numbers in order, so each partition gets one number.
    return spark.range(0, tasks, 1, tasks).mapInArrow(batch_function(scan.batches), schema)


@dataclass(frozen=True, slots=True)
class ArrayScan:
    """The data that executors need to read arrays, which are cut into boxes of whole chunks."""

    schema: pa.Schema
    coordinates: tuple[pa.Array, ...]
    positions: tuple[Mask, ...]
    """For each dimension, the positions whose rows are read."""
    box_shape: tuple[int, ...]
    boxes: npt.NDArray[np.int64]
    boxes_per_task: int
    arrays: tuple[StoredArray, ...]
    encodings: tuple[CFEncoding, ...]

    def batches(self, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of tasks. The batches hold the numbers of the tasks."""
        for batch in tasks:
            for task in batch.column(0).to_pylist():
                yield from self._task(self.boxes[task * self.boxes_per_task : (task + 1) * self.boxes_per_task])

    def _task(self, boxes: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        shape = self.arrays[0].shape
        grid = grid_of(shape, self.box_shape)
        extents = (
            tuple(
                (at * step, min((at + 1) * step, end))
                for at, step, end in zip(index, self.box_shape, shape, strict=True)
            )
            for index in zip(*(column.tolist() for column in np.unravel_index(boxes, grid)), strict=True)
        )
        for box, arrays in runtime.map_ahead(self._read, extents, _BOXES_AHEAD):
            yield from self._rows(box, arrays)

    def _read(self, box: Extents) -> tuple[Extents, list[npt.NDArray[np.generic]]]:
        return box, [array.read_box(box) for array in self.arrays]

    def _rows(self, box: Extents, arrays: Sequence[npt.NDArray[np.generic]]) -> Iterator[pa.RecordBatch]:
        positions = [np.flatnonzero(mask[start:stop]) for mask, (start, stop) in zip(self.positions, box, strict=True)]
        counts = tuple(len(indexes) for indexes in positions)
        cells = [values[np.ix_(*positions)].reshape(-1) for values in arrays]
        for start in range(0, math.prod(counts), _ROWS_PER_BATCH):
            numbers = np.arange(start, min(start + _ROWS_PER_BATCH, math.prod(counts)))
            columns = []
            for axis, at in enumerate(np.unravel_index(numbers, counts)):
                columns.append(self.coordinates[axis].take(pa.array(positions[axis][at] + box[axis][0])))
            for array, values, encoding in zip(self.arrays, cells, self.encodings, strict=True):
                try:
                    columns.append(to_arrow(encoding.decode(values[numbers[0] : numbers[-1] + 1])))
                except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                    raise unsupported(array.path, f"a value has no exact form in Spark ({error})") from None
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
