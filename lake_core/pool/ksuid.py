"""KSUIDs: the ids of pools, commits and data objects. Each begins with the time at which it was made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from lake_core import runtime
from lake_core.pool.errors import InvalidValue
from lake_core.pool.types import BYTES, NamedType

KSUID: Final = NamedType("ksuid.KSUID", BYTES)
"""The type of ids in metadata."""
SIZE: Final = 20
NIL: Final = "0" * 27
"""The id that stands for no commit: the parent of a first one, and the tip of an empty branch."""

_EPOCH = 1_400_000_000
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
"""All texts of two digits in order. Two digits at once take half as many divisions."""


def new_ksuid(now: datetime) -> str:
    """Return a new id made at a time."""
    return format_ksuid((int(now.timestamp()) - _EPOCH).to_bytes(4, "big") + runtime.random_bytes(SIZE - 4))


def time_of_ksuid(id: str) -> datetime:
    """Return when an id was made, in UTC and to the second. Raises InvalidValue."""
    return datetime.fromtimestamp(int.from_bytes(parse_ksuid(id)[:4], "big") + _EPOCH, UTC)


def format_ksuid(data: bytes) -> str:
    """Return the text of an id of 20 bytes: 27 digits in base 62. Raises InvalidValue."""
    if len(data) != SIZE:
        raise InvalidValue(f"an id has {len(data)} bytes instead of {SIZE}")
    number = int.from_bytes(data, "big")
    pairs = []
    for _ in range(len(NIL) // 2):
        number, pair = divmod(number, len(_PAIRS))
        pairs.append(_PAIRS[pair])
    return _DIGITS[number] + "".join(reversed(pairs))


def parse_ksuid(text: str) -> bytes:
    """Return the 20 bytes of an id. Raises InvalidValue."""
    number = 0
    for digit in text:
        position = _DIGITS.find(digit)
        if position < 0:
            break
        number = number * 62 + position
    else:
        if len(text) == len(NIL) and number < 1 << 8 * SIZE:
            return number.to_bytes(SIZE, "big")
    raise InvalidValue(f"{text[:40]!r} is no id; ids have {len(NIL)} letters and digits")
