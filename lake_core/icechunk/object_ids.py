"""Object ids in bulk: arrays of shape (ids, 12), read from file names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lake_core.icechunk.identifier import ALPHABET, OBJECT_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHARACTERS = 20
_BITS = 5
_INVALID = 255
_LETTERS = np.frombuffer(ALPHABET.encode(), np.uint8)
_VALUES = np.full(256, _INVALID, np.uint8)
_VALUES[_LETTERS] = np.arange(len(_LETTERS))

ObjectIds = npt.NDArray[np.uint8]
"""Shape (ids, 12)."""


def decode_names(names: Sequence[str]) -> tuple[npt.NDArray[np.bool_], ObjectIds]:
    """Return which file names are those of objects, spelled as they are written, and the ids of these."""
    plain = [name if len(name) == _CHARACTERS and name.isascii() else "-" * _CHARACTERS for name in names]
    values = _VALUES[np.frombuffer("".join(plain).encode(), np.uint8).reshape(len(names), _CHARACTERS)]
    # The last character has one bit of the id, and four zeros.
    valid = (values != _INVALID).all(axis=1) & (values[:, -1] & 0b1111 == 0)
    bits = np.unpackbits(values[valid][:, :, None], axis=2)[:, :, 8 - _BITS :].reshape(-1, _CHARACTERS * _BITS)
    return valid, np.packbits(bits[:, : OBJECT_ID_LENGTH * 8], axis=1)


def id_keys(ids: ObjectIds) -> npt.NDArray[np.uint64]:
    """Return the first eight bytes of each id as a number, for quick comparisons. Different ids may share them."""
    return np.ascontiguousarray(ids[:, :8]).view(">u8").reshape(-1).astype(np.uint64)
