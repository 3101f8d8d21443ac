"""Tables of the values of one type, by way of ZNG."""

from __future__ import annotations

import pyarrow as pa

from lake_core.pool.arrow.columns import read_columns
from lake_core.pool.arrow.table import from_table, to_table
from lake_core.pool.types import Type
from lake_core.pool.value_batch import ValueBatch
from lake_core.pool.zng.writer import ZngWriter


def read_tables(data: bytes) -> dict[Type, pa.Table]:
    """Return the values of ZNG streams, those of each type as a table."""
    arrays: dict[Type, list[pa.Array]] = {}
    for column in read_columns(data):
        arrays.setdefault(column.type, []).append(column.values)
    return {type: to_table(type, chunks) for type, chunks in arrays.items()}


def write_table(writer: ZngWriter, table: pa.Table) -> None:
    """Write the rows of a table as values."""
    type, arrays = from_table(table)
    for array in arrays:
        ValueBatch.of_column(type, array).write_to(writer)
