"""A format of one's own gets pages, by the interface alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.lake.lakes import TOY_FORMATS, forget_formats
from tests.ui.conftest import BASE


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(TOY_FORMATS))
    forget_formats()
    yield
    forget_formats()


@pytest.mark.usefixtures("toys")
def test_a_format_without_an_inspection_shows_its_objects_and_its_history(tmp_path: Path) -> None:
    assert str(TOY_FORMATS) in sys.path
    lake = Lake.create(str(tmp_path / "lake"))
    with lake.session(message="first draft") as s:
        s.create("notes/idea", "note", "first")
    with lake.session(message="second draft") as s:
        s.open("notes/idea").write("second")
    client = TestClient(create_app(lake, PageSettings()), base_url=BASE)
    page = client.get("/dataset/notes/idea")
    assert page.status_code == 200
    assert "second draft" in page.text
    assert '<td><span class="nowrap">second</span></td>' in page.text  # by the format's own `head`
    health = client.get("/dataset/notes/idea?tab=health")
    assert health.status_code == 200
    assert "objects" in health.text
    comparison = client.get("/compare/dataset?from=main~1&to=main&path=notes/idea")
    assert comparison.status_code == 200
    assert "files added" in comparison.text
    for address in ("/", "/data?prefix=notes", "/commit/main", "/sql", "/upkeep?check=verify"):
        assert client.get(address).status_code == 200
    error = client.get("/sql?q=select * from idea").text
    assert "notes/idea is not a table, but a dataset of the format note" in error
