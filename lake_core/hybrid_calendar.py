"""Dates and times that Spark stored by the hybrid calendar: Julian before 1582-10-15, Gregorian since.

Spark 2, Hive, and Spark 3 and later with the rebase mode LEGACY store 1001-01-01 as the number of the day that has this
name in the Julian calendar. Parquet and Delta mean the day of this name in the proleptic Gregorian calendar, which is
another number. The footer of a file tells which calendar its numbers follow. Spark converts them when it reads, so that
every date keeps its name, and so does this module:

- `org.apache.spark.version` before 3.0.0 (for int96: before 3.1.0), or the key `org.apache.spark.legacyDateTime`
  (`org.apache.spark.legacyINT96`) beside any version: the hybrid calendar.
- No version: the proleptic Gregorian calendar, as the format says.
- `org.apache.spark.timeZone`: the zone in which times had their names. Without it: UTC.

Times before 1900 are also converted because of their zone: Java's older classes, which the hybrid calendar came with,
know only a zone's standard offset then, and the newer ones its local mean time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.errors import LakeError
from lake_core.nested_arrays import leaf_types, map_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow.parquet as pq

Integers = npt.NDArray[np.int64]

_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_FIRST_GREGORIAN_DAY = -141_427
"""1582-10-15 in days since 1970-01-01."""
_EPOCH_JULIAN_DAY = 2_440_588
_DAY = 86_400_000_000
_SINCE_1900 = -2_208_988_800_000_000
"""The first microsecond from which both calendars and all offsets agree."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?")
_IN_UTC = ("Z", "UTC", "GMT", "UT", "Etc/UTC")


class UnknownTimeZone(LakeError):
    """A file has times that only a zone that is not known here tells."""


@dataclass(frozen=True, slots=True)
class HybridCalendar:
    """The hybrid calendar as a file uses it."""

    dates: bool
    """Whether dates follow it, and times that are stored as 64-bit integers."""
    int96: bool
    """Whether times that are stored as int96 follow it."""
    zone: str

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None) -> HybridCalendar | None:
        """Return the hybrid calendar of a file with this key-value metadata, or None if it does not use it."""
        keys = metadata or {}
        version = keys.get(_VERSION)
        if version is None:
            return None
        numbers = tuple(int(number) for number in re.findall(rb"[0-9]+", version)[:2])
        dates, int96 = numbers < (3, 0) or _LEGACY in keys, numbers < (3, 1) or _LEGACY_INT96 in keys
        return cls(dates, int96, keys.get(_ZONE, b"UTC").decode()) if dates or int96 else None

    def in_gregorian(self, rows: pa.Table, schema: pq.ParquetSchema) -> pa.Table:
        """Return rows of a file with the dates and times of their names in the proleptic Gregorian calendar.

        Args:
            rows: Rows of the file, with whole columns and their types as in the file.
            schema: The schema of the file.

        Raises UnknownTimeZone if a time before 1900 depends on a zone that is not known here.
        """
        leaves = int96_leaves(schema)
        columns = [
            pa.chunked_array(
                [map_leaves(chunk, partial(self._leaf, iter(leaves[name]))) for chunk in column.chunks], column.type
            )
            if any(pa.types.is_date32(leaf) or pa.types.is_timestamp(leaf) for leaf in leaf_types(column.type))
            else column
            for name, column in zip(rows.column_names, rows.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=rows.schema)

    def _leaf(self, int96: Iterator[bool], array: pa.Array) -> pa.Array:
        """Convert a leaf. `int96` tells for each leaf of a column whether it is stored so."""
        kind, types = array.type, pa.types
        is_int96 = next(int96)
        if types.is_date32(kind) and self.dates:
            return _with_numbers(array, pa.int32(), gregorian_days)
        # A time without a zone is newer than the hybrid calendar in Spark.
        if types.is_timestamp(kind) and (self.int96 if is_int96 else self.dates and kind.tz is not None):
            per_unit = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(kind.unit)
            if per_unit is not None:
                return _with_numbers(
                    array, pa.int64(), lambda numbers: gregorian_micros(numbers * per_unit, self.zone) // per_unit
                )
        return array


def gregorian_days(days: Integers) -> Integers:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar that have the names of days in the hybrid one.

    A day that the Gregorian calendar lacks, such as 1000-02-29, becomes the next one, as in Spark.
    """
    old = days < _FIRST_GREGORIAN_DAY
    if not old.any():
        return days
    result = days.copy()
    # The usual arithmetic of the Julian calendar: years that begin in March, in cycles of four.
    shifted = days[old] + _EPOCH_JULIAN_DAY + 32_082
    year = (4 * shifted + 3) // 1461
    day_of_year = shifted - 1461 * year // 4
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5
    months = (year - 4800 + month // 10 - 1970) * 12 + month + 2 - 12 * (month // 10)
    result[old] = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day
    return result


def gregorian_micros(micros: Integers, zone: str) -> Integers:
    """Return microseconds since 1970-01-01T00:00Z of the moments that have the same name in a zone.

    Raises UnknownTimeZone.
    """
    old = micros < _SINCE_1900
    if not old.any():
        return micros
    standard, bounds, offsets = _offsets(zone)
    local = micros[old] + standard
    day, time = np.divmod(local, _DAY)
    named = gregorian_days(day) * _DAY + time
    result = micros.copy()
    result[old] = named - offsets[np.searchsorted(bounds, named, side="right")]
    return result


@lru_cache(maxsize=64)
def _offsets(zone: str) -> tuple[int, Integers, Integers]:
    """Return the offsets of a zone before 1900, in microseconds.

    Returns:
        The standard offset; the local times at which the offset changes, in ascending order; the offsets before the
        first change, between changes and after the last.
    """
    fixed = _OFFSET.fullmatch(zone)
    if zone in _IN_UTC or fixed is not None:
        seconds = 0
        if fixed is not None:
            hours, minutes, rest = (int(part or 0) for part in fixed.groups()[1:])
            seconds = (hours * 3600 + minutes * 60 + rest) * (-1 if fixed[1] == "-" else 1)
        return seconds * 1_000_000, np.array([], np.int64), np.array([seconds * 1_000_000], np.int64)
    try:
        info = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise UnknownTimeZone(
            f"times before 1900 were stored in the time zone {zone!r}, which is not known here: "
            "install the package tzdata, or rewrite the file with Spark"
        ) from None
    now = datetime(2020, 1, 1, tzinfo=info)
    # Ireland calls its winter time a daylight saving time of minus one hour; Java does not.
    standard = min(_seconds(now.utcoffset()), _seconds(datetime(2020, 7, 1, tzinfo=info).utcoffset()))
    bounds: list[int] = []
    offsets = [_offset_at(info, 1800 * 12)]
    for month in range(1800 * 12, 1900 * 12):
        if _offset_at(info, month + 1) != offsets[-1]:
            moment, before, after = _change(info, month)
            # Where a local time comes twice, or not at all, Java takes the earlier offset.
            bounds.append((moment + max(before, after)) * 1_000_000)
            offsets.append(after)
    return standard * 1_000_000, np.array(bounds, np.int64), np.array(offsets, np.int64) * 1_000_000


def _offset_at(info: ZoneInfo, month: int) -> int:
    return _seconds(datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC).astimezone(info).utcoffset())


def _change(info: ZoneInfo, month: int) -> tuple[int, int, int]:
    """Return the second at which the offset changes in a month, and the offsets before and after."""
    start, before = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC), _offset_at(info, month)

    def has_changed(seconds: int) -> bool:
        return _seconds((start + timedelta(seconds=seconds)).astimezone(info).utcoffset()) != before

    seconds = bisect_right(range(32 * 86_400), 0, key=has_changed)
    moment = start + timedelta(seconds=seconds)
    return int(moment.timestamp()), before, _seconds(moment.astimezone(info).utcoffset())


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return int(offset.total_seconds())


def _with_numbers(array: pa.Array, integers: pa.DataType, convert: Any) -> pa.Array:
    if not len(array) or array.null_count == len(array):
        return array
    numbers = pc.fill_null(array.view(integers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    converted = convert(numbers)
    if converted is numbers:
        return array
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(converted, pa.int64(), mask=mask).cast(integers).view(array.type)


def int96_leaves(schema: pq.ParquetSchema) -> dict[str, list[bool]]:
    """Return by column whether each of its leaves is stored as int96."""
    stored = iter([schema.column(number).physical_type == "INT96" for number in range(len(schema.names))])
    return {child.name: [next(stored) for _ in leaf_types(child.type)] for child in schema.to_arrow_schema()}
