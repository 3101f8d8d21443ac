"""Object ids: random bytes, in file names as Crockford's Base32. Specification section: File Layout."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lake_core import runtime
from lake_core.icechunk.errors import InvalidIdentifier

OBJECT_ID_LENGTH = 12
"""Bytes of the id of a snapshot, manifest or chunk."""
NODE_ID_LENGTH = 8
"""Bytes of the id of an array or group."""
INITIAL_SNAPSHOT = bytes.fromhex("0b1cc8d6787580f0e33a6534")
"""Id of the snapshot that every repository begins with."""

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {character: value for value, character in enumerate(ALPHABET)}
_VALUES.update({character.lower(): value for character, value in _VALUES.items()})
_BITS = 5
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]


def new_object_id() -> bytes:
    """Return the id of a new snapshot, manifest or chunk."""
    return runtime.random_bytes(OBJECT_ID_LENGTH)


def new_node_id() -> bytes:
    """Return the id of a new array or group."""
    return runtime.random_bytes(NODE_ID_LENGTH)


@lru_cache(maxsize=1 << 12)
def encode_id(identifier: bytes) -> str:
    """Return an id as text: upper case, most significant bit first, padded with zero bits on the right."""
    characters = -(-len(identifier) * 8 // _BITS)
    pairs = -(-characters // 2)
    number = int.from_bytes(identifier, "big") << (pairs * 2 * _BITS - len(identifier) * 8)
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range((pairs - 1) * 2 * _BITS, -1, -2 * _BITS)])[
        :characters
    ]


def encode_ids(identifiers: npt.NDArray[np.uint8]) -> list[str]:
    """Return many ids as text. Shape of `identifiers`: (ids, bytes of an id)."""
    count, length = identifiers.shape
    characters = -(-length * 8 // _BITS)
    bits = np.zeros((count, characters * _BITS), np.uint8)
    bits[:, : length * 8] = np.unpackbits(identifiers, axis=1)
    values = bits.reshape(count, characters, _BITS) @ np.array([16, 8, 4, 2, 1], np.uint8)
    text = np.frombuffer(ALPHABET.encode(), np.uint8)[values].tobytes().decode()
    return [text[start : start + characters] for start in range(0, len(text), characters)]


def decode_id(text: str, length: int = OBJECT_ID_LENGTH) -> bytes:
    """Return the bytes of an id. Case is ignored.

    Raises:
        InvalidIdentifier: The text has another length, or holds other characters.
    """
    characters = -(-length * 8 // _BITS)
    if not isinstance(text, str) or len(text) != characters or any(character not in _VALUES for character in text):
        raise InvalidIdentifier(
            f"{str(text)[:80]!r} is not an object id, which has {characters} letters and digits of Crockford's Base32"
        )
    number = 0
    for character in text:
        number = number << _BITS | _VALUES[character]
    return (number >> (characters * _BITS - length * 8)).to_bytes(length, "big")
