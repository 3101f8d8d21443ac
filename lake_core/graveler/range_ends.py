"""The rule for where ranges end. It depends only on the records since the last end: equal contents give equal ranges.

A range ends after a record whose key's FNV-1a hash is divisible by `raggedness`, if it has at least `min_bytes`. It
ends in any case once it has `max_bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lake_core.graveler.key_columns import fnv64a

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.graveler.profile import Profile


def range_ends(
    profile: Profile, keys: Sequence[bytes], values: Sequence[bytes], behind: int = 0
) -> tuple[list[int], int]:
    """Return where ranges end among these records (exclusive positions), and the bytes of the last, open range.

    `behind` is the number of bytes that the open range holds before the first of these records.
    """
    if not keys:
        return [], behind
    sizes = np.fromiter(map(len, keys), np.int64, len(keys)) + np.fromiter(map(len, values), np.int64, len(values))
    totals = np.cumsum(sizes) + behind
    breaking = np.flatnonzero(fnv64a(keys) % np.uint64(profile.raggedness) == 0)
    ends: list[int] = []
    base = 0
    while True:
        full = int(np.searchsorted(totals, base + profile.max_bytes))
        open_at = int(np.searchsorted(totals, base + profile.min_bytes))
        candidate = int(np.searchsorted(breaking, max(open_at, ends[-1] if ends else 0)))
        last = min(full, int(breaking[candidate]) if candidate < len(breaking) else len(keys))
        if last >= len(keys):
            return ends, int(totals[-1]) - base
        ends.append(last + 1)
        base = int(totals[last])
