"""The row groups of a data file that may hold matching rows, by the statistics in its footer."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lake_core.arrow_scalar import scalar
from lake_core.delta.numpy_arrays import integers
from lake_core.delta.skipping import may_match_by_statistics
from lake_core.hybrid_calendar import HybridCalendar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from lake_core.expression import Column, Predicate

_MOST_DICTIONARY = 1 << 20
"""The bytes at which most writers end a dictionary."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file."""

    number: int
    first: int
    """The number of its first row in the file."""
    rows: int


def row_groups(metadata: pq.FileMetaData) -> list[RowGroup]:
    """List the row groups of a file."""
    groups: list[RowGroup] = []
    first = 0
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        groups.append(RowGroup(number, first, rows))
        first += rows
    return groups


def matching_row_groups(
    metadata: pq.FileMetaData, predicate: Predicate, physical_paths: Mapping[tuple[str, ...], tuple[str, ...]]
) -> list[RowGroup]:
    """List the row groups that may hold a row for which a predicate is true.

    Args:
        metadata: The footer of the file.
        predicate: The predicate, over columns of the table.
        physical_paths: The path that data files have for each column of the predicate. Others are in no file.
    """
    groups = row_groups(metadata)
    if len(groups) < 2 or HybridCalendar.of(metadata.metadata) is not None:
        # The statistics in the log have said it of the whole file. Bounds of the hybrid calendar are other days.
        return groups
    keep = may_match_by_statistics(_FooterStatistics(metadata, physical_paths), predicate, len(groups))
    return [group for group, may_match in zip(groups, keep, strict=True) if may_match]


def encoded_texts(metadata: pq.FileMetaData, group: RowGroup, names: Sequence[str]) -> list[str]:
    """List the columns of texts that are stored as indexes of a dictionary, as far as their size tells."""
    encoded = []
    asked = {(name,) for name in names}
    chunks = metadata.row_group(group.number)
    for number, path in enumerate(_stored_paths(metadata)):
        chunk = chunks.column(number)
        if (
            path in asked
            and chunk.physical_type == "BYTE_ARRAY"
            and str(metadata.schema.column(number).logical_type) == "String"
            and chunk.has_dictionary_page
            # Texts themselves would take more, apart from the dictionary.
            and chunk.total_uncompressed_size < 3 * group.rows + _MOST_DICTIONARY
        ):
            encoded.append(path[0])
    return encoded


def _stored_paths(metadata: pq.FileMetaData) -> list[tuple[str, ...]]:
    """Return the names from the top level down to each column that a file stores, in the footer's order.

    The footer's own paths are joined by dots, so they do not tell the column `a.b` from the field b of the struct `a`.
    """
    return [path for child in metadata.schema.to_arrow_schema() for path in _leaf_paths(child, ())]


def _leaf_paths(field: pa.Field, outer: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    path, kind = (*outer, field.name), field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_nested(kind):
        yield path
    for number in range(kind.num_fields):
        # What lists and maps hold has no path of fields.
        inside = path if pa.types.is_struct(kind) else (*path, "")
        yield from _leaf_paths(kind.field(number), inside)


class _FooterStatistics:
    """The statistics of columns in a footer, one value a row group."""

    def __init__(self, metadata: pq.FileMetaData, physical_paths: Mapping[tuple[str, ...], tuple[str, ...]]) -> None:
        self._metadata = metadata
        self._physical_paths = physical_paths
        self._numbers = {path: number for number, path in enumerate(_stored_paths(metadata))}

    def get(self, kind: str, column: Column) -> pa.Array | None:
        """Return `minValues`, `maxValues` or `nullCount` of a column; None if nothing is known."""
        path = self._physical_paths.get(column.path)
        number = None if path is None else self._numbers.get(path)
        if number is None:
            return None
        statistics = [self._metadata.row_group(group).column(number).statistics for group in self._groups]
        if kind == "nullCount":
            return _array(
                [each.null_count if each is not None and each.has_null_count else None for each in statistics]
            )
        name = "min" if kind == "minValues" else "max"
        values = []
        for each in statistics:
            try:
                value = getattr(each, name) if each is not None and each.has_min_max else None
                values.append(_bound(value, column.type))
            except (OverflowError, ValueError):
                values.append(scalar(None, column.type))
        return pa.concat_arrays([pa.repeat(value, 1) for value in values])

    def rows(self, column: Column) -> pa.Array:
        """Return the number of rows."""
        return _array([self._metadata.row_group(group).num_rows for group in self._groups])

    @property
    def _groups(self) -> range:
        return range(self._metadata.num_row_groups)


def _bound(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a bound as a value of the table's type, or null if the file's type is not a narrower one of its kind."""
    types = pa.types
    fits = (
        (types.is_integer(kind) and type(value) is int)
        or (types.is_floating(kind) and isinstance(value, float))
        or (types.is_string(kind) and isinstance(value, str))
        or (types.is_decimal(kind) and isinstance(value, Decimal))
        or (types.is_date(kind) and type(value) is dt.date)
        or (types.is_timestamp(kind) and type(value) is dt.datetime and (value.tzinfo is None) == (kind.tz is None))
    )
    return scalar(value if fits else None, kind)


def _array(values: list[int | None]) -> pa.Array:
    numbers = integers(np.array([0 if value is None else value for value in values], np.int64))
    known = integers(np.array([value is not None for value in values], np.int8)).cast(pa.bool_())
    return pa.compute.if_else(known, numbers, pa.nulls(1, pa.int64())[0])
