"""Rows in memory whose types differ from the table's, but whose values fit: no rows at all, and whole floats.

pandas turns integers into floats if one is missing, and gives the columns of a frame without rows any type.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import scalar
from lake_core.delta.errors import SchemaMismatch


def fit_rows(rows: pa.Table, table: pa.Schema) -> pa.Table:
    """Return rows in which such columns have the types of the table's columns of the same names.

    Without rows, every column fits. Floats fit a column of integers if all of them are whole, or missing (null or NaN),
    and so small that they are exact. Raises SchemaMismatch for others.
    """
    types = {child.name.lower(): child.type for child in table}
    for index, child in enumerate(rows.schema):
        kind = types.get(child.name.lower())
        if kind is None or kind == child.type:
            continue
        if not rows.num_rows:
            column = pa.chunked_array([pa.nulls(0, kind)])
        elif pa.types.is_floating(child.type) and pa.types.is_integer(kind):
            column = _whole(rows.column(index), kind, child.name)
        else:
            continue
        rows = rows.set_column(index, child.with_type(kind), column)
    return rows


def _whole(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    floats = column.cast(pa.float64())
    floats = pc.if_else(pc.is_nan(floats), scalar(None, pa.float64()), floats)
    # From this number on, different integers are the same float.
    exact = float(1 << {16: 11, 32: 24, 64: 53}[column.type.bit_width])
    end = float(1 << kind.bit_width - 1)
    is_whole = pc.equal(pc.floor(floats), floats)
    is_inside = pc.and_(pc.greater_equal(floats, -end), pc.less(floats, end))
    refused = floats.filter(pc.invert(pc.and_(pc.and_(is_whole, is_inside), pc.less(pc.abs(floats), exact))))
    if len(refused):
        raise SchemaMismatch(
            f"column {name!r} is {column.type} in the data and {kind} in the table, and {refused[0]} is no whole "
            f"number that both hold exactly. Cast the column before writing, in pandas with "
            f"df[{name!r}].astype({str(kind).capitalize()!r})"
        )
    return floats.cast(kind)
