"""Variable-length integers in SSTables. An invalid one means that the table is corrupt."""

from __future__ import annotations

from lake_core import varint
from lake_core.graveler.errors import CorruptTable
from lake_core.varint import uvarint

__all__ = ["read_uvarint", "uvarint"]


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number at a position, and the position after it.

    Raises CorruptTable if it is cut short or too long.
    """
    try:
        return varint.read_uvarint(data, at)
    except varint.InvalidVarint as error:
        raise CorruptTable(str(error)) from None
