"""Rows of an Arrow table as Python values to show, also where Python has no type for a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.variant_values import InvalidVariant, decoded, has_variants, json_text, json_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ShownText(str):
    """A value as text, because Python has no type for it: a variant as JSON, or a date after the year 9999."""

    __slots__ = ()


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dictionaries of Python values, and of `ShownText` where there are none."""
    columns = [_shown_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _shown_values(column: pa.ChunkedArray) -> Sequence[Any]:
    if has_variants(column.type):
        return [json_values(each, column.type, _variant) for each in python_values(column)]
    return python_values(column)


def python_values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return the values of a column as Python values, with `ShownText` where there are none. Variants are binaries."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        if pa.types.is_nested(column.type):
            return [_value(each) for each in column]
        return [None if each is None else ShownText(each) for each in column.cast(pa.string()).to_pylist()]
    return values


def _value(scalar: pa.Scalar) -> Any:
    """Return a value, and a text in the place of each part for which Python has no type."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        kind = scalar.type
        if pa.types.is_struct(kind):
            return {name: _value(each) for name, each in scalar.items()}
        if pa.types.is_map(kind):
            return [(_value(each["key"]), _value(each["value"])) for each in scalar.values]
        if pa.types.is_nested(kind):
            return [_value(each) for each in scalar.values]
        return ShownText(scalar.cast(pa.string()).as_py())


def _variant(value: Mapping[str, bytes]) -> ShownText:
    try:
        return ShownText(json_text(decoded(value["metadata"], value["value"])))
    except InvalidVariant as error:
        return ShownText(f"not a variant: {error}")
