"""Whole numbers in files of text that Arrow reads as other floats.

A column is one of floats if its schema says so. Without a schema it is one if it has a fraction, or a whole number
beyond 64 bits.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.dataset as ds

_EXACT = {pa.float64(): float(1 << 53), pa.float32(): float(1 << 24), pa.float16(): float(1 << 11)}
"""From this number on, different integers are the same float of a type."""
_NEXT = re.compile(r"\S")
_WHOLE = r"^[+-]?[0-9]{4,}$"


def check_csv(files: ds.FileSystemDataset, rows: pa.Table) -> None:
    """Raise ArrowInvalid if rows of CSV files have floats that are other numbers than the whole ones in the files."""
    import pyarrow.dataset as ds

    large = {path: kind for path, kind in _large_floats(rows) if path in rows.column_names}
    if not large:
        return
    schema = pa.schema([child.with_type(pa.string()) if child.name in large else child for child in files.schema])
    texts = ds.dataset(files.files, schema=schema, format=files.format, filesystem=files.filesystem)
    for name, column in zip(large, texts.to_table([*large]).columns, strict=True):
        whole = column.filter(pc.match_substring_regex(column, _WHOLE)).unique()
        _check(name, large[name], map(int, whole.to_pylist()))


def check_json(text: bytes, rows: pa.Table) -> None:
    """Raise ArrowInvalid if rows of JSON text have floats that are other numbers than the whole ones in the text."""
    large = dict(_large_floats(rows))
    if not large:
        return
    document, decoder = text.decode(), json.JSONDecoder()
    position = 0
    while (start := _NEXT.search(document, position)) is not None:
        record, position = decoder.raw_decode(document, start.start())
        for path, number in _whole_numbers(record, ""):
            if path in large:
                _check(path, large[path], [number])


def _large_floats(rows: pa.Table) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the paths and types of the floats of which one is so large that whole numbers are rounded."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for chunk in column.chunks:
            yield from _large_leaves(chunk, name)


def _large_leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.DataType]]:
    kind = array.type
    if pa.types.is_struct(kind):
        for child, values in zip(kind, array.flatten(), strict=True):
            yield from _large_leaves(values, f"{path}.{child.name}")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _large_leaves(array.flatten(), f"{path}.element")
    elif kind in _EXACT and pc.any(pc.greater_equal(pc.abs(array.cast(pa.float64())), _EXACT[kind])).as_py():
        yield path, kind


def _whole_numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _whole_numbers(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from _whole_numbers(item, f"{path}.element")
    elif isinstance(value, int):
        yield path, value


def _check(path: str, kind: pa.DataType, numbers: Iterable[int]) -> None:
    to_float = kind.to_pandas_dtype()
    for number in numbers:
        if abs(number) >= 1 << 1023 or not np.isfinite(rounded := to_float(number)) or int(rounded) != number:
            raise pa.ArrowInvalid(
                f"column {path!r} has {number}, which would be rounded as a float, as the column is one of {kind}, or "
                "has fractions or numbers of more than 64 bits"
            )
