"""pandas: whole frames in memory. A named index becomes columns. An index without names is dropped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lake_core.pandas_frames import to_frame
from lake_orch.errors import UnsupportedData
from lake_orch.tables.data.handler import TableData, TableSlice


class PandasFrames:
    """`pandas.DataFrame`."""

    supported_types = ("pandas.DataFrame",)

    def to_rows(self, value: Any) -> TableData:
        """Return a frame's columns, and the levels of an index with names.

        Raises UnsupportedData for names that are not text or not unique, and for columns of mixed objects.
        """
        names = list(value.columns)
        odd = next((name for name in names if not isinstance(name, str)), None)
        if odd is not None:
            raise UnsupportedData(
                f"a column of this pandas.DataFrame is called {odd!r}: column names are text, e.g. "
                "df.columns.astype(str)"
            )
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UnsupportedData(f"this pandas.DataFrame has several columns {twice!r}: rename all but one")
        levels = list(value.index.names)
        if any(level is not None for level in levels) and not all(
            isinstance(level, str) and level not in names for level in levels
        ):
            raise UnsupportedData(
                f"the index of this pandas frame has the levels {levels}, which cannot all become columns: "
                "give each a name of its own, or drop the index with df.reset_index(drop=True)"
            )
        try:
            rows = pa.Table.from_pandas(_with_maps(value), preserve_index=any(level is not None for level in levels))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UnsupportedData(
                f"this pandas.DataFrame has a column of mixed Python objects that has no one type: {error}. "
                "Convert it with astype(…)"
            ) from None
        return rows.replace_schema_metadata(None)

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Read the rows into a frame with the default index."""
        return to_frame(part.to_arrow())


def _with_maps(frame: Any) -> Any:
    """Return a frame whose columns of maps, which pandas holds as lists of pairs, are known to Arrow as maps."""
    import pandas as pd  # type: ignore[import-untyped]

    maps = {}
    for number, dtype in enumerate(frame.dtypes):
        if dtype.kind != "O":
            continue
        column = frame.iloc[:, number]
        first = next((item for item in column if item is not None), None)
        if not (
            isinstance(first, list) and first and all(isinstance(pair, tuple) and len(pair) == 2 for pair in first)
        ):
            continue
        pairs = [pair for item in column if item is not None for pair in item]
        kind = pa.map_(pa.array([key for key, _ in pairs]).type, pa.array([value for _, value in pairs]).type)
        maps[number] = pd.Series(pd.arrays.ArrowExtensionArray(pa.array(list(column), kind)), frame.index)
    if not maps:
        return frame
    copied = frame.copy(deep=False)
    for number, column in maps.items():
        copied.isetitem(number, column)
    return copied
