"""The encodings of a data file's columns: those that take the least time and space for its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake_core.delta.numpy_arrays import integers
from lake_core.delta.statistics import leaf_columns, leaf_values

if TYPE_CHECKING:
    from collections.abc import Iterator

_FEW_ROWS = 1 << 15
"""Below, a dictionary costs little, even where it does not pay."""
_SLICES, _SLICE_ROWS = 8, 512
"""The sample, in which neighbors stay neighbors."""
_REPEATS = 4
"""How often a value must occur, on average, for a dictionary to pay."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """The encodings of columns, by the path in Parquet."""

    dictionary: list[str] | bool
    """The columns that get a dictionary, or whether all do. Arrow ends it where it becomes too long."""
    deltas: dict[str, str]
    """The columns of whole numbers, dates and times, which are stored as packed differences."""


def encodings(rows: pa.Table, *, dictionary: bool | None = None) -> Encodings:
    """Choose the encodings for a file that begins with these rows.

    `dictionary` says whether columns get dictionaries, instead of a sample of each.
    """
    if dictionary:
        return Encodings(True, {})
    leaves = [leaf for child in rows.schema for leaf in _leaves(child.name, child.type)]
    # Arrow takes a name for the column `a.b` and for the field b of `a` alike.
    others = {path for path, kind in leaves if not _is_whole(kind)}
    deltas = {path: "DELTA_BINARY_PACKED" for path, kind in leaves if _is_whole(kind) and path not in others}
    if dictionary is False:
        return Encodings(False, deltas)
    distinct = _mostly_distinct(rows) if rows.num_rows >= _FEW_ROWS else set()
    return Encodings([path for path, _ in leaves if path not in deltas and path not in distinct], deltas)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns that Parquet has for a column of Arrow, with their types."""
    types = pa.types
    if types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _mostly_distinct(rows: pa.Table) -> set[str]:
    """Return the columns of floats, texts and bytes in which most values are different, by a sample."""
    starts = np.linspace(0, rows.num_rows - _SLICE_ROWS, _SLICES).astype(np.int64)
    sample = rows.take(integers((starts[:, None] + np.arange(_SLICE_ROWS)).ravel()))
    found = set()
    for path, kind in leaf_columns(list(rows.schema)):
        if pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
            values = leaf_values(sample, path).drop_null()
            repeated = len(values) - len(values.unique())
            # Of so many values, drawn from the expected number of them, this many are there already.
            expected = len(values) ** 2 / (2 * max(repeated, 1))
            if len(values) and expected * _REPEATS > rows.num_rows:
                found.add(".".join(path))
    return found
