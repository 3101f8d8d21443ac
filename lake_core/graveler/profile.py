"""The parameters of the rule for where ranges end."""

from __future__ import annotations

from dataclasses import dataclass


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


SMALL_RANGES = Profile(512 << 10, 4 << 20, 3_000)
"""Parameters for about 5,000 records a range: a changed object costs a tenth of what it costs with lakeFS's own."""

LAKEFS = Profile(0, 20 << 20, 50_000)
"""lakeFS's own parameters.

lakeFS compares `max_bytes` with the compressed size of the file so far, and also ends a range where an unchanged one
follows. So lakeFS may divide a large tree in other places than this code does, and give it another name. Both read
either tree.
"""
