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
    number, end = 0, at
    try:
        for shift in range(0, 7 * _LONGEST, 7):
            byte = data[end]
            number |= (byte & 0x7F) << shift
            end += 1
            if byte < 0x80:
                if number >> 64:
                    break
                return number, end
    except IndexError:
        pass
    raise InvalidVarint(f"there is no valid integer of at most 64 bits at byte {at}")
