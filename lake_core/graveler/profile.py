"""The rule for where ranges end. It depends only on the records since the last end: equal contents give equal ranges.

A range ends after a record whose key's FNV-1a hash is divisible by `raggedness`, if it has at least `min_bytes`. It
ends in any case once it has `max_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lake_core.graveler.key_columns import fnv64a

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Profile:
    """The parameters of the rule.

    Sizes are bytes of keys and joined values before compression, so they do not depend on a compressor.

    Build all versions of a tree with the same profile: with another one, the same content gets another name.
    """

    min_bytes: int
    max_bytes: int
    raggedness: int
    """The average number of records between breaking keys."""

    def __post_init__(self) -> None:
        if self.min_bytes < 0 or self.max_bytes < 1 or self.raggedness < 1:
            raise ValueError(
                f"{self} is not valid: min_bytes must be at least 0, and max_bytes and raggedness at least 1"
            )

    def ends(self, keys: Sequence[bytes], values: Sequence[bytes], behind: int = 0) -> tuple[list[int], int]:
        """Return where ranges end among these records (exclusive positions), and the bytes of the last, open range.

        `behind` is the number of bytes that the open range holds before the first of these records.
        """
        if not keys:
            return [], behind
        sizes = np.fromiter(map(len, keys), np.int64, len(keys)) + np.fromiter(map(len, values), np.int64, len(values))
        totals = np.cumsum(sizes) + behind
        breaking = np.flatnonzero(fnv64a(keys) % np.uint64(self.raggedness) == 0)
        ends: list[int] = []
        base = 0
        while True:
            full = int(np.searchsorted(totals, base + self.max_bytes))
            open_at = int(np.searchsorted(totals, base + self.min_bytes))
            candidate = int(np.searchsorted(breaking, max(open_at, ends[-1] if ends else 0)))
            last = min(full, int(breaking[candidate]) if candidate < len(breaking) else len(keys))
            if last >= len(keys):
                return ends, int(totals[-1]) - base
            ends.append(last + 1)
            base = int(totals[last])


SMALL_RANGES = Profile(512 << 10, 4 << 20, 3_000)
"""Parameters for about 5,000 records a range: a changed object costs a tenth of what it costs with lakeFS's own."""

LAKEFS = Profile(0, 20 << 20, 50_000)
"""lakeFS's own parameters.

lakeFS compares `max_bytes` with the compressed size of the file so far, and also ends a range where an unchanged one
follows. So lakeFS may divide a large tree in other places than this code does, and give it another name. Both read
either tree.
"""
