"""Writes rows to arrays. Executors write the chunks, one task for each, and the driver collects their references.

Only references that reach the driver are used. So a task that failed or ran twice leaves at most unreferenced chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.expression import quote_identifier
from lake_core.icechunk.errors import NodeNotFound
from lake_core.icechunk.identifier import OBJECT_ID_LENGTH
from lake_core.icechunk.manifest import ChunkReferences, ReferenceKind, is_in, sorted_references
from lake_core.icechunk.snapshot import ArrayNode
from lake_core.readable import count_of
from lake_core.spark.arrays.array_variable import ArrayGroup, ArrayVariable, session_of, split_path
from lake_core.spark.arrays.chunk_writer import LOCATED_CELLS, WRITTEN_CHUNKS, CellLocator, ChunkWriter
from lake_core.spark.arrays.coordinates import coordinate_index
from lake_core.spark.arrays.executors import check_executors
from lake_core.spark.arrays.new_array import check_coordinates, lay_out
from lake_core.spark.errors import ArrayChanged, InvalidArraySpec, InvalidColumns, SparkJobFailed, UnknownCoordinates
from lake_core.spark.executor import batch_function, named_error, our_errors
from lake_core.spark.write import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lake_core.icechunk import DatasetRepository, Session
    from lake_core.spark.arrays.array_spec import ArraySpec


@dataclass(frozen=True, slots=True)
class ArrayWriteResult:
    """The result of a write to a session."""

    chunks: int
    """Chunks that were written."""
    cells: int
    """Cells that were written. This is the number of rows of the DataFrame."""
    bytes: int
    """The size of the written chunks, as they are stored."""


def write_array(
    df: DataFrame,
    session: Session | DatasetRepository,
    path: str,
    *,
    dims: Sequence[str] | None = None,
    value: str | None = None,
    create: ArraySpec | None = None,
) -> ArrayWriteResult:
    """Write each row to the cell of an array that has its coordinates. The DataFrame is evaluated once.

    Cells without a row keep their values. Values are encoded as by xarray: packed with the array's scale_factor and
    add_offset, null and NaN as its _FillValue. Times without a zone are UTC. The chunks become changes of the session.
    To make them visible, commit it, or publish the lake's session.

    Args:
        df: The rows, of classic Spark or of Connect.
        session: A writable session of a repository, or a repository in a session of a lake.
        path: The path of the array.
        dims: The dimensions of the array, which are columns of the DataFrame. The default is those of the array. To
            create an array, name them in the order that it shall have.
        value: The column of the values. The default is the column with the name of the array.
        create: The layout of the array, to create it if it does not exist. Its coordinates and the groups above are
            created, too. Coordinates that `create` does not name are collected from the DataFrame, which is then
            evaluated twice. If the array exists, its layout is kept, and `create` must name the coordinates that it
            has.

    Raises:
        ReadOnlySession: The session only reads.
        NodeNotFound: There is no such array, and `create` is not given.
        InvalidArraySpec: The array cannot be created.
        UnsupportedArray: Rows cannot be stored as cells of the array.
        InvalidColumns: The DataFrame lacks a column, or a column has the wrong type.
        InvalidCoordinates: A coordinate of the array is missing or occurs twice, or differs from that of `create`.
        UnknownCoordinates: Rows have coordinates that the array lacks.
        DuplicateCells: Two rows have the same cell.
        InvalidValues: A value does not fit the array.
        ArrayChanged: The array, or one of the chunks, was changed in the session in the meantime.
        MissingPackage: The array has codecs for which executors need the package zarr, and they lack it.
        SparkJobFailed: The job failed. After this error, as after all others, the session is unchanged.
    """
    opened = session_of(session)
    opened.check_writable()
    path = "/" + path.strip("/")
    group, name = split_path(path)
    new = None
    if isinstance(opened.node(path), ArrayNode):
        arrays = ArrayGroup(opened, group)
        array = arrays.variable(name)
        _check_existing(array, arrays, dims, create)
        columns = _columns(df, path, array.dimensions, value)
    elif create is None:
        raise NodeNotFound(f"the session has no array {path}: pass its dims, and create=ArraySpec(…) to create it")
    else:
        columns = _columns(df, path, _dimensions(path, dims), value)
        new = lay_out(df, opened, path, columns, create)
        arrays, array = new.group, new.variable
    selected = df.select(*map(quote_identifier, columns))
    types = arrow_schema(selected)
    _check_value(types.field(columns[-1]), array)
    indexes = tuple(
        coordinate_index(dimension, types.field(dimension.dimension).type) for dimension in arrays.coordinates(array)
    )
    if array.codec.needs_zarr:
        check_executors(df.sparkSession, array.path)
    stored = array.stored(opened)
    locator = CellLocator(indexes, array.node.shape, array.node.chunk_shape, array.encoding)
    writer = ChunkWriter(stored, opened.config.inline_threshold)
    rows = selected.toDF(*(f"c{number}" for number in range(len(columns))))
    located = rows.mapInArrow(batch_function(locator.locate), LOCATED_CELLS)
    # Only the number of a chunk decides which task writes it. So a repeated task gets the same chunks.
    chunks = (
        located.repartition("chunk")
        .sortWithinPartitions("chunk")
        .mapInArrow(batch_function(writer.write), WRITTEN_CHUNKS)
    )
    with our_errors():
        written = chunks.toArrow()
    _raise_errors(written, array)
    references = _references(written, array.node)
    if new is None:
        _check_unchanged(opened, array.node, stored.references, references)
    else:
        new.create(opened)
    if len(references):
        opened.set_references(array.path, references)
    return ArrayWriteResult(
        len(references), int(written["cells"].to_numpy().sum()), int(written["length"].to_numpy().sum())
    )


def _dimensions(path: str, dims: Sequence[str] | None) -> Sequence[str]:
    """Return the dimensions of an array that is created. Raises InvalidArraySpec if they are not given."""
    if dims is None or isinstance(dims, str):
        raise InvalidArraySpec(
            f"there is no array {path} yet: name the dimensions that it is created with, such as "
            "dims=['time', 'station']"
        )
    return dims


def _check_existing(
    array: ArrayVariable, arrays: ArrayGroup, dims: Sequence[str] | None, create: ArraySpec | None
) -> None:
    """Raise InvalidColumns or InvalidCoordinates if an array is not as the caller describes it."""
    if dims is not None and (isinstance(dims, str) or sorted(dims) != sorted(array.dimensions)):
        raise InvalidColumns(
            f"dims names {dims}, but the dimensions of {array.path} are {', '.join(array.dimensions)}: "
            "name each of them"
        )
    if create is not None:
        check_coordinates(array.path, create, array.dimensions, arrays.coordinate_variables(array.dimensions))


def _columns(df: DataFrame, path: str, dimensions: Sequence[str], value: str | None) -> list[str]:
    """Return the column of each dimension, in order, and then the column of the values.

    Raises InvalidColumns if the DataFrame lacks one of them.
    """
    columns = [*dimensions, split_path(path)[1] if value is None else value]
    for column in columns:
        if column not in df.columns:
            raise InvalidColumns(
                f"the DataFrame has no column {column!r}; its columns are {', '.join(df.columns)}. A write to "
                f"{path} needs a column with the name of each dimension, and one of values (value=)"
            )
    return columns


def _check_value(column: pa.Field, array: ArrayVariable) -> None:
    """Raise InvalidColumns if the values of a column have the wrong type for the array."""
    numbers = pa.types.is_integer(column.type) or (
        pa.types.is_floating(column.type) and array.encoding.decoded.kind == "f"
    )
    fits = numbers if pa.types.is_integer(array.type) or pa.types.is_floating(array.type) else column.type == array.type
    if not fits:
        raise InvalidColumns(
            f"the column {column.name!r} has the type {column.type}, "
            f"but the values of {array.path} are {array.type}: cast it"
        )


def _raise_errors(written: pa.Table, array: ArrayVariable) -> None:
    """Raise the error that executors report, if any."""
    unknown = written.filter(pc.greater(written["unknown"], 0))
    if len(unknown):
        count, examples = pc.sum(unknown["unknown"]).as_py(), unknown["error"][0].as_py()
        raise UnknownCoordinates(
            f"{count_of(count, 'row')} with coordinates that {array.path} lacks, such as {examples}: filter them, or "
            "extend the array first, by xarray's to_zarr with append_dim, or by resizing the arrays and writing the "
            "coordinates. Nothing was written to the array"
        )
    failed = written.filter(pc.is_valid(written["error"]))
    if len(failed):
        name, _, message = failed["error"][0].as_py().partition(": ")
        raise named_error(name, message)


def _references(written: pa.Table, node: ArrayNode) -> ChunkReferences:
    """Return the references of the chunks that executors have written."""
    written = written.combine_chunks()
    count = len(written)
    numbers = written["chunk"].to_numpy()
    if len(np.unique(numbers)) < count:
        raise SparkJobFailed(
            f"two tasks wrote the same chunk of {node.path}, "
            "which Spark's distribution of rows should prevent: write it again"
        )
    inline = written["data"].is_valid().to_numpy()
    data_length = np.where(inline, written["length"].to_numpy(), 0)
    no_id = bytes(OBJECT_ID_LENGTH)
    references = ChunkReferences(
        index=np.stack(np.unravel_index(numbers, node.grid)).astype(np.uint32),
        kind=np.where(inline, ReferenceKind.INLINE, ReferenceKind.NATIVE).astype(np.uint8),
        offset=np.zeros(count, np.uint64),
        length=np.where(inline, 0, written["length"].to_numpy()).astype(np.uint64),
        chunk_id=np.frombuffer(b"".join(written["chunk_id"].fill_null(no_id).to_pylist()), np.uint8).reshape(
            count, OBJECT_ID_LENGTH
        ),
        data_start=np.cumsum(data_length) - data_length,
        data_length=data_length,
        etag_start=np.zeros(count, np.int64),
        etag_length=np.full(count, -1, np.int64),
        last_modified=np.zeros(count, np.uint32),
        heap=b"".join(written["data"].drop_null().to_pylist()),
    )
    return sorted_references(references)


def _check_unchanged(session: Session, node: ArrayNode, before: ChunkReferences, written: ChunkReferences) -> None:
    """Raise ArrayChanged if the session now has another array, or other chunks where some were written."""
    session.check_writable()
    now = session.node(node.path)
    if not isinstance(now, ArrayNode) or (now.node_id, now.user_data) != (node.node_id, node.user_data):
        raise ArrayChanged(
            f"{node.path} was resized, replaced or deleted in the session while Spark wrote chunks of it: "
            "write them again"
        )
    if not _are_same(
        *(references.take(is_in(references.index, written.index)) for references in (before, session.references(now)))
    ):
        raise ArrayChanged(
            f"chunks of {node.path} were changed in the session while Spark wrote them: write them again"
        )


def _are_same(left: ChunkReferences, right: ChunkReferences) -> bool:
    """Return whether both refer to the same chunks. The positions of bytes in their heaps do not matter."""
    if any(
        not np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("index", "kind", "chunk_id", "offset", "length")
    ):
        return False
    return all(left[number] == right[number] for number in np.flatnonzero(left.kind != ReferenceKind.NATIVE).tolist())
