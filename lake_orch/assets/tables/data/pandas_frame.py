"""pandas: whole frames in memory. A named index becomes columns. An index without names is dropped."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lake_core.nested_arrays import leaf_types
from lake_core.pandas_frames import to_frame
from lake_orch.assets.tables.data.handler import TableData, TableSlice
from lake_orch.errors import UnsupportedData


class PandasFrames:
    """`pandas.DataFrame`."""

    supported_types = ("pandas.DataFrame",)

    def to_rows(self, value: Any) -> TableData:
        """Return a frame's columns, and the levels of an index with names.

        Raises UnsupportedData for names that are not text or not unique, for columns of mixed objects, and for values
        that Arrow has no type for.
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
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:  # Arrow's, and Python's own
            raise UnsupportedData(
                "this pandas.DataFrame has a column of mixed Python objects that has no one type, or values that Arrow "
                f"has no type for: {error}. Convert it with astype(…)"
            ) from None
        _check_moments(value, rows.schema)
        return rows.replace_schema_metadata(None)

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Read the rows into a frame with the default index."""
        return to_frame(part.to_arrow())


def _check_moments(frame: Any, rows: pa.Schema) -> None:
    """Raise UnsupportedData for Python objects that are dates beside times, or times with a zone beside ones without.

    Arrow would cut the times to dates, or drop or assume the zone.
    """
    for number, dtype in enumerate(frame.dtypes):
        name = frame.columns[number]
        if dtype.kind != "O" or not any(map(pa.types.is_temporal, leaf_types(rows.field(name).type))):
            continue
        kinds: dict[str, set[str]] = {}
        for item in frame.iloc[:, number]:
            for path, kind in _moments(item, name):
                kinds.setdefault(path, set()).add(kind)
        for path, found in kinds.items():
            if len(found) > 1:
                raise UnsupportedData(
                    f"column {path!r} of this pandas.DataFrame mixes {' and '.join(sorted(found))}: "
                    "make them one kind, e.g. with pd.to_datetime(column, utc=True)"
                )


def _moments(item: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the kinds of the dates and times in a Python object, each with where it is."""
    if isinstance(item, dt.datetime):
        if item == item:  # not NaT
            yield path, "times without a zone" if item.tzinfo is None else "times with a zone"
    elif isinstance(item, dt.date):
        yield path, "dates"
    elif isinstance(item, Mapping):
        for key, value in item.items():
            yield from _moments(value, f"{path}.{key}")
    elif isinstance(item, list | tuple | set | frozenset) or getattr(getattr(item, "dtype", None), "kind", "") == "O":
        for value in item:
            yield from _moments(value, f"{path}.element")


def _with_maps(frame: Any) -> Any:
    """Return a frame whose columns of maps, which pandas holds as lists of pairs, are known to Arrow as maps."""
    import pandas as pd  # type: ignore[import-untyped]

    maps = {}
    for number, dtype in enumerate(frame.dtypes):
        if dtype.kind != "O":
            continue
        column = frame.iloc[:, number]
        first = next((item for item in column if item is not None and not _is_empty(item)), None)
        if first is None or not _is_map(first) or not all(item is None or _is_map(item) for item in column):
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


def _is_empty(item: Any) -> bool:
    return isinstance(item, list) and not item


def _is_map(item: Any) -> bool:
    """Return whether an object may be a map: pairs of different keys. Pairs of floats are points."""
    if not isinstance(item, list) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in item):
        return False
    keys = [key for key, _ in item]
    return not any(isinstance(key, float | list | dict) for key in keys) and len(set(keys)) == len(keys)
