"""The files that lakeFS and pebble wrote, and the collection's folder."""

from __future__ import annotations

import pytest

from tests.skip_rule import CASES, NO_CASES

GOLDEN = CASES / "graveler"
LAKEFS_FILES = ("range.sst", "metarange.sst", "ok1.sst")
PEBBLE_FILES = ("h.sst", "h.table-bloom.sst", "h.no-compression.two_level_index.sst")


def golden(name: str) -> bytes:
    """The bytes of a file; skips where the collection is absent."""
    if not GOLDEN.is_dir():
        pytest.skip(NO_CASES)
    return (GOLDEN / name).read_bytes()
