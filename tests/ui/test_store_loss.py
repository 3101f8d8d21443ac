"""A store that fails in the middle: pages say so, and work again when it is back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.errors import StoreUnavailable
from lake_core.store import ObjectStore, open_store
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.ui.conftest import BASE

PAGES = (
    *("/", "/history", "/commit/main", "/data", "/compare?from=main~1&to=main", "/merge?ref=dev", "/sessions"),
    *("/dataset/tables/orders", "/dataset/arrays/weather", "/dataset/pools/events", "/sql?q=select+*+from+orders"),
)


def without_answers(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a store answer no request, as one whose network is gone."""

    def fail(*args: object, **options: object) -> object:
        raise StoreUnavailable("the bucket does not answer: connection refused")

    for name in ("_get", "_get_many", "_head", "_list", "_list_folders"):
        monkeypatch.setattr(store, name, fail)


@pytest.mark.parametrize("address", PAGES)
def test_a_page_says_that_the_store_does_not_answer(
    own_lake: Lake, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    client = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    with monkeypatch.context() as patch:
        without_answers(own_lake.repository.root, patch)
        response = client.get(address)
        assert response.status_code == 503
        assert "connection refused" in response.text
        assert client.get(f"{address}{'&' if '?' in address else '?'}format=json").json()["kind"] == "StoreUnavailable"
    assert client.get(address).status_code == 200


def test_a_missing_data_file_is_told_and_the_rest_still_shows(own_lake: Lake, tmp_path: Path) -> None:
    client = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    root = tmp_path / "lake"
    for file in (root / "tables/orders").glob("*.parquet"):
        file.unlink()
    response = client.get("/dataset/tables/orders")
    assert response.status_code == 400
    assert "missing" in response.text
    assert client.get("/dataset/tables/orders?tab=schema").status_code == 200
    assert client.get("/").status_code == 200
    assert "missing" in client.get("/upkeep?check=verify").text


def test_a_missing_log_is_told_in_the_row_of_its_dataset(own_lake: Lake, tmp_path: Path) -> None:
    client = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    for folder in (tmp_path / "lake/arrays/weather").iterdir():
        shutil.rmtree(folder, ignore_errors=True)
    page = client.get("/compare?from=main~3&to=main")
    assert page.status_code == 200
    assert "tables/orders" in page.text


def test_a_lake_that_is_gone_is_told(own_lake: Lake, tmp_path: Path) -> None:
    client = TestClient(create_app(own_lake, PageSettings()), base_url=BASE)
    shutil.rmtree(tmp_path / "lake")
    for address in PAGES:
        response = client.get(address)
        assert response.status_code == 404
        assert "there is no lake at" in response.text


def test_the_memory_store_is_served_too() -> None:
    lake = Lake.create(open_store("memory://ui-pages"))
    client = TestClient(create_app(lake, PageSettings()), base_url=BASE)
    assert client.get("/").status_code == 200
    assert client.get("/history?ref=*").status_code == 200
