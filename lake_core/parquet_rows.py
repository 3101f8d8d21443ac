"""Rows of Parquet files of any writer, with the values that Spark reads.

Int96 is read as microseconds, because nanoseconds would wrap around outside of the years 1677 to 2262, and as an
instant, which it is though the file does not say so. Old dates and times are converted from the hybrid calendar.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake_core.hybrid_calendar import HybridCalendar, int96_leaves
from lake_core.nested_arrays import map_leaf_types

if TYPE_CHECKING:
    from collections.abc import Iterator

INT96_UNIT = "us"
_INSTANT = pa.timestamp(INT96_UNIT, "UTC")


def stream_parquet(source: Any, rows: int = 1 << 16) -> pa.RecordBatchReader:
    """Return the rows of a Parquet file as a stream of batches. `source` is a path or an open file."""
    file = pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT)
    schema = with_instants(file.schema_arrow, file.schema)
    calendar = HybridCalendar.of(file.metadata.metadata)

    def batches() -> Iterator[pa.RecordBatch]:
        with file:
            for batch in file.iter_batches(rows):
                table = pa.Table.from_batches([batch])
                if calendar is not None:
                    table = calendar.in_gregorian(table, file.schema)
                yield from table.cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def is_read_by_arrow(metadata: pq.FileMetaData) -> bool:
    """Return whether Arrow's own reader, which reads int96 as nanoseconds, reads the same values."""
    schema = metadata.schema
    has_int96 = any(schema.column(number).physical_type == "INT96" for number in range(metadata.num_columns))
    return not has_int96 and HybridCalendar.of(metadata.metadata) is None


def with_instants(rows: pa.Schema, stored: pq.ParquetSchema) -> pa.Schema:
    """Return the schema of a file with a zone for its times in int96, at any level."""
    leaves = int96_leaves(stored)

    def of_leaf(int96: Iterator[bool], kind: pa.DataType) -> pa.DataType:
        return _INSTANT if next(int96) else kind

    return pa.schema(
        [child.with_type(map_leaf_types(child.type, partial(of_leaf, iter(leaves[child.name])))) for child in rows]
    )
