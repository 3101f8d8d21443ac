"""CRC-32C (Castagnoli) by table look-ups in numpy: a byte's share of the checksum depends only on its value and its place."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_STEP = 1024
_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """The checksum of a block as SSTables store it: rotated by 15 bits, plus a constant."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """The plain checksum."""
    shares, register = _shares(), 0xFFFFFFFF
    whole = np.frombuffer(data, np.uint8)
    for begin in range(0, len(data), _STEP):
        piece = whole[begin : begin + _STEP].astype(np.intp)
        length = len(piece)
        # The register so far acts as if it were mixed into the next four bytes; what exceeds a short piece stays in it.
        first = min(4, length)
        for place in range(first):
            piece[place] ^= register >> (8 * place) & 0xFF
        register = register >> (8 * first) if first < 4 else 0
        register ^= int(np.bitwise_xor.reduce(shares[_offsets()[-length:] + piece]))
    return register ^ 0xFFFFFFFF


@functools.cache
def _offsets() -> npt.NDArray[np.intp]:
    """Where the shares of each of a step's bytes begin: the first byte is the farthest from the end."""
    return np.arange(_STEP - 1, -1, -1, dtype=np.intp) * 256


@functools.cache
def _shares() -> npt.NDArray[np.uint32]:
    """shares[256 * distance + byte]: what a byte adds, with so many bytes between it and the end."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1))
    rows = [table]
    for _ in range(_STEP - 1):
        rows.append(rows[-1] >> np.uint32(8) ^ table[rows[-1] & np.uint32(0xFF)])
    return np.concatenate(rows)
