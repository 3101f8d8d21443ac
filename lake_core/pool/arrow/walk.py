"""Finds where consecutive values begin. The start of each is known only once the tag of the one before it is read."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from lake_core.pool.errors import InvalidZng
from lake_core.varint import InvalidVarint, read_uvarint

if TYPE_CHECKING:
    from lake_core.pool.arrow.bodies import Buffer, Positions

_SMALL: Final = 1 << 15
"""The largest buffer, in bytes, for which a loop over the values is faster."""
_HEAD: Final = 1 << 11
"""How many bytes are looked at to learn the ids of all values."""
_FEW_IN_HEAD: Final = 4
"""If no more values begin there, values are so large that a loop over them is faster than a look at each byte."""
_BLOCK: Final = 1 << 18
"""How many bytes are compared at once: few enough for a processor's cache."""
_ID_AND_TAG: Final = 20
"""How many bytes an id and a tag have together, at most."""
_MAX_IDS: Final = 4
_MAX_ROUNDS: Final = 16
"""How often candidates are dropped, which takes time for all that are left."""


def walk_values(data: Buffer, content: bytes | None = None) -> Positions:
    """Return where each value begins, with the id of its type. Raises InvalidZng where the last is cut short.

    Args:
        data: The values.
        content: The same bytes, if they are at hand in this form.
    """
    first_ids = _first_ids(data) if len(data) >= _SMALL else []
    if len(first_ids) > _FEW_IN_HEAD:
        positions = _walk_by_ids(data, set(first_ids))
        if positions is not None:
            return positions
    # Bytes are faster to index than a memory view, but have to be copied. Few of the bytes of large values are indexed.
    payload: bytes | memoryview | None = content
    if payload is None:
        payload = data.data if 0 < len(first_ids) <= _FEW_IN_HEAD else data.tobytes()
    try:
        starts = _walk_short(payload, 1)
    except InvalidZng:
        return _walk_any(payload)
    return _walk_any(payload) if bool((data[starts] >= 0x80).any()) else starts


def walk_elements(payload: bytes) -> Positions:
    """Return where each element of a container begins, with its tag. Raises InvalidZng where the last is cut short."""
    return _walk_short(payload, 0)


def _walk_by_ids(data: Buffer, ids: set[int]) -> Positions | None:
    """Walk over values whose types have a few ids, which were seen at the first values.

    Return None unless the ids take one byte and the tags at most two.

    Each byte that equals one of the ids can be the start of a value. Those at which no other candidate ends are
    dropped, again and again. Each one that is left is then reached from the first value.
    """
    if len(ids) > _MAX_IDS or max(ids) >= 0x80:
        return None
    at = _positions_of(ids, data[:-1])
    value_ends = _ends(data, at)
    for _ in range(_MAX_ROUNDS):
        breaks = np.flatnonzero(value_ends[:-1] != at[1:])
        if not len(breaks):
            return at if value_ends[-1] == len(data) else None
        # A candidate that is reached, but not from the one before it, is reached from before another break.
        starts, ends = at[breaks + 1], np.sort(value_ends[breaks])
        is_reached = ends[np.minimum(np.searchsorted(ends, starts), len(ends) - 1)] == starts
        if bool(is_reached.all()):
            return None
        kept = np.ones(len(at), np.bool_)
        kept[breaks + 1] = is_reached
        at, value_ends = at[kept], value_ends[kept]
    return None


def _first_ids(data: Buffer) -> list[int]:
    """Return the first byte of each of the first values."""
    head = data[:_HEAD].tobytes()
    ids: list[int] = []
    at = 0
    while at + _ID_AND_TAG <= len(head):
        ids.append(head[at])
        at = _end_of(head, at, with_ids=True)
    return ids or list(head[:1])


def _positions_of(bytes_: set[int], data: Buffer) -> Positions:
    """Return the positions of some bytes. Fast where they are rare, as eight positions are tested at once."""
    first, *others = bytes_
    mask = np.zeros(min(_BLOCK, -(-len(data) // 8) * 8), np.bool_)
    positions = [np.zeros(0, np.int64)]
    for start in range(0, len(data), _BLOCK):
        block = data[start : start + _BLOCK]
        np.equal(block, first, out=mask[: len(block)])
        mask[len(block) :] = False
        for byte in others:
            mask[: len(block)] |= block == byte
        words = mask.view(np.uint64)
        used = (words != 0).nonzero()[0]
        offsets = words[used].view(np.bool_).nonzero()[0]
        positions.append(start + used[offsets >> 3] * 8 + (offsets & 7))
    return np.concatenate(positions)


def _ends(data: Buffer, at: Positions) -> Positions:
    """Return where values end whose ids take one byte; past the end of the bytes where a tag takes more than two."""
    tags = data[at + 1].astype(np.int64)
    rows = np.flatnonzero(tags >= 0x80)
    ends = at + 1
    ends[rows] += 1
    high = data[np.minimum(ends[rows], len(data) - 1)].astype(np.int64)
    tags[rows] = np.where(high < 0x80, tags[rows] - 0x80 + (high << 7), len(data))
    return ends + np.maximum(tags, 1)


def _walk_short(payload: bytes | memoryview, before_tag: int) -> Positions:
    """Walk over values whose ids take one byte or none."""
    positions = array("q")
    add = positions.append
    at, end = 0, len(payload)
    behind_tag = before_tag + 1
    try:
        # An IndexError ends the loop: a test for the end would double its time.
        while True:
            tag = payload[at + before_tag]
            add(at)
            if tag >= 0x80:
                high = payload[at + behind_tag]
                if high < 0x80:  # a tag of two bytes
                    at += behind_tag + (tag - 0x80 + (high << 7) or 1)
                else:
                    at = _end_of(payload, at + before_tag, with_ids=False)
            else:
                at += before_tag + (tag or 1)
    except IndexError:
        pass
    if at != end:
        raise InvalidZng("the last value is cut short")
    return np.frombuffer(positions, np.int64) if positions else np.zeros(0, np.int64)


def _walk_any(payload: bytes | memoryview) -> Positions:
    """Walk over values with ids of any size."""
    positions = array("q")
    at, end = 0, len(payload)
    while at < end:
        positions.append(at)
        at = _end_of(payload, at, with_ids=True)
    if at > end:
        raise InvalidZng("the last value is cut short")
    return np.frombuffer(positions, np.int64)


def _end_of(payload: bytes | memoryview, at: int, *, with_ids: bool) -> int:
    """Return the position after a value, which begins with an id and a tag of any length."""
    try:
        if with_ids:
            _, at = read_uvarint(payload, at)
        tag, at = read_uvarint(payload, at)
    except InvalidVarint as error:
        raise InvalidZng(f"a value does not have a valid type id or tag: {error}") from None
    return at + max(tag - 1, 0)
