"""What the tests beside other implementations share."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Make a folder whose name no earlier test had: Spark remembers tables by their locations."""
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    return folder
