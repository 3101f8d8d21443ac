"""Which data files a plain reader of Parquet would read as other rows than the table has.

The reader of this package matches columns regardless of case, and converts old types, calendars and nanoseconds.
Arrow's own does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lake_core.hybrid_calendar import HybridCalendar
from lake_core.parquet_rows import with_instants

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

BOUNDS_HOLD_IN: Final = b"lake.bounds-hold-in"
"""The key of a footer with the name of the data file, if its bounds hold for all values: columns with NaN have none.

Other writers leave NaN out of bounds, and some copy such keys to the files that they make of this one.
"""


def needs_care(metadata: pq.FileMetaData, key: str, file_schema: pa.Schema, columns: Sequence[pa.Field]) -> bool:
    """Return whether a file must not be left to Arrow's reader.

    Args:
        metadata: The footer of the file.
        key: The key of the file.
        file_schema: The schema of the file, with int96 read as microseconds.
        columns: The columns that are read, as the table has them.
    """
    if not _is_of_this_package(metadata, key):
        if HybridCalendar.of(metadata.metadata) is not None:
            return True
        if len(set(file_schema.names)) < len(file_schema.names):
            return True
        # Times in int96 are instants. Arrow reads them without a zone, and has no bounds of them.
        file_schema = with_instants(file_schema, metadata.schema)
    folded = {name.lower(): name for name in file_schema.names}
    for child in columns:
        name = folded.get(child.name.lower())
        # A column that the file lacks is null for every reader.
        if name is not None and (name != child.name or not _reads_as(file_schema.field(name).type, child.type)):
            return True
    return False


def _reads_as(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether Arrow reads values of a file's type as the same values of the table's type."""
    if stored == kind:
        return True
    types = pa.types
    if types.is_struct(kind):
        return (
            types.is_struct(stored)
            and [child.name for child in stored] == [child.name for child in kind]
            and all(_reads_as(old.type, new.type) for old, new in zip(stored, kind, strict=True))
        )
    if types.is_map(kind):
        return (
            types.is_map(stored)
            and _reads_as(stored.key_type, kind.key_type)
            and _reads_as(stored.item_type, kind.item_type)
        )
    if types.is_list(kind):
        return types.is_list(stored) and _reads_as(stored.value_type, kind.value_type)
    if types.is_timestamp(kind):
        # Arrow cannot compare the bounds of times without a zone with an instant.
        return types.is_timestamp(stored) and stored.unit in ("us", "ms") and stored.tz == kind.tz
    return False


def _is_of_this_package(metadata: pq.FileMetaData, key: str) -> bool:
    return bool((metadata.metadata or {}).get(BOUNDS_HOLD_IN) == key.rpartition("/")[2].encode())


def may_hide_nan(metadata: pq.FileMetaData, key: str) -> bool:
    """Return whether a footer has bounds of floating-point columns that may leave out rows with NaN."""
    if _is_of_this_package(metadata, key):
        return False
    floats = [
        number
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).physical_type in ("FLOAT", "DOUBLE")
    ]
    return any(
        (statistics := metadata.row_group(group).column(number).statistics) is not None and statistics.has_min_max
        for group in range(metadata.num_row_groups)
        for number in floats
    )
