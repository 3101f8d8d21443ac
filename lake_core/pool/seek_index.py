"""Seek indexes: where in a data object the values between two keys are."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lake_core.errors import NotFound
from lake_core.pool.data_object import DataObject, seek_index_key
from lake_core.pool.errors import DamagedLake, InvalidZng
from lake_core.pool.metadata import Record, named_record, read_metadata
from lake_core.pool.types import UINT64
from lake_core.pool.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.key_range import KeyRange
    from lake_core.store import ObjectStore

_LOG = logging.getLogger(__name__)

_SMALL: Final = 1 << 20
"""A data object of up to this size, in bytes, is read whole, which costs less than reading its seek index first."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a data object that can be read on its own.

    Attributes:
        min: The smallest key in it.
        max: The largest.
        first: The position of its first value in the data object.
        count: How many values it holds.
        offset: Where it begins in the file.
        length: How many bytes it has.
    """

    min: Value
    max: Value
    first: int
    count: int
    offset: int
    length: int

    @classmethod
    def from_value(cls, value: Value) -> Segment:
        """Return the segment of an entry of a seek index. Raises InvalidZng."""
        record = Record(value)
        numbers = [record.integer(name) for name in ("val_off", "val_cnt", "offset", "length")]
        return cls(record.field("min"), record.field("max"), *numbers)

    def to_value(self) -> Value:
        """Return it as an entry of a seek index."""
        numbers = {"val_off": self.first, "val_cnt": self.count, "offset": self.offset, "length": self.length}
        return named_record(
            "",
            {"min": self.min, "max": self.max} | {name: Value.of(UINT64, number) for name, number in numbers.items()},
        )


def whole_segment(data_object: DataObject) -> Segment:
    """Return all of a data object as one segment."""
    return Segment(data_object.min, data_object.max, 0, data_object.count, 0, data_object.size)


def segments_in_range(store: ObjectStore, pool_id: str, data_object: DataObject, key_range: KeyRange) -> list[Segment]:
    """Return the segments of a data object that can hold keys of a range.

    The whole object is one segment where its seek index saves nothing, is missing or is damaged: the index only makes
    reading faster.
    """
    if not key_range.is_bounded:
        return [whole_segment(data_object)]
    return [each for each in all_segments(store, pool_id, data_object) if key_range.overlaps(each.min, each.max)]


def all_segments(store: ObjectStore, pool_id: str, data_object: DataObject) -> list[Segment]:
    """Return the segments of a data object.

    A small object is one segment, and so is one whose seek index is missing or damaged.
    """
    if data_object.size <= _SMALL:
        return [whole_segment(data_object)]
    key = seek_index_key(pool_id, data_object.id)
    try:
        segments = [Segment.from_value(value) for value in read_metadata(store, key)]
        _check(segments, data_object)
    except (NotFound, DamagedLake, InvalidZng) as error:
        _LOG.warning(
            "reading the whole data object %s, because its seek index cannot be used: %s", data_object.id, error
        )
        return [whole_segment(data_object)]
    return segments


def _check(segments: Sequence[Segment], data_object: DataObject) -> None:
    """Raise InvalidZng unless the segments cover the data object: a missing one would hide its values."""
    offset = count = 0
    for segment in segments:
        if segment.offset != offset or segment.first != count:
            raise InvalidZng("its entries do not follow one another")
        offset += segment.length
        count += segment.count
    if offset != data_object.size or count != data_object.count:
        raise InvalidZng("its entries do not cover the data object")
