"""KSUIDs: the ids of pools, commits and data objects. Each begins with the time at which it was made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lake_core import runtime
from lake_core.pool.errors import InvalidValue
from lake_core.pool.types import BYTES, NamedType

KSUID: Final = NamedType("ksuid.KSUID", BYTES)
"""The type of ids in metadata."""
SIZE: Final = 20
NIL: Final = "0" * 27
"""The id that means "no commit": the parent of a first commit, and the tip of an empty branch."""

_EPOCH = 1_400_000_000
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_GROUP = 5
"""How many digits are divided off at once: as many as keep the dividend within 64 bits."""
_GROUPS = -(-len(NIL) // _GROUP)
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


def format_ksuids(data: npt.NDArray[np.uint8]) -> list[str]:
    """Return the texts of many ids; see `format_ksuid`.

    Args:
        data: Their bytes, of the shape (ids, 20).
    """
    words: list[npt.NDArray[Any]] = list(np.ascontiguousarray(data).view(">u4").astype(np.uint64).T)
    digits = np.empty((len(data), _GROUPS * _GROUP), np.uint8)
    for first in range(len(digits.T) - _GROUP, -1, -_GROUP):
        # A long division of all ids at once, word by word. The remainder is the value of a group of digits.
        remainder = np.zeros(len(data), np.uint64)
        for index, word in enumerate(words):
            words[index], remainder = np.divmod(remainder << 32 | word, np.uint64(len(_DIGITS) ** _GROUP))
        for column in range(first + _GROUP - 1, first - 1, -1):
            remainder, digits[:, column] = np.divmod(remainder, np.uint64(len(_DIGITS)))
    texts = np.frombuffer(_DIGITS.encode(), np.uint8)[digits[:, -len(NIL) :]].tobytes().decode()
    return [texts[start : start + len(NIL)] for start in range(0, len(texts), len(NIL))]


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
    raise InvalidValue(f"{text[:40]!r} is not an id; an id consists of {len(NIL)} letters and digits")
