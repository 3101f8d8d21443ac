"""The Zed lakes and files that the `zed` command wrote, and the collection's place."""

from __future__ import annotations

import pytest

from tests.skip_rule import CASES, NO_CASES

ZED_LAKES = CASES / "zed-lakes"
DAMAGED = {
    "bad-garbage-magic-v1.18/lake.zng",
    "bad-journal-garbage-v1.18/3MSafKQ0Oc59OqoH7v9ysibGMkJ/branches/4.zng",
    "bad-truncated-object-v1.18/3MSaddquTtQeDQvNaNUxHeSrZVV/data/3MSadXm02oYG2zK4s4D2HaggKGd.zng",
}
"""The files that are not ZNG, by their paths in the collection of lakes."""


def zng_files() -> dict[str, bytes]:
    """Return the ZNG files that are whole, by their paths; skips where the collection is absent."""
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    lakes = {str(path.relative_to(ZED_LAKES)): path.read_bytes() for path in sorted(ZED_LAKES.rglob("*.zng"))}
    files = {path.name: path.read_bytes() for path in sorted((CASES / "zed").glob("*.zng"))}
    return {name: data for name, data in (lakes | files).items() if name not in DAMAGED}


def damaged_files() -> dict[str, bytes]:
    """Return the files that are not ZNG; skips where the collection is absent."""
    if not ZED_LAKES.is_dir():
        pytest.skip(NO_CASES)
    return {name: (ZED_LAKES / name).read_bytes() for name in DAMAGED}
