"""What later versions are tried with is kept."""

from __future__ import annotations

import pytest

from lake_core import __version__
from tests.compatibility.write import DATA, WRITERS


@pytest.mark.parametrize("name", WRITERS)
def test_this_version_is_kept_for_later_ones(name: str) -> None:
    assert (DATA / f"{name}-{__version__}.tar.gz").exists(), "run: python -m tests.compatibility.write"
