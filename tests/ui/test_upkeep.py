"""What the pages say of maintenance: facts of the refs, what was found last, and datasets that ask for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.lake.state.state_store import StateStore
from lake_core.ui import upkeep, upkeep_memory
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.ui.conftest import BASE
from tests.ui.pages import page_of

ROWS = pa.table({"id": [1]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a table of many small files, and one that needs nothing."""
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session(message="tables") as s:
        s.create_delta("t/crowded", ROWS.schema)
        s.create_delta("t/quiet", ROWS.schema).append(ROWS)
        for _ in range(12):
            s.delta("t/crowded").append(ROWS)
    return lake


@pytest.fixture
def client(lake: Lake) -> TestClient:
    return TestClient(create_app(lake, PageSettings()), base_url=BASE)


def test_home_says_which_datasets_ask_for_maintenance_and_follows_the_commits(lake: Lake, client: TestClient) -> None:
    page = page_of(client, "/")
    assert "compact the table (small files: 12)" in page
    assert "1 of 2 datasets" in page
    assert "all of main is checked out" in page
    lake.delta("t/crowded")
    with lake.session(message="compact") as s:
        s.delta("t/crowded").optimize()
    page = page_of(client, "/")
    assert "compact the table" not in page
    assert "2 datasets: no compaction and no checkpoint is due" in page


def test_only_datasets_that_changed_are_looked_at_again(
    lake: Lake, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_of(client, "/")
    looked_at: list[str] = []
    due = upkeep_memory._due

    def noted(state: StateStore, path: str) -> upkeep_memory.Due | None:
        looked_at.append(path)
        return due(state, path)

    monkeypatch.setattr(upkeep_memory, "_due", noted)
    with lake.session() as s:
        s.delta("t/quiet").append(ROWS)
        s.create_delta("t/new", ROWS.schema)
        s.put("f", b"")
    page_of(client, "/")
    assert looked_at == ["t/new", "t/quiet"]


def test_home_says_how_many_datasets_it_has_looked_at_so_far(
    lake: Lake, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "FIRST_PAGE_SECONDS", -1.0)
    assert "0 of 2 datasets looked at so far" in page_of(client, "/")
    page = page_of(client, "/upkeep?check=datasets")
    assert "compact the table (small files: 12)" in page
    assert "compact the table (small files: 12)" in page_of(client, "/")


def test_home_repeats_what_was_found_last_with_its_time(lake: Lake, client: TestClient) -> None:
    page = page_of(client, "/")
    assert page.count("not looked for since these pages were started") == 2
    page_of(client, "/upkeep?check=gc")
    page_of(client, "/upkeep?check=verify")
    page = page_of(client, "/")
    assert "<code>lake gc</code> would delete 0 objects, 0 bytes, and 0 commits, <time" in page
    assert "no object is missing, <time" in page
    (data,) = (meta.key for meta in lake.repository.root.list("t/quiet/") if meta.key.endswith(".parquet"))
    Path(lake.url.removeprefix("file://"), data).unlink()
    page_of(client, "/upkeep?check=verify")
    page = page_of(client, "/")
    assert "1 problem, <time" in page
    assert "1 problem of stored objects found at the last look" in page


def test_a_dataset_that_cannot_be_read_says_so_and_the_others_are_looked_at(lake: Lake, client: TestClient) -> None:
    with lake.session() as s:
        zarr.create_array(s.create_icechunk("a").store, name="x", data=np.ones(4))
    shutil.rmtree(Path(lake.url.removeprefix("file://"), "a"))
    page = page_of(client, "/")
    assert "compact the table (small files: 12)" in page
    assert "a cannot be read" in page
