"""Computations over many keys at once: the lengths of shared prefixes, and FNV-1a hashes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CELLS = 1 << 22
_WIDEST = 1 << 12
_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3


def shared_prefixes(keys: Sequence[bytes]) -> list[int]:
    """Return the number of first bytes that each key shares with the key before it. It is 0 for the first key."""
    out = [0] if keys else []
    for begin, end in _batches(keys):
        batch = keys[max(begin - 1, 0) : end]
        widest = max(map(len, batch))
        if widest > _WIDEST:
            out.extend(_shared(first, second) for first, second in itertools.pairwise(batch))
            continue
        cells, lengths = _cells(batch, widest)
        differ = cells[1:] != cells[:-1]
        first_difference = differ.argmax(axis=1)
        first_difference[~differ.any(axis=1)] = widest
        out.extend(np.minimum(first_difference, np.minimum(lengths[1:], lengths[:-1])).tolist())
    return out


def fnv64a(keys: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Return the 64-bit FNV-1a hash of each key."""
    out = np.empty(len(keys), np.uint64)
    for begin, end in _batches(keys):
        batch = keys[begin:end]
        widest = max(map(len, batch))
        if widest > _WIDEST:
            out[begin:end] = [_fnv64a(key) for key in batch]
            continue
        cells, lengths = _cells(batch, widest)
        shortest = int(lengths.min())
        hashes = np.full(len(batch), _OFFSET, np.uint64)
        for position, column in enumerate(np.ascontiguousarray(cells.T)):
            mixed = (hashes ^ column) * np.uint64(_PRIME)
            hashes = mixed if position < shortest else np.where(lengths > position, mixed, hashes)
        out[begin:end] = hashes
    return out


def _fnv64a(key: bytes) -> int:
    value = _OFFSET
    for byte in key:
        value = (value ^ byte) * _PRIME & 0xFFFFFFFFFFFFFFFF
    return value


def _shared(first: bytes, second: bytes) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _batches(keys: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield slices of keys that, padded to one width, fit the budget of cells."""
    begin = 0
    while begin < len(keys):
        end = min(begin + _CELLS // _WIDEST, len(keys))
        widest = max(map(len, keys[begin:end]))
        # Most keys are short. If all of the following ones are, many more fit.
        further = min(begin + _CELLS // max(widest, 1), len(keys), begin + (1 << 16))
        if further > end and max(map(len, keys[end:further])) <= 2 * widest:
            end = further
        yield begin, end
        begin = end


def _cells(keys: Sequence[bytes], widest: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Return the keys as rows, padded with zeros, and their lengths."""
    width = max(widest, 1)
    rows = np.array(keys, dtype=f"S{width}").view(np.uint8).reshape(len(keys), width)
    return rows, np.fromiter(map(len, keys), np.intp, len(keys))
