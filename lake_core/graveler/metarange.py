"""Metaranges: the ranges of one tree, in order. A record's key is a range's last key, its identity the range's name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.graveler import wire
from lake_core.graveler.errors import CorruptTable
from lake_core.graveler.record import join_value, split_value

if TYPE_CHECKING:
    from lake_core.graveler.table_writer import WrittenTable

_NAME = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RangeInfo:
    """The record of a range in a metarange."""

    id: str
    min_key: bytes
    max_key: bytes
    count: int
    estimated_size: int
    """The approximate size of its file in bytes."""

    def value(self) -> bytes:
        """Return the joined value of the range's record in a metarange."""
        data = (
            wire.put_octets(1, self.min_key)
            + wire.put_octets(2, self.max_key)
            + wire.put_number(3, self.estimated_size)
            + wire.put_number(4, self.count)
        )
        return join_value(self.id.encode(), data)

    @classmethod
    def of(cls, table: WrittenTable) -> RangeInfo:
        """Describe a range that was just written."""
        return cls(table.id, table.min_key, table.max_key, table.count, table.estimated_size)


@dataclass(frozen=True)
class Metarange(Sequence[RangeInfo]):
    """The ranges of a tree. Their records are decoded one by one: a build touches few of them."""

    max_keys: Sequence[bytes]
    values: Sequence[bytes]

    @functools.cached_property
    def ids(self) -> list[bytes]:
        """Return the names of all ranges, as ASCII. Raises CorruptTable."""
        # The usual value begins with the length 64, which takes two bytes.
        names = [value[2:66] if value[:2] == b"\x80\x01" else split_value(value)[0] for value in self.values]
        if not all(map(_NAME.fullmatch, names)):
            raise CorruptTable("a metarange has a range whose name is not 64 hexadecimal digits")
        return names

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: int) -> RangeInfo:  # type: ignore[override]
        max_key = self.max_keys[at]
        name, data = split_value(self.values[at])
        if not _NAME.fullmatch(name):
            raise CorruptTable("a metarange has a range whose name is not 64 hexadecimal digits")
        fields = wire.read_message(data)
        # Proto3 leaves out an empty key, so a missing key means the lowest one.
        min_key = wire.octets(fields, 1)
        count, size = wire.number(fields, 4), wire.number(fields, 3)
        if min_key > max_key or wire.octets(fields, 2) not in (b"", max_key):
            raise CorruptTable("a metarange has a range with contradictory bounds")
        return RangeInfo(name.decode(), min_key, max_key, count, size)

    def __iter__(self) -> Iterator[RangeInfo]:
        return (self[at] for at in range(len(self)))


EMPTY = Metarange((), ())
"""The tree without records, named ""."""
