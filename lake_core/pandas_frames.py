"""Arrow tables as frames of pandas, without a rounded integer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def to_frame(rows: pa.Table) -> Any:
    """Return rows as a frame.

    pandas has no missing value in a column of `int64`. Arrow makes floats of such a column by default, which rounds
    integers beyond 2**53. Here it is a column of the nullable type, such as `Int64`, and a list or record with a
    missing integer holds Python integers. Columns of integers without a missing value have numpy's types.

    Every column of the rows is one of the frame, and the index is the default one: what pandas once noted in the rows'
    schema about an index is not asked, because the rows may be others, and more or fewer.
    """
    rows = rows.replace_schema_metadata(None)
    holed = [
        number for number, column in enumerate(rows.columns) if column.null_count and pa.types.is_integer(column.type)
    ]
    whole = rows.select([number for number in range(rows.num_columns) if number not in holed])
    frame = whole.to_pandas(integer_object_nulls=True)
    for number in holed:
        column = rows.column(number).to_pandas(types_mapper=_nullable)
        if not frame.columns.size:
            frame = frame.reindex(column.index)
        frame.insert(number, rows.column_names[number], column, allow_duplicates=True)
    return frame


def _nullable(kind: pa.DataType) -> Any:
    import pandas as pd  # type: ignore[import-untyped]

    return pd.api.types.pandas_dtype(str(kind).replace("u", "U").replace("int", "Int"))
