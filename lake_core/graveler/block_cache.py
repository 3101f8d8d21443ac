"""Decoded blocks by their stored bytes: ranges of consecutive trees have nearly all of their blocks in common."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple


class DecodedBlock(NamedTuple):
    """The records of a data block. Not to be changed: it may be in several ranges."""

    keys: list[bytes]
    values: list[bytes]
    size: int
    """The bytes of the decompressed block and of its keys."""


class BlockCache:
    """The blocks that were decoded last, of at most `memory_bytes` by their sizes. Safe to use from many threads."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._blocks: OrderedDict[bytes, DecodedBlock] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, stored: bytes) -> DecodedBlock | None:
        """Return the block that has these bytes, with its trailer, or None."""
        with self._lock:
            block = self._blocks.get(stored)
            if block is not None:
                self._blocks.move_to_end(stored)
            return block

    def keep(self, stored: bytes, block: DecodedBlock) -> None:
        """Keep a block whose checksum was checked."""
        with self._lock:
            if stored in self._blocks:
                return
            self._blocks[stored] = block
            self._used += block.size
            while self._used > self._memory_bytes:
                _, dropped = self._blocks.popitem(last=False)
                self._used -= dropped.size
