"""What later versions are tried with is kept."""

from __future__ import annotations

import pytest

from tests.compatibility.write import WRITERS, archive_of


@pytest.mark.parametrize("name", WRITERS)
def test_this_version_is_kept_for_later_ones(name: str) -> None:
    assert archive_of(name).exists(), "run: python -m tests.compatibility.write"
