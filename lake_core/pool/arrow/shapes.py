"""The shapes of a stream: each distinct type of its values, how many have it, and one table of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lake_core.pool.arrow.bodies import buffer_of, read_uvarints, walk
from lake_core.pool.arrow.columns import read_columns, write_columns
from lake_core.pool.arrow.table import from_table, to_table
from lake_core.pool.types import Type
from lake_core.pool.zng.frame import Source
from lake_core.pool.zng.reader import read_payloads
from lake_core.pool.zng.writer import ZngWriter


@dataclass(frozen=True, slots=True)
class Shape:
    """A type of values.

    Attributes:
        type: The type.
        count: How many values have it.
    """

    type: Type
    count: int


def shapes(source: Source) -> list[Shape]:
    """Return each distinct type of the values of ZNG streams, in the order of their first values. The values are not decoded.

    Args:
        source: The bytes, or a file.

    Raises:
        InvalidZng: The bytes are damaged.
    """
    counts: dict[Type, int] = {}
    for types, payload in read_payloads(source):
        ids, _ = read_uvarints(buffer_of(payload), walk(payload, with_ids=True))
        distinct, firsts, numbers = np.unique(ids, return_index=True, return_counts=True)
        for position in np.argsort(firsts):
            type = types.lookup(int(distinct[position]))
            counts[type] = counts.get(type, 0) + int(numbers[position])
    return [Shape(type, count) for type, count in counts.items()]


def read_tables(source: Source) -> dict[Type, pa.Table]:
    """Return the values of ZNG streams, those of each type as a table.

    Args:
        source: The bytes, or a file.

    Raises:
        InvalidZng: The bytes are damaged.
    """
    arrays: dict[Type, list[pa.Array]] = {}
    for column in read_columns(source):
        arrays.setdefault(column.type, []).append(column.values)
    return {type: to_table(type, chunks) for type, chunks in arrays.items()}


def write_table(writer: ZngWriter, table: pa.Table) -> None:
    """Write the rows of a table as values. Each comes back as what it was read from.

    Args:
        writer: Where they go.
        table: The rows. Columns of other origin get the Zed type that is like their Arrow type.

    Raises:
        InvalidType: A column has no Zed type.
        InvalidValue: A value has no form in the type that the metadata states.
    """
    type, arrays = from_table(table)
    for array in arrays:
        write_columns(writer, type, array)
