"""Materializations and observations link to the pages of `lake ui`, which show what they name."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from lake_orch import DeltaIOManager, FileIOManager, LakeResource, testing

UI = "http://localhost:7117"


@dg.asset(io_manager_key="tables")
def orders() -> pa.Table:
    return pa.table({"id": [1, 2]})


@dg.asset(io_manager_key="files")
def report() -> bytes:
    return b"two orders"


@dg.asset
def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
    table = lake.table(context)
    table.append(pa.table({"id": [3]}))
    return dg.MaterializeResult(metadata=table.metadata())


def resources(root: Path, scope: Any, ui_url: str | None = UI) -> dict[str, object]:
    lake = LakeResource(root=str(root), scope=scope, ui_url=ui_url)
    return {"lake": lake, "tables": DeltaIOManager(lake=lake), "files": FileIOManager(lake=lake)}


def links(metadata: Any) -> dict[str, str]:
    return {name: value.value for name, value in metadata.items() if isinstance(value, dg.UrlMetadataValue)}


def check_pages(root: Path, addresses: dict[str, str]) -> None:
    pages = TestClient(create_app(Lake.open(str(root)), PageSettings()), base_url=UI)
    for name, address in addresses.items():
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}" == UI
        assert pages.get(f"{parts.path}?{parts.query}").status_code == 200, (name, address)


def test_what_is_published_at_once_links_to_its_commit(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    result = dg.materialize([orders, report, by_hand], resources=resources(tmp_path, "asset"))
    for asset in (orders, report, by_hand):
        metadata = result.asset_materializations_for_node(asset.op.name)[0].metadata
        found = links(metadata)
        commit = metadata["lake/commit"].value
        assert found["lake/commit_page"] == f"{UI}/commit/{commit}"
        assert "lake/session_page" not in found
        assert commit in found["lake/changes_page"]
        check_pages(tmp_path, found)
    assert len(lake.log()) == 4


def test_a_staged_write_links_to_its_session_and_its_observation_to_the_commit(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        result = testing.materialize([orders], resources=resources(tmp_path, "run"), instance=instance)
        found = links(result.asset_materializations_for_node("orders")[0].metadata)
        (record,) = instance.fetch_observations(orders.key, limit=2).records
        observed = record.event_log_entry.asset_observation
        assert observed is not None
        published = links(observed.metadata)
    assert found["lake/session_page"].startswith(f"{UI}/session/")
    assert "lake/commit_page" not in found
    assert published["lake/commit_page"] == f"{UI}/commit/{lake.log()[0].id}"
    check_pages(tmp_path, found | published)


def test_without_an_address_there_are_no_links(tmp_path: Path) -> None:
    Lake.create(tmp_path)
    result = dg.materialize([orders], resources=resources(tmp_path, "asset", None))
    assert links(result.asset_materializations_for_node("orders")[0].metadata) == {}


@pytest.mark.parametrize("address", ["localhost:7117", "ftp://x", "http://ann:pw@x", "http://x/?token=abc", "http://"])
def test_an_address_that_is_no_page_or_holds_a_secret_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(Exception, match="ui_url must be"):
        LakeResource(root=str(tmp_path), ui_url=address)
