"""Variable-length integers of SSTables, ZNG, Go's binary package and protocol buffers: 7 bits a byte, lowest first."""

from __future__ import annotations

from lake_core.errors import LakeError

_LONGEST = 10


class InvalidVarint(LakeError):
    """There is no valid integer of at most 64 bits at the position."""


def uvarint(number: int) -> bytes:
    """Encode an unsigned number."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_uvarint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the unsigned number at a position, and the position after it. Raises InvalidVarint."""
    number = 0
    for index, byte in enumerate(data[at : at + _LONGEST]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if number >> 64:
                break
            return number, at + index + 1
    raise InvalidVarint(f"there is no valid integer of at most 64 bits at byte {at}")
