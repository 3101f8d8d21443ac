"""Syncs of one lake at once, while it is published to, with each catalog."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.catalog import Catalog, sync_branch
from lake_core.catalog.errors import CatalogChanged
from lake_core.catalog.glue import GlueCatalog
from lake_core.catalog.hive import HiveCatalog
from lake_core.catalog.unity import UnityCatalog
from tests.catalog.hive_metastore import HiveMetastore
from tests.catalog.unity_server import UnityServer

PUBLISHES, SYNCS = 5, 3
SCHEMA = pa.schema([("id", pa.int64())])


def race(root: Path, catalog: Catalog) -> None:
    """Publish and sync at once, and compare what the catalog has with main."""
    lake = Lake.create(root / "lake")
    with lake.session() as s:
        s.create_delta("tables/grows", SCHEMA)

    def sync(_: int) -> int:
        conflicts = 0
        for _ in range(PUBLISHES):
            try:
                sync_branch(Lake.open(lake.url), catalog, "raced")
            except CatalogChanged:
                conflicts += 1
        return conflicts

    with ThreadPoolExecutor(SYNCS) as pool:
        syncs = pool.map(sync, range(SYNCS))
        for number in range(PUBLISHES):
            with lake.session() as s:
                s.create_delta(f"tables/t{number}", SCHEMA)
                if number:
                    s.drop(f"tables/t{number - 1}")
                rows = pa.table({"id": [number], f"c{number}": ["x"]})
                s.delta("tables/grows").append(rows, schema_mode="merge")
        list(syncs)
    assert sync_branch(lake, catalog, "raced").refused == []
    assert registered(catalog) == {
        record.path.removeprefix("tables/"): (record.path, f"{lake.url}/{record.path}")
        for record in lake.list_datasets()
    }
    assert not sync_branch(lake, catalog, "raced").tables, "what is recorded is what main has"


def registered(catalog: Catalog) -> Mapping[str, tuple[str, str]]:
    tables = catalog.tables("raced")
    assert tables is not None
    return {
        name: (table.origin.path, (table.location or "").replace("file:/", "file:///").replace("/////", "///"))
        for name, table in tables.items()
        if table.origin is not None
    }


def test_glue(tmp_path: Path, glue_url: str) -> None:
    race(tmp_path, GlueCatalog(region="us-east-1", endpoint=glue_url))


@pytest.mark.spark
@pytest.mark.xdist_group("metastore")
def test_hive(tmp_path: Path, metastore: HiveMetastore) -> None:
    race(tmp_path, HiveCatalog(metastore.uri))


def test_unity(tmp_path: Path, unity: UnityServer) -> None:
    race(tmp_path, UnityCatalog(unity.url, "lakes"))
