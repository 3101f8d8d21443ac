"""The page of arrays: its examples run one after another, and do what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

from lake_core import Lake
from tests.docs.blocks import run_blocks


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's examples leave behind, run in a folder with a lake, a repository and a plain Zarr array."""
    monkeypatch.chdir(tmp_path)
    Lake.create("lake")
    radar = icechunk.Repository.create(icechunk.local_filesystem_storage("lake/arrays/radar")).writable_session("main")
    zarr.create_array(radar.store, name="echo", data=np.arange(9))
    radar.commit("radar")
    zarr.create_array("lake/arrays/satellite", data=np.arange(16).reshape(4, 4), chunks=(2, 2))
    return run_blocks("arrays.md")


def test_the_examples_do_what_the_page_says(names: dict[str, Any]) -> None:
    lake = names["lake"]
    assert (names["now"].temperature[2] == 21.5).all()
    assert (names["before"].temperature[2] == 0).all()
    assert "/temperature, chunks [3, 0]: both wrote" in names["reason"]
    assert [(node.path, node.kind) for node in names["changed"]] == [("/pressure", "added")]
    assert not names["written"].skipped
    assert names["checked_out"].temperature[:, 0].values.tolist() == [3.0, 11.0, 12.0, 13.0]
    assert set(lake.at().datasets()) == {"arrays/weather", "arrays/radar", "arrays/satellite"}
    assert (zarr.open_array(lake.icechunk("arrays/satellite").store)[:] == np.arange(16).reshape(4, 4)).all()  # type: ignore[index]
    assert len(names["messages"]) == 7, "the first snapshot, and one for each publish"


def test_repositories_by_themselves_and_in_dagster(names: dict[str, Any]) -> None:
    assert names["appended"].sizes == {"day": 12, "station": 2}
    assert names["in_place"] == 50
    assert names["hourly"].sizes == {"time": 48, "station": 2}
