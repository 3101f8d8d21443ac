"""The folders of the demos."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from example_pipelines.flights import folders


def test_one_demo_may_follow_another_that_made_the_landing_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = tmp_path / "landing"
    monkeypatch.setattr(folders, "LANDING", str(landing))
    folders.drop("airflow", "2013-01", pa.table({"flight": [1]}))
    folders.remove_lake(str(landing))
    assert [path.name for path in landing.rglob("*") if path.is_file()] == [folders.MARK]


def test_a_folder_of_somebody_else_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LANDING", str(tmp_path))
    (tmp_path / "theirs.txt").touch()
    folders.drop("airflow", "2013-01", pa.table({"flight": [1]}))
    with pytest.raises(SystemExit, match="not known to be the demo's"):
        folders.remove_lake(str(tmp_path))
