"""Whole numbers in files of text that Arrow, which infers the types of columns, reads as other floats.

A column is one of floats if it has a fraction, or a whole number beyond 64 bits.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.dataset as ds

_EXACT = float(1 << 53)
"""From this number on, different integers are the same float."""
_NEXT = re.compile(r"\S")
_WHOLE = r"^[+-]?[0-9]{16,}$"


def check_csv(files: ds.FileSystemDataset, rows: pa.Table) -> None:
    """Raise ArrowInvalid if rows of CSV files, whose types were inferred, have floats instead of whole numbers."""
    import pyarrow.dataset as ds

    names = [path for path in _large_floats(rows) if path in rows.column_names]
    if not names:
        return
    schema = pa.schema([child.with_type(pa.string()) if child.name in names else child for child in files.schema])
    texts = ds.dataset(files.files, schema=schema, format=files.format, filesystem=files.filesystem)
    for name, column in zip(names, texts.to_table(names).columns, strict=True):
        whole = column.filter(pc.match_substring_regex(column, _WHOLE)).unique()
        _check(name, map(int, whole.to_pylist()))


def check_json(text: bytes, rows: pa.Table) -> None:
    """Raise ArrowInvalid if the rows of JSON text, whose types were inferred, have floats instead of whole numbers."""
    large = set(_large_floats(rows))
    if not large:
        return
    document, decoder = text.decode(), json.JSONDecoder()
    position = 0
    while (start := _NEXT.search(document, position)) is not None:
        record, position = decoder.raw_decode(document, start.start())
        for path, number in _whole_numbers(record, ""):
            if path in large:
                _check(path, [number])


def _large_floats(rows: pa.Table) -> Iterator[str]:
    """Yield the paths of the floats of which one is so large that whole numbers are rounded."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for chunk in column.chunks:
            yield from _large_leaves(chunk, name)


def _large_leaves(array: pa.Array, path: str) -> Iterator[str]:
    kind = array.type
    if pa.types.is_struct(kind):
        for child, values in zip(kind, array.flatten(), strict=True):
            yield from _large_leaves(values, f"{path}.{child.name}")
    elif pa.types.is_list(kind):
        yield from _large_leaves(array.flatten(), f"{path}.element")
    elif pa.types.is_float64(kind) and pc.any(pc.greater_equal(pc.abs(array), _EXACT)).as_py():
        yield path


def _whole_numbers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _whole_numbers(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from _whole_numbers(item, f"{path}.element")
    elif isinstance(value, int):
        yield path, value


def _check(path: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        if abs(number) >= 1 << 1023 or int(float(number)) != number:
            raise pa.ArrowInvalid(
                f"column {path!r} has {number} beside fractions or numbers of more than 64 bits, and would be rounded "
                "as a float"
            )
