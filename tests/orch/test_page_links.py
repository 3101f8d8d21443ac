"""Materializations and observations link to the pages of `lake ui`, which show what they name."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from lake_orch import DeltaIOManager, FileIOManager, IcechunkIOManager, LakeResource, PoolIOManager, testing
from lake_orch.change_sensors import table_change_sensor

UI = "http://localhost:7117"


@dg.asset(io_manager_key="tables")
def orders() -> pa.Table:
    return pa.table({"id": [1, 2]})


@dg.asset(io_manager_key="files")
def report() -> bytes:
    return b"two orders"


@dg.asset(io_manager_key="files")
def summary() -> dict[str, int]:
    return {"orders": 2}


@dg.asset(io_manager_key="files", partitions_def=dg.StaticPartitionsDefinition(["a", "b"]))
def parts(context: dg.AssetExecutionContext) -> dict[str, str]:
    return dict.fromkeys(context.partition_keys, "text")


@dg.asset(io_manager_key="arrays")
def field() -> xr.Dataset:
    return xr.Dataset({"t": ("x", np.arange(4.0))})


@dg.asset(io_manager_key="pools")
def events() -> list[dict[str, int]]:
    return [{"ts": 1}]


ALL = [orders, report, summary, field, events]


@dg.asset
def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
    table = lake.table(context)
    table.append(pa.table({"id": [3]}))
    return dg.MaterializeResult(metadata=table.metadata())


def resources(root: Path, scope: Any, ui_url: str | None = UI) -> dict[str, object]:
    lake = LakeResource(root=str(root), scope=scope, ui_url=ui_url)
    managers = {
        "tables": DeltaIOManager(lake=lake),
        "files": FileIOManager(lake=lake),
        "arrays": IcechunkIOManager(lake=lake),
        "pools": PoolIOManager(lake=lake),
    }
    return {"lake": lake, **managers}


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
    result = dg.materialize([*ALL, by_hand], resources=resources(tmp_path, "asset"))
    for asset in (*ALL, by_hand):
        metadata = result.asset_materializations_for_node(asset.op.name)[0].metadata
        found = links(metadata)
        commit = metadata["lake/commit"].value
        assert found["lake/commit_page"] == f"{UI}/commit/{commit}"
        assert "lake/session_page" not in found
        assert commit in found["lake/changes_page"]
        check_pages(tmp_path, found)
    assert len(lake.log()) == 1 + len(ALL) + 1


def test_files_of_several_partitions_link_to_their_folder(tmp_path: Path) -> None:
    Lake.create(tmp_path)
    for keys in (["a"], ["b"]):
        tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        result = dg.materialize([parts], resources=resources(tmp_path, "asset"), tags=tags)
        for event in result.asset_materializations_for_node("parts"):
            assert set(links(event.metadata)) >= {"lake/page", "lake/commit_page", "lake/changes_page"}
            check_pages(tmp_path, links(event.metadata))


def test_a_staged_write_links_to_its_session_and_its_observation_to_the_commit(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        result = testing.materialize(ALL, resources=resources(tmp_path, "run"), instance=instance)
        for asset in ALL:
            staged = links(result.asset_materializations_for_node(asset.op.name)[0].metadata)
            (record,) = instance.fetch_observations(asset.key, limit=2).records
            observed = record.event_log_entry.asset_observation
            assert observed is not None
            published = links(observed.metadata)
            assert staged["lake/session_page"].startswith(f"{UI}/session/")
            assert "lake/commit_page" not in staged
            assert published["lake/commit_page"] == f"{UI}/commit/{lake.log()[0].id}"
            assert set(published) == {"lake/page", "lake/commit_page", "lake/changes_page"}
            check_pages(tmp_path, staged)
            check_pages(tmp_path, published)


def test_what_a_sensor_sees_others_change_links_to_the_pages(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as s:
        s.create_delta("tables/orders", pa.schema([("id", pa.int64())])).append(pa.table({"id": [1]}))
    sensor = table_change_sensor(["tables/orders"])
    with dg.build_sensor_context(resources=resources(tmp_path, "asset")) as context:
        evaluated: Any = sensor(context)
    (observation,) = evaluated.asset_events
    assert set(links(observation.metadata)) == {"lake/page", "lake/commit_page", "lake/changes_page"}
    check_pages(tmp_path, links(observation.metadata))


def test_without_an_address_there_are_no_links(tmp_path: Path) -> None:
    Lake.create(tmp_path)
    result = dg.materialize([orders], resources=resources(tmp_path, "asset", None))
    assert links(result.asset_materializations_for_node("orders")[0].metadata) == {}


@pytest.mark.parametrize("address", ["localhost:7117", "ftp://x", "http://ann:pw@x", "http://x/?token=abc", "http://"])
def test_an_address_that_is_no_page_or_holds_a_secret_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(Exception, match="ui_url must be"):
        LakeResource(root=str(tmp_path), ui_url=address)
