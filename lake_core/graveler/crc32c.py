"""CRC-32C (Castagnoli), which Python does not have.

Snappy's frames carry the same checksum, masked in the same way, so its encoder tells that of a block; numpy that of longer data.
"""

from __future__ import annotations

import functools
import threading

import cramjam
import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_STEP = 1024
_MASK_DELTA = 0xA282EAD8
_FRAME = 1 << 16
"""Bytes that one frame holds at most."""
_encoders = threading.local()


def masked_crc32c(data: bytes) -> int:
    """The checksum of a block as SSTables store it: rotated by 15 bits, plus a constant."""
    if 0 < len(data) <= _FRAME:
        found = _framed(data)
        if found is not None:
            return found
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _framed(data: bytes) -> int | None:
    """The checksum in the frame of the data: a byte for its kind, three for its length, four for the checksum, the data."""
    try:
        encoder = getattr(_encoders, "encoder", None)
        if encoder is None:
            encoder = _encoders.encoder = cramjam.snappy.Compressor()
            encoder.compress(b"behind what begins a stream")
            encoder.flush()
        encoder.compress(data)
        frame = bytes(encoder.flush())
    except BaseException:
        # Interrupted between the two, it would add this data to the next.
        _encoders.encoder = None
        raise
    if 4 + int.from_bytes(frame[1:4], "little") != len(frame):
        return None
    return int.from_bytes(frame[4:8], "little")


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
