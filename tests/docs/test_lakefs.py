"""docs/lakefs.md: its examples run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core import Lake
from tests.docs.blocks import run_blocks


def test_a_lake_leaves_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks("lakefs.md")
    ids = [names["exported"].commits[commit.id] for commit in names["lake"].log()]
    assert [commit.id for commit in Lake.open("namespace").log()] == ids
