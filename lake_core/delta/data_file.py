"""Writing data files: Parquet, uniquely named, statistics gathered on the way.

Protocol sections: Data Files, Add File. Used in the driver for Arrow data; Spark's executors have their own copy of the
same rules in `lake_core.spark`, since they need not have this package.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake_core.delta import partition_value
from lake_core.delta.action import Metadata
from lake_core.delta.path import encode_path, partition_folder
from lake_core.delta.statistics import StatisticsCollector, indexed_columns
from lake_core.store import ObjectStore

TARGET_BYTES = 128 << 20
"""Uncompressed Arrow bytes after which a new file is begun."""

COMPRESSION = "zstd"
COMPRESSION_LEVEL = 3


@dataclass(frozen=True, slots=True)
class AddFile:
    """One data file as it goes into a commit."""

    path: str
    """As the log spells it: relative, percent-encoded."""
    partition_values: dict[str, str | None]
    size: int
    """Bytes."""
    modification_time: int
    """Milliseconds since the epoch."""
    stats: str
    """JSON text."""
    rows: int

    def to_json(self, *, data_change: bool = True) -> dict[str, object]:
        return {
            "path": self.path,
            "partitionValues": self.partition_values,
            "size": self.size,
            "modificationTime": self.modification_time,
            "dataChange": data_change,
            "stats": self.stats,
        }


def write_data_files(store: ObjectStore, data: pa.Table, metadata: Metadata, schema: pa.Schema, now: int) -> list[AddFile]:
    """Write rows that are already in the table's schema; nothing becomes visible by that.

    `now`: milliseconds since the epoch. A failure leaves at most unreferenced files.
    """
    written = []
    for values, part in _partitions(data, metadata.partition_columns):
        body = part.drop_columns(list(metadata.partition_columns)) if metadata.partition_columns else part
        for chunk in _chunks(body):
            written.append(_write_one(store, chunk, metadata, schema, values, now))
    return written


def _write_one(
    store: ObjectStore, data: pa.Table, metadata: Metadata, schema: pa.Schema, values: tuple[str | None, ...], now: int
) -> AddFile:
    statistics = StatisticsCollector(schema, metadata.partition_columns, indexed_columns(metadata.configuration))
    statistics.update(data)
    sink = pa.BufferOutputStream()
    # Field metadata stays in the log: a file would keep comments and rules that the table has changed since.
    plain = pa.schema([child.remove_metadata() for child in data.schema])
    pq.write_table(data.cast(plain), sink, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL)
    name = f"part-00000-{uuid.uuid4()}-c000.{COMPRESSION}.parquet"
    key = partition_folder(metadata.partition_columns, values) + name
    buffer = sink.getvalue()
    store.put(key, memoryview(buffer), unique=True)
    partition_values = dict(zip(metadata.partition_columns, values, strict=True))
    return AddFile(encode_path(key), partition_values, buffer.size, now, statistics.to_json(), data.num_rows)


def _chunks(data: pa.Table) -> Iterator[pa.Table]:
    if not data.num_rows:
        return
    rows = max(1, int(data.num_rows * TARGET_BYTES / max(data.nbytes, TARGET_BYTES)))
    for start in range(0, data.num_rows, rows):
        yield data.slice(start, rows)


def _partitions(data: pa.Table, partition_columns: Sequence[str]) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Rows by partition, with the partition values as the log's text; within a partition the rows keep their order."""
    if not data.num_rows:
        return
    if not partition_columns:
        yield (), data
        return
    texts = [partition_value.serialize(data[name].combine_chunks()) for name in partition_columns]
    # One integer a row that stands for its whole tuple of values.
    code = np.zeros(data.num_rows, dtype=np.int64)
    for text in texts:
        indices = text.dictionary_encode(null_encoding="encode").indices.to_numpy()
        code = np.unique(code * (int(indices.max()) + 1) + indices, return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = pa.array(order[start:stop])
        yield tuple(text[int(order[start])].as_py() for text in texts), data.take(rows)


def empty_strings_to_null(data: pa.Table, partition_columns: Sequence[str]) -> pa.Table:
    """Partition values '' as null, which is what they become in the log; so that checks see what readers will see."""
    for name in partition_columns:
        column = data[name]
        if pa.types.is_string(column.type):
            nulled = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
            data = data.set_column(data.schema.get_field_index(name), data.schema.field(name), nulled)
    return data
