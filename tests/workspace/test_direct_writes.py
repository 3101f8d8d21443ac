"""Writes into a folder that is not a lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core.dataset import dataset_format
from lake_core.workspace.direct_writes import DirectWrites


def test_a_repository_that_another_process_creates_at_once_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DirectWrites(str(tmp_path), None, "other").create("weather", "icechunk")
    # This process has looked before the other one created it.
    monkeypatch.setattr(type(dataset_format("icechunk")), "exists", lambda self, folder: False)
    repository = DirectWrites(str(tmp_path), None, "this").create("weather", "icechunk")
    assert repository.list_branches() == {"main"}
