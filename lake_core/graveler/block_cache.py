"""Decoded blocks by their stored bytes: ranges of consecutive trees have nearly all of their blocks in common."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from lake_core.graveler.block import TRAILER

if TYPE_CHECKING:
    from collections.abc import Sequence


class DecodedBlock(NamedTuple):
    """The records of a data block. Not to be changed: it may be in several ranges."""

    stored: bytes
    """The block as its file has it, with its trailer."""
    keys: list[bytes]
    values: list[bytes]
    size: int
    """The bytes of the decompressed block and of its keys."""


class BlockCache:
    """The blocks that were decoded last, of at most `memory_bytes` by their sizes. Safe to use from many threads.

    They are looked up by their checksums, because hashing all bytes of a block takes longer than comparing them.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._blocks: OrderedDict[bytes, DecodedBlock] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get_many(self, stored: Sequence[bytes]) -> list[DecodedBlock | None]:
        """Return the blocks that have these bytes, with their trailers, and None for those that are not kept."""
        found: list[DecodedBlock | None] = []
        with self._lock:
            for each in stored:
                block = self._blocks.get(each[-TRAILER:])
                if block is not None and block.stored == each:
                    self._blocks.move_to_end(each[-TRAILER:])
                    found.append(block)
                else:
                    found.append(None)
        return found

    def keep(self, block: DecodedBlock) -> None:
        """Keep a block whose checksum was checked. It replaces another one with the same checksum."""
        checksum = block.stored[-TRAILER:]
        with self._lock:
            replaced = self._blocks.pop(checksum, None)
            self._blocks[checksum] = block
            self._used += block.size - (replaced.size if replaced is not None else 0)
            while self._used > self._memory_bytes:
                _, dropped = self._blocks.popitem(last=False)
                self._used -= dropped.size
