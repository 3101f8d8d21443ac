"""Writing data files: Parquet files with unique names, whose statistics are collected while they are written.

Protocol sections: Data Files, Change Data Files, Add File, Add CDC File.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core import runtime
from lake_core.delta import partition_value
from lake_core.delta.clustering import PROVIDER
from lake_core.delta.conform import conform_out, relabelled, stored_schema
from lake_core.delta.encodings import encodings
from lake_core.delta.file_care import BOUNDS_HOLD_IN
from lake_core.delta.file_layout import PLAIN, FileLayout
from lake_core.delta.file_name import CHANGES_FOLDER, new_name
from lake_core.delta.numpy_arrays import empty_table
from lake_core.delta.ordered_rows import in_order
from lake_core.delta.parquet_options import ParquetOptions
from lake_core.delta.path import encode_path, partition_folder
from lake_core.delta.row_tracking import materialized_field, materialized_names
from lake_core.delta.statistics import ColumnPath, Leaf, StatisticsCollector, indexed_leaves, leaf_columns, leaf_values
from lake_core.delta.variant_shredding import ShreddedColumns
from lake_core.variant_values import is_variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
    from concurrent.futures import Executor, Future

    from lake_core.delta.action import Metadata
    from lake_core.store import ObjectStore

TARGET_BYTES = 128 << 20
"""The number of uncompressed Arrow bytes after which a new file is begun."""

ROW_GROUP_BYTES = 64 << 20
"""Uncompressed Arrow bytes of a row group in a file that is written in pieces."""

HELD_BYTES = 256 << 20
"""Uncompressed Arrow bytes that a writer buffers over all partitions before it writes the largest one."""

_WORTH_A_THREAD = 8 << 20
_TOGETHER_BYTES = 64 << 20
"""Uncompressed Arrow bytes of small files that are put into the store together."""
_WRITERS = 8
_MANY_FILES = 4
_MANY_TUPLES = 1 << 40

CHANGE_TYPE = "_change_type"
"""The column of change data with the kind of a row's change."""


@dataclass(frozen=True, slots=True)
class AddFile:
    """One data file as it goes into a commit."""

    path: str
    """The path as in the log: relative, percent-encoded."""
    partition_values: dict[str, str | None]
    size: int
    """Bytes."""
    modification_time: int
    """Milliseconds since the epoch."""
    stats: str
    """JSON text."""
    rows: int
    clustering: tuple[tuple[str, str], ...] = ()
    """The tags of a file that a clustered table's rows were sorted into; see `clustering`."""

    def to_json(self, *, data_change: bool = True) -> dict[str, object]:
        """Return the body of the file's `add` action."""
        clustered = {"tags": dict(self.clustering), "clusteringProvider": PROVIDER} if self.clustering else {}
        return {
            "path": self.path,
            "partitionValues": self.partition_values,
            "size": self.size,
            "modificationTime": self.modification_time,
            "dataChange": data_change,
            "stats": self.stats,
        } | clustered

    def to_change_json(self) -> dict[str, object]:
        """Return the file as a `cdc` action."""
        return {"path": self.path, "partitionValues": self.partition_values, "size": self.size, "dataChange": False}


class DataFileWriter:
    """Writes rows of one table to data files, and buffers the rows of each partition until they fill a file.

    `store` is at the table's root. `now` is in milliseconds since the epoch. `target` is the number of uncompressed
    Arrow bytes per file. With `changes`, the rows are change data, with their kind in a last column `_change_type`.
    `threads` encode large files concurrently. `layout`: how the files hold the columns.
    `options`: how files are encoded, by default as the table's properties say. Files are not visible until they are
    committed, so a failure leaves at most unreferenced files. Runs in the driver and in Spark's executors.
    """

    def __init__(
        self,
        store: ObjectStore,
        metadata: Metadata,
        now: int,
        *,
        target: int = TARGET_BYTES,
        changes: bool = False,
        threads: int = 0,
        layout: FileLayout = PLAIN,
        options: ParquetOptions | None = None,
    ) -> None:
        self._store, self._now, self._target = store, now, target
        self._folder = CHANGES_FOLDER if changes else ""
        self._partition_columns = metadata.partition_columns
        self._partition_keys = tuple(metadata.partition_keys.values())
        mapping = metadata.column_mapping
        self._left_out = [] if layout.with_partitions else list(metadata.partition_columns)
        """The columns that the files do not hold."""
        self._physical = mapping.data_file_schema(
            [name for name in metadata.schema.names if name not in self._left_out]
        )
        if changes:
            self._physical = self._physical.append(pa.field(CHANGE_TYPE, pa.string()))
        leaves = (
            [] if changes else indexed_leaves(metadata.arrow_schema, metadata.partition_columns, metadata.configuration)
        )
        self._options = options or ParquetOptions.tolerant(metadata.configuration)
        self._shreds = (
            layout.shredded and not changes and any(is_variant(child.type) for child in metadata.arrow_schema)
        )
        self._materialized = {} if changes else materialized_names(metadata)
        self._indexed = [(mapping.physical_path(path), kind) for path, kind in leaves if not pa.types.is_null(kind)]
        self._held: dict[tuple[str | None, ...], list[pa.Table]] = {}
        self._bytes: dict[tuple[str | None, ...], int] = {}
        self._nan_columns: set[ColumnPath] = set()
        """The columns of floats that hold a NaN in any of the rows so far."""
        self._written: list[AddFile] = []
        self._threads = threads
        self._pool: Executor | None = None
        self._pending: deque[Future[AddFile]] = deque()
        self._encoded: list[_OpenFile] = []
        """Small files that are to be put into the store."""
        self._encoded_bytes = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows in the table's schema (with `_change_type`, for change data), and their ids if they have any."""
        keys, stored = rows.select(self._partition_columns), self._stored(rows)
        self._nan_columns |= _with_nan(stored, _floats(stored.schema))
        for values, part in _partitions(keys, stored):
            self._held.setdefault(values, []).append(part)
            self._bytes[values] = self._bytes.get(values, 0) + part.nbytes
            if self._bytes[values] >= self._target:
                self._flush(values)
        excess = sum(self._bytes.values()) - HELD_BYTES
        largest_first = sorted(self._bytes, key=self._bytes.__getitem__, reverse=True) if excess > 0 else []
        for values in largest_first:
            if excess <= 0:
                break
            excess -= self._bytes[values]
            self._flush(values)

    def finish(self) -> list[AddFile]:
        """Write the buffered rows, and return all files written."""
        for values in list(self._held):
            self._flush(values)
        self._put_encoded()
        while self._pending:
            self._written.append(self._pending.popleft().result())
        self.close()
        return self._written

    def close(self) -> None:
        """Close open files, also after a failure."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _flush(self, values: tuple[str | None, ...]) -> None:
        rows = pa.concat_tables(self._held.pop(values))
        size = self._bytes.pop(values)
        pieces = max(1, round(size / self._target))
        step = -(-rows.num_rows // pieces)
        for start in range(0, rows.num_rows, step):
            self._write_soon(rows.slice(start, step), values)

    def _write_soon(self, rows: pa.Table, values: tuple[str | None, ...]) -> None:
        size = rows.nbytes
        if not self._threads:
            self._written.append(self._write(rows, values))
            return
        if size < _WORTH_A_THREAD:
            # Encoding a small file is mostly Python, which threads only contend for. They put such files together.
            self._encoded.append(self._encode(rows, values))
            self._encoded_bytes += size
            if self._encoded_bytes >= _TOGETHER_BYTES:
                self._put_encoded()
            return
        self._pending.append(self._executor().submit(partial(self._write, rows, values)))
        while len(self._pending) > self._threads:
            self._written.append(self._pending.popleft().result())

    def _put_encoded(self) -> None:
        files, self._encoded, self._encoded_bytes = self._encoded, [], 0
        put = self._executor().map if len(files) >= _MANY_FILES else map
        self._written += put(_OpenFile.close, files)

    def _executor(self) -> Executor:
        self._pool = self._pool or runtime.thread_pool(_WRITERS)
        return self._pool

    def _write(self, rows: pa.Table, values: tuple[str | None, ...]) -> AddFile:
        return self._encode(rows, values).close()

    def _encode(self, rows: pa.Table, values: tuple[str | None, ...]) -> _OpenFile:
        holding = _with_nan(rows, self._nan_columns)
        file = self._open(values, rows.schema, _bounded(rows.schema, holding) if holding else True)
        file.write(rows, holding)
        file.encode()
        return file

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Return rows as files have them: under physical names, and the ids that they have last."""
        ids = [materialized_field(key, name) for key, name in self._materialized.items() if key in rows.column_names]
        schema = pa.schema([*self._physical, *ids]) if ids else self._physical
        written = stored_schema(schema)
        rows = relabelled(rows.drop_columns(self._left_out), schema)
        return rows if written is schema else conform_out(rows, written)

    def write_one(self, batches: Iterable[pa.Table], values: Mapping[str, str | None]) -> list[AddFile]:
        """Write rows of one partition to one file, however many they are. Without rows, write no file.

        `values` are the partition values as in the log.
        """
        file: _OpenFile | None = None
        held: list[pa.Table] = []
        held_bytes = 0
        for rows in batches:
            part = self._stored(rows)
            bounded = _bounded(part.schema, _floats(part.schema))  # a NaN may come when it is too late
            file = file or self._open(tuple(values[key] for key in self._partition_keys), part.schema, bounded)
            held.append(part)
            held_bytes += part.nbytes
            if held_bytes >= ROW_GROUP_BYTES:
                file.write(pa.concat_tables(held))
                held, held_bytes = [], 0
        if file is not None and held:
            file.write(pa.concat_tables(held))
        return [file.close()] if file is not None and file.rows else []

    def _open(self, values: tuple[str | None, ...], schema: pa.Schema, bounded: bool | list[str]) -> _OpenFile:
        name = new_name(self._now, changes=bool(self._folder), compression=self._options.suffix)
        key = self._folder + partition_folder(self._partition_keys, values) + name
        partition_values = dict(zip(self._partition_keys, values, strict=True))
        return _OpenFile(
            self._store, key, partition_values, schema, self._indexed, bounded, self._now, self._options, self._shreds
        )


class _OpenFile:
    """A data file that is written by row groups. It is put into the store when it is closed."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        partition_values: dict[str, str | None],
        schema: pa.Schema,
        leaves: Sequence[Leaf],
        bounded: bool | list[str],
        now: int,
        options: ParquetOptions,
        shreds: bool,
    ) -> None:
        self._store, self._key, self._partition_values, self._now = store, key, partition_values, now
        self._options, self._shreds = options, shreds
        self._statistics = StatisticsCollector(leaves)
        self._sink = pa.BufferOutputStream()
        self._schema, self._bounded = schema, bounded
        self._writer: pq.ParquetWriter | None = None
        self._columns: ShreddedColumns | None = None

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return the writer, whose encodings are those for the first rows."""
        if self._writer is None:
            options, chosen = self._options, encodings(rows, dictionary=self._options.dictionary)
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=options.codec,
                compression_level=options.level,
                use_dictionary=chosen.dictionary,
                column_encoding=chosen.deltas or None,
                write_page_checksum=True,
                write_statistics=self._bounded,
            )
            self._writer.add_key_value_metadata({BOUNDS_HOLD_IN: self._key.rpartition("/")[2].encode()})
        return self._writer

    @property
    def rows(self) -> int:
        return self._statistics.rows

    def write(self, rows: pa.Table, holding: Set[ColumnPath] | None = None) -> None:
        """Write rows. `holding`: the columns with a NaN, if that is known."""
        self._statistics.update(rows, holding)
        if self._shreds:
            rows = self._shredded(rows)
        self._opened(rows).write_table(rows, row_group_size=self._options.group_rows)

    def _shredded(self, rows: pa.Table) -> pa.Table:
        """Return rows with their variants as the file holds them, which the first rows decide."""
        if self._columns is None:
            self._columns = ShreddedColumns.of(rows)
            schema = self._columns.schema(self._schema)
            unbounded = {*_bounded(self._schema, ())} - {*(self._bounded or ())} if self._bounded is not True else {}
            # The bounds in a footer ignore NaN, which nobody has looked for in the variants.
            floats = [path for path in _floats(schema) if path[0] in self._columns.levels]
            self._bounded = [name for name in _bounded(schema, floats) if name not in unbounded]
            self._schema = schema
        return self._columns.shred(rows)

    def encode(self) -> None:
        """Encode the footer, after which no rows are written."""
        (self._writer or self._opened(empty_table(self._schema))).close()

    def close(self) -> AddFile:
        """Put the file into the store."""
        self.encode()  # does nothing the second time
        body = self._sink.getvalue()
        # The store may have normalized the name, and the log must have the name in the store.
        key = self._store.put(self._key, memoryview(body), unique=True).key
        statistics = self._statistics
        return AddFile(
            encode_path(key), self._partition_values, body.size, self._now, statistics.to_json(), statistics.rows
        )


def change_rows(rows: pa.Table, kind: str) -> pa.Table:
    """Return rows as change data of one kind."""
    return rows.append_column(pa.field(CHANGE_TYPE, pa.string()), pa.repeat(kind, rows.num_rows))


def _with_nan(rows: pa.Table, floats: Iterable[ColumnPath]) -> set[ColumnPath]:
    """Return those of the columns of floats that hold a NaN."""
    return {path for path in floats if pc.any(pc.is_nan(leaf_values(rows, path))).as_py()}


def _floats(schema: pa.Schema) -> list[ColumnPath]:
    return [path for path, kind in leaf_columns(list(schema)) if pa.types.is_floating(kind)]


def _bounded(schema: pa.Schema, holding: Iterable[ColumnPath]) -> list[str]:
    """Return the Parquet columns that get statistics: those that hold no NaN.

    The bounds in a Parquet footer ignore NaN. For Spark, NaN is above every number, so Spark would skip row groups that
    have matching rows.
    """
    # Arrow takes a name for the column `a.b` and for the field b of `a` alike.
    left_out = {".".join(path) for path in holding}
    names = [".".join(path) for path, kind in leaf_columns(list(schema)) if not pa.types.is_nested(kind)]
    return [name for name in names if name not in left_out]


def _partitions(keys: pa.Table, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield rows by partition, with partition values as the log's text; rows keep their order within a partition.

    `keys` are the partition columns. A partition with many bytes comes in several parts.
    """
    if not rows.num_rows:
        return
    if not keys.num_columns:
        yield (), rows
        return
    # One integer per row that represents its whole tuple of values.
    code, size, columns = np.zeros(rows.num_rows, dtype=np.int64), 1, []
    for values in keys.columns:
        indices, texts = _codes(values.combine_chunks())
        if size * len(texts) >= _MANY_TUPLES:
            code = np.unique(code, return_inverse=True)[1]
            size = int(code.max()) + 1
        code, size = code * len(texts) + indices, size * len(texts)
        columns.append((indices, texts))
    # Few distinct numbers in a narrow type are sorted by their digits.
    code = code.astype(np.uint16) if size <= 1 << 16 else code
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)]
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        first, last = int(order[start]), int(order[stop - 1])
        texts_of_part = tuple(texts[indices[first]] for indices, texts in columns)
        # Contiguous rows need no copy, but a slice of a few rows would keep all the others in memory.
        whole = last - first == stop - start - 1 and 2 * (stop - start) >= rows.num_rows
        parts = [rows.slice(first, stop - start)] if whole else in_order(rows, order[start:stop])
        yield from ((texts_of_part, part) for part in parts)


def _codes(values: pa.Array) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    """Return the index of each value's text, and the distinct texts."""
    encoded = values.dictionary_encode(null_encoding="encode")
    texts = partition_value.serialize(encoded.dictionary).to_pylist()
    distinct = list(dict.fromkeys(texts))  # values of one text, such as null and '', are one
    number = {text: index for index, text in enumerate(distinct)}
    return np.array([number[text] for text in texts], dtype=np.int64)[encoded.indices.to_numpy()], distinct
